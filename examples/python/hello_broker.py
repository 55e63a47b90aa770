#!/usr/bin/env python3
"""A program in a sandbox sends one message through the broker, twice under the same key: it arrives once.
What was not granted is refused."""
import http.server
import sys
import tempfile
import threading
from typing import List

import orch

INSIDE = """
import urllib.error, urllib.request
def ask(path, key):
    request = urllib.request.Request("http://127.0.0.1:8080" + path, b"shelf 0.1 is out", {"Idempotency-Key": key})
    try:
        print(path, key, urllib.request.urlopen(request).status)
    except urllib.error.HTTPError as refusal:
        print(path, key, refusal.code, refusal.read().decode())
ask("/notify.send", "release-1")
ask("/notify.send", "release-1")
ask("/ai.anthropic/v1/messages", "-")
"""
arrived: List[str] = []


class Outside(http.server.BaseHTTPRequestHandler):
    """The service that is notified; it counts."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        arrived.append(self.headers["Idempotency-Key"])
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        pass


def main() -> int:
    service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Outside)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder, orch.Context() as context, \
            orch.Broker(context, journal_path=folder + "/journal.db") as broker:
        broker.on_operation(lambda step: print("broker:", step.operation, step.event.name, step.code))
        principal = orch.Principal(broker, "hello/1", generation=1)
        principal.grant("notify.send", url=f"http://127.0.0.1:{service.server_port}/announce", key_prefix="hello/")
        with orch.Sandbox(context, net=orch.Net.BROKER) as sandbox:
            sandbox.start_wait(20000)
            broker.add_listener(sandbox.listener_fd, principal)
            print(sandbox.run_wait(["/usr/bin/python3", "-c", INSIDE]).stdout.decode())
        print("settled, unknown:", *principal.revoke().result(10000))
    print("arrived:", *arrived)
    return 0 if arrived == ["hello/release-1"] else 1


sys.exit(main())
