cat "${ORCH_IN:-/in}/spec.xml"
#---
mkdir -p out/checks
cat > out/checks.xml <<'END'
<?xml version="1.0" encoding="UTF-8"?>
<checks xmlns="urn:orch:checks:1">
  <check id="C1" requirement="R1" visibility="visible" file="checks/c1.py" timeout-s="30"/>
  <check id="H1" requirement="R1" visibility="hidden" file="checks/h1.py" timeout-s="30"/>
  <check id="C2" requirement="R2" visibility="visible" file="checks/c2.py" timeout-s="30"/>
  <check id="H2" requirement="R2" visibility="hidden" file="checks/h2.py" timeout-s="30"/>
  <check id="C3" requirement="R3" visibility="visible" file="checks/c3.py" timeout-s="30"/>
  <check id="H3" requirement="R3" visibility="hidden" file="checks/h3.py" timeout-s="30"/>
  <check id="C4" requirement="R4" visibility="visible" file="checks/c4.py" timeout-s="30"/>
  <check id="H4" requirement="R4" visibility="hidden" file="checks/h4.py" timeout-s="30"/>
  <check id="C5" requirement="R5" visibility="visible" file="checks/c5.py" timeout-s="30" restart="yes"/>
  <check id="H5" requirement="R5" visibility="hidden" file="checks/h5.py" timeout-s="30" restart="yes"/>
  <check id="C6" requirement="R6" visibility="visible" file="checks/c6.py" timeout-s="30"/>
  <check id="H6" requirement="R6" visibility="hidden" file="checks/h6.py" timeout-s="30"/>
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

check c1 <<'END'
def health():
    equal(ask("GET", "/health"), (200, {"status": "ok"}))


run(health)
END

check h1 <<'END'
def health_with_query():
    equal(ask("GET", "/health?verbose=1"), (200, {"status": "ok"}))


def unknown_path():
    for path in ("/healthy", "/health/x", "/nothing", "/book"):
        equal(call("GET", path)[0], 404)


run(health_with_query, unknown_path)
END

check c2 <<'END'
def empty_shelf():
    equal(ask("GET", "/books"), (200, {"books": []}))


def add_and_list():
    dune = add("Dune", "Frank Herbert")
    emma = add("Emma", "Jane Austen")
    equal(ask("GET", "/books"), (200, {"books": [dune, emma]}))
    equal(ask("GET", "/books/%d" % emma["id"]), (200, emma))


def title_is_needed():
    equal(call("POST", "/books", {"author": "Nobody"})[0], 400)
    equal(len(ask("GET", "/books")[1]["books"]), 2)


run(empty_shelf, add_and_list, title_is_needed)
END

check h2 <<'END'
TITLES = ["Ægypt", "Робинзон", "quote ' and \" and \\", "100% _sql_; DROP TABLE books;--", "x" * 2000]


def every_title_comes_back():
    books = [add(title, title[::-1]) for title in TITLES]
    equal(len({book["id"] for book in books}), len(TITLES))
    equal(ask("GET", "/books"), (200, {"books": books}))
    for book in books:
        equal(ask("GET", "/books/%d" % book["id"]), (200, book))


def the_same_title_twice():
    equal(add("Twice", "A")["id"] != add("Twice", "A")["id"], True)


def nonsense_changes_nothing():
    before = ask("GET", "/books")
    for body in (b"", b"{", b"[]", b"7", b'"x"', {}, {"title": ""}, {"title": "  ", "author": "x"},
                 {"title": 7, "author": "x"}, {"title": "x", "author": 7}, {"title": None, "author": "x"}):
        equal(call("POST", "/books", body)[0], 400)
    equal(ask("GET", "/books"), before)


def unknown_book():
    for number in (987654, 0, 99999999999999999999999):
        equal(call("GET", "/books/%d" % number)[0], 404)


run(every_title_comes_back, the_same_title_twice, nonsense_changes_nothing, unknown_book)
END

check c3 <<'END'
def search():
    dune = add("Dune", "Frank Herbert")
    emma = add("Emma", "Jane Austen")
    equal(ask("GET", "/search?q=dune"), (200, {"books": [dune]}))
    equal(ask("GET", "/search?q=AUSTEN"), (200, {"books": [emma]}))
    equal(ask("GET", "/search?q=e"), (200, {"books": [dune, emma]}))
    equal(ask("GET", "/search?q=zzz"), (200, {"books": []}))


def q_is_needed():
    equal(call("GET", "/search")[0], 400)


run(search, q_is_needed)
END

check h3 <<'END'
def found(text):
    status, answer = ask("GET", "/search?q=" + urllib.parse.quote(text, safe=""))
    equal(status, 200)
    return answer["books"]


def literal_and_in_any_case():
    wool = add("100% Wool", "Ann O'Nym")
    snake = add("snake_case", "Grüße & Co")
    plain = add("Plain", "B*b [x]")
    equal(found("%"), [wool])
    equal(found("_"), [snake])
    equal(found("*"), [plain])
    equal(found("[X]"), [plain])
    equal(found("o'nym"), [wool])
    equal(found("GRÜSSE"), [snake])
    equal(found("üße & C"), [snake])
    equal(found("100% wool"), [wool])
    equal(found("plai_"), [])
    equal(found("n"), [wool, snake, plain])


def later_books_too():
    late = add("Latecomer", "Zed")
    equal(found("latecomer"), [late])


def empty_text():
    equal(call("GET", "/search?q=")[0], 400)


run(literal_and_in_any_case, later_books_too, empty_text)
END

check c4 <<'END'
def delete():
    book = "/books/%d" % add("Dune", "Frank Herbert")["id"]
    equal(call("DELETE", book)[0], 204)
    equal(call("GET", book)[0], 404)
    equal(call("DELETE", book)[0], 404)


def lend_once():
    loan = "/books/%d/loan" % add("Emma", "Jane Austen")["id"]
    equal(ask("GET", loan), (200, {"to": None}))
    equal(call("POST", loan, {"to": "Ann"})[0], 201)
    equal(call("POST", loan, {"to": "Bob"})[0], 409)
    equal(ask("GET", loan), (200, {"to": "Ann"}))
    equal(call("DELETE", loan)[0], 204)
    equal(ask("GET", loan), (200, {"to": None}))


run(delete, lend_once)
END

check h4 <<'END'
def only_the_one():
    books = [add("Book %d" % number, "A") for number in range(4)]
    equal(call("DELETE", "/books/%d" % books[1]["id"])[0], 204)
    equal(ask("GET", "/books"), (200, {"books": [books[0], books[2], books[3]]}))


def loans_do_not_mix():
    one, two = ("/books/%d/loan" % add(title, "B")["id"] for title in ("One", "Two"))
    equal(call("POST", one, {"to": "Ünal"})[0], 201)
    equal(ask("GET", two), (200, {"to": None}))
    equal(call("DELETE", two)[0], 409)
    equal(call("POST", two, {"to": "Bea"})[0], 201)
    equal(call("DELETE", one)[0], 204)
    equal(call("DELETE", one)[0], 409)
    equal(ask("GET", two), (200, {"to": "Bea"}))
    equal(call("POST", one, {"to": "Cem"})[0], 201)


def a_lent_book_can_be_deleted():
    number = add("Lent", "C")["id"]
    equal(call("POST", "/books/%d/loan" % number, {"to": "Ann"})[0], 201)
    equal(call("DELETE", "/books/%d" % number)[0], 204)
    equal(call("GET", "/books/%d/loan" % number)[0], 404)


def unknown_book():
    for method, path in (("DELETE", "/books/4711"), ("GET", "/books/4711/loan"), ("DELETE", "/books/4711/loan")):
        equal(call(method, path)[0], 404)
    equal(call("POST", "/books/4711/loan", {"to": "Ann"})[0], 404)


run(only_the_one, loans_do_not_mix, a_lent_book_can_be_deleted, unknown_book)
END

check c5 <<'END'
def before():
    add("Dune", "Frank Herbert")
    equal(len(ask("GET", "/books")[1]["books"]), 1)


def after():
    status, answer = ask("GET", "/books")
    equal((status, [book["title"] for book in answer["books"]]), (200, ["Dune"]))


run(before if sys.argv[1] == "before" else after)
END

check h5 <<'END'
BOOKS = [("Tome %d é" % number, "Writer %d" % (number * 7)) for number in range(12)]


def before():
    for number, (title, author) in enumerate(BOOKS, 1):
        equal(add(title, author)["id"] >= number, True)


def after():
    books = ask("GET", "/books")[1]["books"]
    equal([(book["title"], book["author"]) for book in books], BOOKS)
    for book in books:
        equal(ask("GET", "/books/%d" % book["id"]), (200, book))


def a_new_id():
    old = ask("GET", "/books")[1]["books"]
    equal(len(old), len(BOOKS))
    new = add("New", "N")
    equal(new["id"] in [book["id"] for book in old], False)
    equal(ask("GET", "/books")[1]["books"], old + [new])


if sys.argv[1] == "before":
    run(before)
run(after, a_new_id)
END

check c6 <<'END'
def page():
    add("Dune", "Frank Herbert")
    add("<script>alert(1)</script>", "Eve")
    status, kind, text = call("GET", "/")
    equal((status, kind.split(";")[0]), (200, "text/html"))
    equal(["Dune" in text, "Frank Herbert" in text], [True, True])
    equal(["<script>alert" in text, "&lt;script&gt;alert(1)&lt;/script&gt;" in text], [False, True])


def release():
    status, note = ask("GET", "/release")
    equal((status, note["name"], note["version"]), (200, "shelf", "1.0.0"))


run(page, release)
END

check h6 <<'END'
import html.parser


class Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.words, self.tags = "", []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, attributes))

    def handle_data(self, data):
        self.words += data


def read():
    status, kind, text = call("GET", "/")
    equal((status, kind.replace(" ", "").lower()), (200, "text/html;charset=utf-8"))
    reader = Reader()
    reader.feed(text)
    reader.close()
    return reader


def markup_is_text():
    plain = len(read().tags)
    add("Plain", "Nobody")
    per_book = len(read().tags) - plain
    nasty = ['<img src=x onerror="alert(1)">', "</ul><svg/onload=alert(2)>", "<!-- gone", "&lt;b&gt; & <b>",
             "\" onmouseover='x", "Grüße — 書"]
    for text in nasty:
        add(text, "by " + text)
    page = read()
    equal(len(page.tags), plain + per_book * (1 + len(nasty)))
    equal([name for _, attributes in page.tags for name, _ in attributes if name.startswith("on")], [])
    for text in nasty:
        equal((page.words.count(text) >= 2, "by " + text in page.words), (True, True))


def only_what_was_added():
    equal("Never Added" in read().words, False)


def features_are_named():
    status, note = ask("GET", "/release")
    equal((status, sorted(note["features"])), (200, note["features"]))
    equal(sorted({"books", "health", "page", "release"} - set(note["features"])), [])


run(markup_is_text, only_what_was_added, features_are_named)
END
rm out/head.py
ls -l out/checks
