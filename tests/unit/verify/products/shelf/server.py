# A small honest product: items in SQLite under $DATA.
import http.server, json, os, sqlite3

store = sqlite3.connect(os.environ["DATA"] + "/items.db", check_same_thread=False)
store.execute("CREATE TABLE IF NOT EXISTS item (name TEXT)")


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/health":
            self.answer(200, {"status": "ok"})
        elif self.path == "/items":
            self.answer(200, [row[0] for row in store.execute("SELECT name FROM item ORDER BY rowid")])
        else:
            self.answer(404, {"error": "no such path"})

    def do_POST(self):
        name = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["name"]
        with store:
            store.execute("INSERT INTO item VALUES (?)", (name,))
        self.answer(201, {"name": name})


http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
