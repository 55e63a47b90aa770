cat tree/shelf/web.py tree/shelf/storage.py | head -50; sleep 1
#---
cat > tree/shelf/features/search.py <<'END'
from ..web import Refused


def search(request):
    wanted = request.query.get("q", [""])[0].casefold()
    if not wanted:
        raise Refused(400, "q is missing or empty")
    return 200, {"books": [book for book in request.storage.all()
                           if wanted in book["title"].casefold() or wanted in book["author"].casefold()]}


ROUTES = [("GET", "/search", search)]
END
cat > tree/tests/test_search.py <<'END'
import unittest

from shelf.features.search import search
from shelf.web import Refused, Request


class Books:
    def all(self):
        return [{"id": 1, "title": "100% Wool", "author": "Ann"}, {"id": 2, "title": "Dune", "author": "Herbert"}]


def ids(text):
    return [book["id"] for book in search(Request(Books(), {"q": [text]}, b"", ()))[1]["books"]]


class SearchTest(unittest.TestCase):
    def test_literal_text_in_any_case(self):
        self.assertEqual([ids("HERB"), ids("%"), ids("n"), ids("_")], [[2], [1], [1, 2], []])

    def test_empty(self):
        self.assertRaises(Refused, ids, "")


if __name__ == "__main__":
    unittest.main()
END
#---
cd tree && python3 -B -m unittest discover -s tests -t . 2>&1
