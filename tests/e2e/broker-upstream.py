#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A provider and a message destination on loopback, for tests of the broker.

Prints its port, then serves until its standard input ends. The first path segment says how it behaves, so a base URL
chooses it: http://127.0.0.1:PORT/sse-20-50 streams 20 events 50 ms apart. GET /log tells what it saw."""
import gzip
import http.server
import json
import re
import socket
import ssl
import sys
import threading
import time
import urllib.parse

log = []
applied = {}
lock = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body, headers=None):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {"Content-Type": "application/json"}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def event(self, event):
        name = event["type"]
        self.chunk(f"event: {name}\ndata: {json.dumps(event)}\n\n".encode())

    def start_stream(self, kind="text/event-stream"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Set-Cookie", "session=upstream")
        self.send_header("anthropic-ratelimit-requests-remaining", "7")
        self.end_headers()

    def note(self, **what):
        with lock:
            self.entry.update(what)

    def cut(self):
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    def handle_any(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        path = self.path.split("?")[0]
        if path == "/log":
            with lock:
                data = {"requests": log, "applied": applied}
                self.reply(200, data)
            return
        self.entry = {"method": self.command, "path": self.path, "headers": [list(h) for h in self.headers.items()],
                      "bytes": length, "began": time.time()}
        with lock:
            log.append(self.entry)
        mode = path.split("/")[1]
        try:
            self.behave(mode, path, body)
        except (BrokenPipeError, ConnectionResetError):
            self.note(cut_by_client=True)
            self.close_connection = True
        self.note(ended=time.time())

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = handle_any

    def behave(self, mode, path, body):
        numbers = [int(n) for n in re.findall(r"\d+", mode)]
        name = re.sub(r"[-\d].*", "", mode)
        getattr(self, "do_" + name)(numbers, path, body)

    # --- providers ---

    def do_usage(self, numbers, path, body):
        self.reply(200, {"type": "message", "content": [{"type": "text", "text": "hello"}],
                         "usage": {"input_tokens": numbers[0], "output_tokens": numbers[1]}})

    def do_hold(self, numbers, path, body):
        time.sleep(numbers[0] / 1000)
        self.do_usage(numbers[1:], path, body)

    def do_sse(self, numbers, path, body):
        count, delay = numbers[0], numbers[1] / 1000
        self.start_stream()
        if "responses" in path:
            self.event({"type": "response.created", "response": {"usage": None}})
            for i in range(count):
                time.sleep(delay)
                self.event({"type": "response.output_text.delta", "delta": f"word{i}"})
            self.event({"type": "response.completed",
                        "response": {"output": ["x" * 3000], "usage": {"input_tokens": 120, "output_tokens": 40,
                                     "input_tokens_details": {"cached_tokens": 100}}}})
        else:
            self.event({"type": "message_start", "message": {"usage": {"input_tokens": 120, "output_tokens": 1}}})
            for i in range(count):
                time.sleep(delay)
                self.event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": f"word{i}"}})
            self.event({"type": "message_delta", "usage": {"output_tokens": 40}})
            self.event({"type": "message_stop"})
        self.wfile.write(b"0\r\n\r\n")

    def do_think(self, numbers, path, body):
        """Silent between two events, then within one."""
        self.start_stream()
        self.event({"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}})
        time.sleep(numbers[0] / 1000)
        self.chunk(b'event: message_delta\ndata: {"type": "message_delta", "usage": {"out')
        time.sleep(numbers[0] / 1000)
        self.chunk(b'put_tokens": 9}}\n\n')
        self.event({"type": "message_stop"})
        self.wfile.write(b"0\r\n\r\n")

    def do_big(self, numbers, path, body):
        self.start_stream("application/octet-stream")
        block = b"x" * 65536
        sent = 0
        for _ in range(numbers[0] * 16):
            self.chunk(block)
            sent += len(block)
            self.note(sent=sent)
        self.wfile.write(b"0\r\n\r\n")

    def do_die(self, numbers, path, body):
        self.start_stream()
        self.event({"type": "message_start", "message": {"usage": {"input_tokens": 33, "output_tokens": 1}}})
        time.sleep(0.1)
        self.cut()

    def do_drop(self, numbers, path, body):
        self.cut()

    def do_silent(self, numbers, path, body):
        time.sleep(numbers[0])

    def do_quota(self, numbers, path, body):
        self.reply(429, {"type": "error", "error": {"type": "rate_limit_error"}},
                   {"Content-Type": "application/json", "retry-after": "60",
                    "anthropic-ratelimit-unified-status": "rejected",
                    "anthropic-ratelimit-unified-reset": str(int(time.time()) + numbers[0])})

    def do_limit(self, numbers, path, body):
        self.reply(429, {"error": {"type": "usage_limit_reached", "plan_type": "pro",
                                   "resets_at": int(time.time()) + numbers[0]}})

    def do_echo(self, numbers, path, body):
        text = json.dumps([list(h) for h in self.headers.items()]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("x-echo", self.headers.get("x-api-key") or "none")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i in range(0, len(text), 7):
            self.chunk(text[i:i + 7])
        self.wfile.write(b"0\r\n\r\n")

    def do_gzip(self, numbers, path, body):
        data = gzip.compress(json.dumps({"usage": {"input_tokens": 77, "output_tokens": 11}}).encode())
        self.reply(200, data, {"Content-Type": "application/json", "Content-Encoding": "gzip"})

    def do_redirect(self, numbers, path, body):
        self.reply(302, {}, {"Location": "/usage-1-1/v1/messages", "Content-Type": "application/json"})

    # --- a destination of messages ---

    def apply(self):
        key = self.headers.get("Idempotency-Key") or ""
        with lock:
            applied[key] = applied.get(key, 0) + 1

    def do_notify(self, numbers, path, body):
        how = path.split("/")[2]
        if how == "late":
            time.sleep(0.4)
        if how.startswith("status"):
            self.reply(int(how[6:]), {"refused": True})
            return
        if how == "lose":
            self.cut()
            return
        self.apply()
        if how == "forget":
            self.cut()
            return
        self.reply(201, {"sent": body.decode(errors="replace"), "times": applied[self.headers["Idempotency-Key"]]})

    def do_probe(self, numbers, path, body):
        how, key = path.split("/")[2:4]
        key = urllib.parse.unquote(key)
        if how == "fail":
            self.reply(500, {})
            return
        with lock:
            known = key in applied
        self.reply(200 if known else 404, {"known": known})


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, address):
        pass


server = Server(("127.0.0.1", 0), Handler)
if len(sys.argv) == 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1])
    server.socket = context.wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
