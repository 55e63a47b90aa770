cat tree/shelf/web.py tree/shelf/storage.py | head -50; sleep 1
#---
cat > tree/shelf/features/loans.py <<'END'
from ..web import Refused

TABLE = ("CREATE TABLE IF NOT EXISTS loans (book INTEGER PRIMARY KEY REFERENCES books(id), "
         "borrower TEXT NOT NULL)")


def delete(request):
    number = request.book()["id"]
    with request.storage.open() as db:
        db.execute(TABLE)
        db.execute("DELETE FROM loans WHERE book = ?", (number,))
        gone = db.execute("DELETE FROM books WHERE id = ?", (number,)).rowcount
    if gone != 1:
        raise Refused(404, "no such book")
    return 204, None


def lend(request):
    number, borrower = request.book()["id"], request.text("to")
    with request.storage.open() as db:
        db.execute(TABLE)
        if db.execute("INSERT OR IGNORE INTO loans VALUES (?, ?)", (number, borrower)).rowcount != 1:
            raise Refused(409, "the book is lent")
    return 201, {"to": borrower}


def who(request):
    number = request.book()["id"]
    with request.storage.open() as db:
        db.execute(TABLE)
        row = db.execute("SELECT borrower FROM loans WHERE book = ?", (number,)).fetchone()
    return 200, {"to": row[0] if row else None}


def take_back(request):
    number = request.book()["id"]
    with request.storage.open() as db:
        db.execute(TABLE)
        if db.execute("DELETE FROM loans WHERE book = ?", (number,)).rowcount != 1:
            raise Refused(409, "the book is not lent")
    return 204, None


ROUTES = [("DELETE", "/books/([0-9]+)", delete), ("POST", "/books/([0-9]+)/loan", lend),
          ("GET", "/books/([0-9]+)/loan", who), ("DELETE", "/books/([0-9]+)/loan", take_back)]
END
cat > tree/tests/test_loans.py <<'END'
import json
import os
import tempfile
import unittest

from shelf.features import loans
from shelf.storage import Storage
from shelf.web import Refused, Request


class LoansTest(unittest.TestCase):
    def test_one_borrower_at_a_time(self):
        with tempfile.TemporaryDirectory() as folder:
            storage = Storage(os.path.join(folder, "shelf.db"))
            number = str(storage.add("Dune", "Herbert")["id"])
            request = Request(storage, {}, json.dumps({"to": "Ann"}).encode(), (number,))
            self.assertEqual(loans.lend(request)[0], 201)
            self.assertRaises(Refused, loans.lend, request)
            self.assertEqual(loans.who(request)[1], {"to": "Ann"})
            self.assertEqual(loans.delete(request), (204, None))
            self.assertRaises(Refused, loans.delete, request)


if __name__ == "__main__":
    unittest.main()
END
#---
cd tree && python3 -B -m unittest discover -s tests -t . 2>&1
