cat "${ORCH_IN:-/in}/spec.xml"; ls tree/shelf/features
#---
mkdir -p out/checks
cat > out/checks.xml <<'END'
<?xml version="1.0" encoding="UTF-8"?>
<checks xmlns="urn:orch:checks:1">
  <check id="C7" requirement="R7" visibility="visible" file="checks/c7.py" timeout-s="30"/>
  <check id="H7" requirement="R7" visibility="hidden" file="checks/h7.py" timeout-s="30" restart="yes"/>
  <check id="C8" requirement="R8" visibility="visible" file="checks/c8.py" timeout-s="30"/>
  <check id="H8" requirement="R8" visibility="hidden" file="checks/h8.py" timeout-s="30"/>
</checks>
END
#---
cat > out/head.py <<'END'
import http.client
import json
import os
import sys
import urllib.parse

PRODUCT = urllib.parse.urlsplit(os.environ["PRODUCT_URL"])


def call(method, path, body=None):
    """(status, content type, text)"""
    connection = http.client.HTTPConnection(PRODUCT.hostname, PRODUCT.port, timeout=10)
    try:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type") or "", answer.read().decode()
    finally:
        connection.close()


def ask(method, path, body=None):
    """(status, JSON)"""
    status, _, text = call(method, path, body)
    return status, json.loads(text) if text else None


def equal(got, expected):
    if got != expected:
        raise AssertionError("got %r, expected %r" % (got, expected))


def add(title, author):
    status, book = ask("POST", "/books", {"title": title, "author": author})
    equal(status, 201)
    equal((book["title"], book["author"], type(book["id"])), (title, author, int))
    return book


def run(*points):
    print("1..%d" % len(points), flush=True)
    failed = 0
    for number, point in enumerate(points, 1):
        try:
            point()
            said = "ok %d - %s" % (number, point.__name__)
        except Exception as error:
            failed += 1
            what = "%s: %s" % (type(error).__name__, error)
            what = "".join(c if " " <= c <= "~" and c != "#" else "?" for c in what)[:300]
            said = "not ok %d - %s: %s" % (number, point.__name__, what)
        print(said, flush=True)
    sys.exit(1 if failed else 0)


END
check() {
	{ cat out/head.py; cat; } > "out/checks/$1.py"
}

check c7 <<'END'
def tags():
    path = "/books/%d/tags" % add("Dune", "Frank Herbert")["id"]
    equal(ask("GET", path), (200, {"tags": []}))
    equal(ask("PUT", path, {"tags": ["Sand", "classic", "sand"]}), (200, {"tags": ["classic", "sand"]}))
    equal(ask("GET", path), (200, {"tags": ["classic", "sand"]}))


def unknown_book():
    equal(call("GET", "/books/4711/tags")[0], 404)


run(tags, unknown_book)
END

check h7 <<'END'
def put(number, tags):
    return ask("PUT", "/books/%d/tags" % number, {"tags": tags})


def before():
    one, two = add("One", "A")["id"], add("Two", "B")["id"]
    equal(put(one, [" ÄRA ", "x/y", "b c", "a"]), (200, {"tags": ["a", "b c", "x/y", "ära"]}))
    equal(put(two, ["gone"]), (200, {"tags": ["gone"]}))
    equal(put(two, ["kept"]), (200, {"tags": ["kept"]}))
    for wrong in ([""], ["a", "  "], [7], "a", None, {"a": 1}):
        equal(call("PUT", "/books/%d/tags" % two, {"tags": wrong})[0], 400)
    equal(call("PUT", "/books/4711/tags", {"tags": ["a"]})[0], 404)


def after():
    one, two = (book["id"] for book in ask("GET", "/books")[1]["books"])
    equal(ask("GET", "/books/%d/tags" % one), (200, {"tags": ["a", "b c", "x/y", "ära"]}))
    equal(ask("GET", "/books/%d/tags" % two), (200, {"tags": ["kept"]}))
    equal(put(one, []), (200, {"tags": []}))


run(before if sys.argv[1] == "before" else after)
END

check c8 <<'END'
def find_by_tag():
    dune, emma = add("Dune", "Frank Herbert"), add("Emma", "Jane Austen")
    for book, tags in ((dune, ["sand", "classic"]), (emma, ["classic"])):
        equal(call("PUT", "/books/%d/tags" % book["id"], {"tags": tags})[0], 200)
    equal(ask("GET", "/tags"), (200, {"tags": {"classic": 2, "sand": 1}}))
    equal(ask("GET", "/tags/classic"), (200, {"books": [dune, emma]}))
    equal(ask("GET", "/tags/sand"), (200, {"books": [dune]}))
    equal(call("GET", "/tags/none")[0], 404)


run(find_by_tag)
END

check h8 <<'END'
def tag(book, *tags):
    equal(call("PUT", "/books/%d/tags" % book["id"], {"tags": list(tags)})[0], 200)


def any_case_and_escaped():
    book = add("Grüße", "Ann")
    tag(book, "Très Bien", "50%")
    equal(ask("GET", "/tags/TR%C3%88S%20bien"), (200, {"books": [book]}))
    equal(ask("GET", "/tags/50%25"), (200, {"books": [book]}))


def deleted_books_do_not_count():
    one, two = add("One", "A"), add("Two", "B")
    tag(one, "pair")
    tag(two, "pair", "single")
    equal(call("DELETE", "/books/%d" % two["id"])[0], 204)
    equal(ask("GET", "/tags/pair"), (200, {"books": [one]}))
    counts = ask("GET", "/tags")[1]["tags"]
    equal((counts["pair"], "single" in counts), (1, False))
    equal(call("GET", "/tags/single")[0], 404)


def nothing_by_default():
    add("Untagged", "C")
    equal(call("GET", "/tags/untagged")[0], 404)


run(any_case_and_escaped, deleted_books_do_not_count, nothing_by_default)
END
rm out/head.py
ls -l out/checks
