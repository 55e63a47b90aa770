cat "${ORCH_IN:-/in}/task.json" 2>/dev/null; ls tree
#---
mkdir -p tree/shelf/features tree/tests
cat > tree/README.md <<'END'
# shelf

A web application for a shelf of books. It needs Python 3 and nothing else.

    DATA=/var/lib/shelf PORT=8000 python3 -m shelf

Features are the modules in `shelf/features`; each has `ROUTES`, a list of (method, pattern, function).
The tests: `python3 -m unittest discover -s tests -t .`
END
cat > tree/shelf/__init__.py <<'END'
END
cat > tree/shelf/__main__.py <<'END'
import os

from . import features, storage, web

web.serve(int(os.environ["PORT"]), features.routes(),
          storage.Storage(os.path.join(os.environ["DATA"], "shelf.db")))
END
cat > tree/shelf/storage.py <<'END'
"""Books in SQLite. Connections are short: one per request."""
import contextlib
import sqlite3


class Storage:
    def __init__(self, path):
        self.path = path
        with self.open() as db:
            # AUTOINCREMENT: the id of a deleted book is not used again.
            db.execute("CREATE TABLE IF NOT EXISTS books (id INTEGER PRIMARY KEY AUTOINCREMENT, "
                       "title TEXT NOT NULL, author TEXT NOT NULL)")

    @contextlib.contextmanager
    def open(self):
        db = sqlite3.connect(self.path, timeout=10)
        try:
            with db:
                yield db
        finally:
            db.close()

    def add(self, title, author):
        with self.open() as db:
            number = db.execute("INSERT INTO books (title, author) VALUES (?, ?)", (title, author)).lastrowid
        return self.get(number)

    def get(self, number):
        with self.open() as db:
            row = db.execute("SELECT id, title, author FROM books WHERE id = ?", (number,)).fetchone()
        return None if row is None else book(row)

    def all(self):
        with self.open() as db:
            return [book(row) for row in db.execute("SELECT id, title, author FROM books ORDER BY id")]


def book(row):
    return dict(zip(("id", "title", "author"), row))
END
cat > tree/shelf/web.py <<'END'
"""HTTP: requests in, the answers of feature functions out."""
import http.server
import json
import re
import socketserver
import urllib.parse

BODY_LIMIT = 1 << 20


class Refused(Exception):
    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class Request:
    def __init__(self, storage, query, body, arguments):
        self.storage = storage
        self.query = query
        self.body = body
        self.arguments = arguments

    def json(self):
        try:
            value = json.loads(self.body)
        except ValueError:
            raise Refused(400, "the body is not JSON") from None
        if not isinstance(value, dict):
            raise Refused(400, "the body is not an object")
        return value

    def text(self, name):
        value = self.json().get(name)
        if not isinstance(value, str) or not value.strip():
            raise Refused(400, "%s is missing or empty" % name)
        return value

    def book(self):
        """The book that the path names."""
        number = int(self.arguments[0])
        found = self.storage.get(number) if number < 1 << 62 else None
        if found is None:
            raise Refused(404, "no such book")
        return found


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64


def handler(routes, storage):
    compiled = [(method, re.compile(pattern), function) for method, pattern, function in routes]

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 30

        def answer(self):
            parts = urllib.parse.urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            if length > BODY_LIMIT:
                raise Refused(413, "the body is too large")
            body = self.rfile.read(length)
            for method, pattern, function in compiled:
                match = pattern.fullmatch(parts.path)
                if match and method == self.command:
                    query = urllib.parse.parse_qs(parts.query, keep_blank_values=True)
                    return function(Request(storage, query, body, match.groups()))
            raise Refused(404, "no such path")

        def respond(self):
            try:
                status, content = self.answer()
            except Refused as refused:
                status, content = refused.status, {"error": str(refused)}
            kind = "text/html; charset=utf-8" if isinstance(content, str) else "application/json"
            if not isinstance(content, str):
                content = "" if content is None else json.dumps(content)
            data = content.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = respond

        def log_message(self, *unused):
            pass

    return Handler


def serve(port, routes, storage):
    with Server(("127.0.0.1", port), handler(routes, storage)) as server:
        server.serve_forever()
END
cat > tree/shelf/features/__init__.py <<'END'
"""Feature modules: whatever lies in this folder."""
import importlib
import pkgutil


def names():
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def routes():
    found = []
    for name in names():
        found += importlib.import_module("%s.%s" % (__name__, name)).ROUTES
    return found
END
cat > tree/shelf/features/health.py <<'END'
def health(request):
    return 200, {"status": "ok"}


ROUTES = [("GET", "/health", health)]
END
cat > tree/shelf/features/books.py <<'END'
from ..web import Refused


def add(request):
    author = request.json().get("author", "")
    if not isinstance(author, str):
        raise Refused(400, "author is not a text")
    return 201, request.storage.add(request.text("title"), author)


def listing(request):
    return 200, {"books": request.storage.all()}


def one(request):
    return 200, request.book()


ROUTES = [("POST", "/books", add), ("GET", "/books", listing), ("GET", "/books/([0-9]+)", one)]
END
cat > tree/tests/__init__.py <<'END'
END
cat > tree/tests/test_storage.py <<'END'
import os
import tempfile
import unittest

from shelf.storage import Storage


class StorageTest(unittest.TestCase):
    def test_books_outlive_the_object(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "shelf.db")
            first = Storage(path).add("Dune", "Herbert")
            self.assertEqual(Storage(path).all(), [first])
            self.assertIsNone(Storage(path).get(first["id"] + 1))


if __name__ == "__main__":
    unittest.main()
END
#---
cd tree && python3 -B -m unittest discover -s tests -t . 2>&1 && find . -type f | sort
