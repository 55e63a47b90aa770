cat tree/shelf/web.py tree/shelf/storage.py | head -50; sleep 1
#---
# LIKE is the obvious way, and wrong: % and _ are wildcards, and only ASCII letters lose their case.
cat > tree/shelf/features/search.py <<'END'
from ..storage import book
from ..web import Refused


def search(request):
    wanted = request.query.get("q", [""])[0]
    if not wanted:
        raise Refused(400, "q is missing or empty")
    with request.storage.open() as db:
        rows = db.execute("SELECT id, title, author FROM books WHERE title LIKE ?1 OR author LIKE ?1 ORDER BY id",
                          ("%" + wanted + "%",)).fetchall()
    return 200, {"books": [book(row) for row in rows]}


ROUTES = [("GET", "/search", search)]
END
