# SPDX-License-Identifier: Apache-2.0
"""Starts synth-provider for a test and talks to it. For all tests in this folder."""
import http.client
import json
import os
import signal
import subprocess
import tempfile

SOURCE = os.environ["ORCH_SOURCE_ROOT"]
BUILD = os.environ["ORCH_BUILD_ROOT"]
PROGRAM = os.path.join(BUILD, "examples/synth-provider/synth-provider")
SCENARIOS = os.path.join(SOURCE, "examples/scenarios")


class Provider:
    """with Provider(scenario, "--delay-ms", "100") as provider: provider.port, provider.log()"""

    def __init__(self, scenario, *options):
        self.folder = tempfile.TemporaryDirectory(prefix="orch-provider-")
        self.log_path = os.path.join(self.folder.name, "log.ndjson")
        self.outside_path = os.path.join(self.folder.name, "outside.ndjson")
        self.arguments = [PROGRAM, "--scenario", scenario, "--log", self.log_path,
                          "--outside-log", self.outside_path, *options]
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.arguments, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                        text=True)
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError("synth-provider did not start: code %s" % self.process.wait(10))
        self.port = int(self.url.rsplit(":", 1)[1])

    def stop(self, sig=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(sig)
        self.process.stdout.close()
        return self.process.wait(10)

    def close(self):
        self.stop()
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def request(self, method, path, body=None, headers=None):
        """(status, headers, bytes)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def log(self):
        return read_lines(self.log_path)

    def outside(self):
        return read_lines(self.outside_path)


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def events(body):
    """[(event, object)] of a stream of server-sent events."""
    found = []
    for block in body.decode().split("\n\n"):
        if block:
            name, data = block.split("\n")
            assert name.startswith("event: ") and data.startswith("data: "), block
            found.append((name[7:], json.loads(data[6:])))
    return found
