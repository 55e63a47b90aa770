cat tree/shelf/features/tags.py
#---
cat > tree/shelf/features/tagged.py <<'END'
import urllib.parse

from ..storage import book
from ..web import Refused
from .tags import TABLE

# By way of books: what is left of a deleted book counts no more.
JOIN = "FROM books JOIN tags ON tags.book = books.id"


def counts(request):
    with request.storage.open() as db:
        db.execute(TABLE)
        return 200, {"tags": dict(db.execute("SELECT tag, COUNT(*) %s GROUP BY tag ORDER BY tag" % JOIN))}


def tagged(request):
    tag = urllib.parse.unquote(request.arguments[0]).strip().lower()
    with request.storage.open() as db:
        db.execute(TABLE)
        rows = db.execute("SELECT id, title, author %s WHERE tag = ? ORDER BY id" % JOIN, (tag,)).fetchall()
    if not rows:
        raise Refused(404, "no book has this tag")
    return 200, {"books": [book(row) for row in rows]}


ROUTES = [("GET", "/tags", counts), ("GET", "/tags/([^/]+)", tagged)]
END
#---
cd tree && python3 -B -m unittest discover -s tests -t . 2>&1
