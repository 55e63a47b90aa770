#!/usr/bin/env python3
"""Kills examples/never-twice 100 times at random moments and lets it finish: the service counted each URL once.

never-twice.py [SEED]; ORCH_KILLS changes the number. The service is the judge, not the journal. The control
does the same without the journal's memory and must count some URL twice, or this test would show nothing.
"""
import http.server
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM = os.path.join(os.environ["ORCH_BUILD_ROOT"], "examples", "never-twice")
KILLS = int(os.environ.get("ORCH_KILLS", "100"))
CONFIRMED, DISPATCHED = 4, 2


class Service(http.server.HTTPServer):
    """One request at a time in the order of their connections, so that a probe is answered after everything
    that was sent before it."""

    request_queue_size = 1024

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.counts = {}

    def handle_error(self, request, client_address):
        pass  # the client was killed


class Handler(http.server.BaseHTTPRequestHandler):
    timeout = 10

    def do_POST(self):
        counts = self.server.counts
        counts[self.path] = counts.get(self.path, 0) + 1
        self.answer(200)

    def do_GET(self):
        self.answer(200 if self.path in self.server.counts else 404)

    def answer(self, status):
        self.send_response(status)
        self.end_headers()

    def log_message(self, *arguments):
        pass


def run(service, arguments, at_work, dice):
    """Kills it in 0 to 40 ms, or 0 to 4 ms after its first request. True if it had ended by itself."""
    counted = sum(service.counts.values())
    process = subprocess.Popen(arguments)
    deadline = time.monotonic() + 60
    while at_work and process.poll() is None and sum(service.counts.values()) == counted:
        if time.monotonic() > deadline:
            process.kill()
            sys.exit("never-twice asked nothing within 60 s")
        time.sleep(0.0005)
    time.sleep(dice.uniform(0, 0.004 if at_work else 0.04))
    process.kill()
    status = process.wait(30)
    if status not in (0, -signal.SIGKILL):
        sys.exit(f"never-twice failed with status {status}")
    return status == 0


def kill_often(service, journal, dice, kills, forget):
    """Returns the URLs and what was done. With `forget` each run starts without a memory."""
    base = f"http://127.0.0.1:{service.server_address[1]}/"
    urls = [f"{base}{i}" for i in range(20)]
    killed = finished = 0
    while killed < kills:
        # Half of the kills come while it is at work, however slow the machine is.
        if run(service, [PROGRAM, journal, *urls], forget or dice.random() < 0.5, dice):
            finished += 1
            urls += [f"{base}{len(urls) + i}" for i in range(20)]  # more to do, so that kills find work
        else:
            killed += 1
        if forget:
            for name in os.listdir(os.path.dirname(journal)):
                os.unlink(os.path.join(os.path.dirname(journal), name))
    subprocess.run([PROGRAM, journal, *urls], check=True, timeout=120)
    return urls, killed, finished


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for forget in (False, True):
        service = Service()
        threading.Thread(target=service.serve_forever, args=(0.05,), daemon=True).start()
        with tempfile.TemporaryDirectory(prefix="orch-never-twice-") as folder:
            journal = os.path.join(folder, "journal")
            began = time.monotonic()
            urls, killed, finished = kill_often(service, journal, dice, 15 if forget else KILLS, forget)
            service.shutdown()
            service.server_close()
            wrong = {path: count for path, count in service.counts.items() if count != 1}
            if forget:
                if not wrong:
                    sys.exit("the control counted nothing twice: this test shows nothing")
                print(f"control without memory: {len(wrong)} URLs counted more than once")
                continue
            database = sqlite3.connect(journal)
            states = dict(database.execute("SELECT key, state FROM action"))
            found_out = database.execute(
                "SELECT count(*) FROM event d JOIN event e ON e.action = d.action AND e.attempt = d.attempt"
                " AND e.generation > d.generation AND e.state IN (3, 5)"  # OBSERVED, FAILED
                f" WHERE d.state = {DISPATCHED}").fetchone()[0]
            database.close()
            print(f"{killed} kills, {finished} ends, {len(urls)} URLs, {found_out} unknown outcomes found out,"
                  f" {time.monotonic() - began:.1f} s")
            if wrong or len(service.counts) != len(urls):
                sys.exit(f"not counted once each: {len(service.counts)} of {len(urls)}, {wrong}")
            unconfirmed = [url for url in urls if states.get(url) != CONFIRMED]
            if unconfirmed:
                sys.exit(f"not confirmed: {unconfirmed}")
            if KILLS >= 100 and found_out < 3:
                sys.exit("hardly any kill hit between dispatch and observation: this run shows little")
    print("each URL was counted once and is confirmed")


main()
