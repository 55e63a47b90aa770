cat tree/shelf/features/books.py tree/shelf/storage.py
#---
cat > tree/shelf/features/tags.py <<'END'
from ..web import Refused

TABLE = ("CREATE TABLE IF NOT EXISTS tags (book INTEGER NOT NULL REFERENCES books(id), tag TEXT NOT NULL, "
         "PRIMARY KEY (book, tag))")


def fold(tag):
    if not isinstance(tag, str) or not tag.strip():
        raise Refused(400, "a tag is not a text, or empty")
    return tag.strip().lower()


def put(request):
    number, given = request.book()["id"], request.json().get("tags")
    if not isinstance(given, list):
        raise Refused(400, "tags is not a list")
    tags = sorted({fold(tag) for tag in given})
    with request.storage.open() as db:
        db.execute(TABLE)
        db.execute("DELETE FROM tags WHERE book = ?", (number,))
        db.executemany("INSERT INTO tags VALUES (?, ?)", [(number, tag) for tag in tags])
    return 200, {"tags": tags}


def get(request):
    number = request.book()["id"]
    with request.storage.open() as db:
        db.execute(TABLE)
        rows = db.execute("SELECT tag FROM tags WHERE book = ?", (number,)).fetchall()
    return 200, {"tags": sorted(row[0] for row in rows)}


ROUTES = [("PUT", "/books/([0-9]+)/tags", put), ("GET", "/books/([0-9]+)/tags", get)]
END
cat > tree/tests/test_tags.py <<'END'
import json
import os
import tempfile
import unittest

from shelf.features import tags
from shelf.storage import Storage
from shelf.web import Refused, Request


class TagsTest(unittest.TestCase):
    def test_folded_and_sorted(self):
        with tempfile.TemporaryDirectory() as folder:
            storage = Storage(os.path.join(folder, "shelf.db"))
            number = str(storage.add("Dune", "Herbert")["id"])

            def put(value):
                return tags.put(Request(storage, {}, json.dumps({"tags": value}).encode(), (number,)))
            self.assertEqual(put(["Sand", " a ", "SAND"]), (200, {"tags": ["a", "sand"]}))
            self.assertRaises(Refused, put, ["x", ""])
            self.assertEqual(tags.get(Request(storage, {}, b"", (number,))), (200, {"tags": ["a", "sand"]}))


if __name__ == "__main__":
    unittest.main()
END
#---
cd tree && python3 -B -m unittest discover -s tests -t . 2>&1
