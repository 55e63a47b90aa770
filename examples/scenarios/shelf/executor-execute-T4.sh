ls tree/shelf/features
#---
cat > tree/shelf/features/page.py <<'END'
import html

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Shelf</title></head>
<body><h1>Shelf</h1>
<ul>
%s</ul>
<p>%d on the shelf</p>
</body></html>
"""


def page(request):
    books = request.storage.all()
    items = "".join("<li><b>%s</b> %s</li>\n" % (html.escape(book["title"]), html.escape(book["author"]))
                    for book in books)
    return 200, PAGE % (items, len(books))


ROUTES = [("GET", "/", page)]
END
cat > tree/shelf/features/release.py <<'END'
from . import names


def release(request):
    return 200, {"name": "shelf", "version": "1.0.0", "features": names()}


ROUTES = [("GET", "/release", release)]
END
cat > tree/RELEASE.md <<'END'
# shelf 1.0.0

The first release: books, search, loans, and a page.
END
#---
cd tree && python3 -B -m unittest discover -s tests -t . 2>&1
#---
python3 -B -c '
import json, os, urllib.error, urllib.request
request = urllib.request.Request(os.environ["ORCH_BROKER"] + "/notify.send", method="POST",
                                 data=json.dumps({"text": "shelf 1.0.0 is out"}).encode(),
                                 headers={"Content-Type": "application/json", "Idempotency-Key": "announce"})
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    with opener.open(request, timeout=60) as answer:
        print("announced:", answer.status, answer.read(500).decode())
except urllib.error.HTTPError as error:
    print("not announced:", error.code, error.read(500).decode())
except OSError as error:
    print("not announced:", error)
'
