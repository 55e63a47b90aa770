# SPDX-License-Identifier: Apache-2.0
"""orch-mini against synth-provider and against providers that misbehave, without a sandbox."""
import http.server
import json
import os
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from provider import BUILD, Provider

MINI = os.path.join(BUILD, "lib/executor/mini/orch-mini")
PACKET = "orch-packet/1 run=r1 role=executor stage=execute task=T1 attempt=1\nDo it.\n"
APIS = ("anthropic", "openai")


def start_mini(api, url, *options, packet=PACKET, cwd="/tmp"):
    process = subprocess.Popen([MINI, "--api", api, "--base-url", url, *options], stdin=subprocess.PIPE, cwd=cwd,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env={"PATH": "/usr/bin:/bin", "http_proxy": "http://127.0.0.1:1"})
    out, err = process.communicate(packet.encode() if isinstance(packet, str) else packet, timeout=60)
    return process.returncode, [json.loads(line) for line in out.decode().splitlines()], err.decode()


class Scripted(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="orch-mini-")
        self.addCleanup(self.temporary.cleanup)
        self.work = os.path.join(self.temporary.name, "work")
        os.mkdir(self.work)

    def provider(self, *steps, options=()):
        folder = os.path.join(self.temporary.name, "scenario")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "scenario.json"), "w", encoding="utf-8") as file:
            file.write('{"name":"x","idea":"y"}')
        with open(os.path.join(folder, "executor-execute.sh"), "w", encoding="utf-8") as file:
            file.write("\n#---\n".join(steps) + "\n")
        provider = Provider(folder, *options)
        self.addCleanup(provider.close)
        return provider

    def mini(self, api, provider, *options, **kwargs):
        return start_mini(api, provider.url, *options, cwd=self.work, **kwargs)

    def results(self, events):
        return [event for event in events if event["type"] == "tool_result"]

    def test_works_in_both_apis(self):
        provider = self.provider("echo one > a; echo 'ä \"q\"' > b", "cat a b >> c; echo $#; false", "x=" + "y" * 5000)
        for api in APIS:
            code, events, err = self.mini(api, provider)
            self.assertEqual((code, err), (0, ""))
            self.assertEqual([event["type"] for event in events],
                             ["text", "tool", "tool_result"] * 3 + ["text", "result"])
            self.assertEqual([event["status"] for event in self.results(events)], [0, 1, 0])
            self.assertEqual(events[-1]["turns"], 4)
            self.assertGreater(events[-1]["usage"]["input_tokens"], 100)
            self.assertEqual(events[4]["command"].strip(), "cat a b >> c; echo $#; false")
        with open(os.path.join(self.work, "c"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "one\nä \"q\"\n" * 2)
        self.assertEqual([line["step"] for line in provider.log()], [1, 2, 3, 4] * 2)

    def test_output_is_bounded_and_valid(self):
        provider = self.provider("head -c 5000000 /dev/zero | tr '\\0' x", "printf '\\377\\000ok\\303'", "kill -9 $$")
        for api in APIS:
            code, events, err = self.mini(api, provider, "--output-limit", "1000")
            self.assertEqual(code, 0, err)
            first, second, third = self.results(events)
            self.assertTrue(first["truncated"])
            self.assertLess(first["bytes"], 1100)
            self.assertEqual((second["status"], second["truncated"]), (0, False))
            self.assertEqual(third["status"], 256 + 9)
        self.assertLess(max(line["bytes"] for line in provider.log()), 8000)

    def test_timeout_and_left_behind(self):
        provider = self.provider("sleep 30 & sleep 30", "(setsid sleep 3 &) ; echo done")
        started = time.monotonic()
        code, events, err = self.mini("anthropic", provider, "--command-timeout-ms", "300")
        self.assertEqual(code, 0, err)
        self.assertLess(time.monotonic() - started, 2.5)
        self.assertEqual([(event["status"], event["timed_out"]) for event in self.results(events)],
                         [(256 + 9, True), (0, False)])

    def test_retries(self):
        for api, status in (("anthropic", 529), ("anthropic", 429), ("openai", 503), ("anthropic", 500)):
            provider = self.provider("true", options=("--fail-first", "2:%d" % status, "--retry-after", "1"))
            code, events, err = self.mini(api, provider)
            self.assertEqual(code, 0, err)
            self.assertEqual([event["type"] for event in events][:3], ["retry", "retry", "text"])
            self.assertEqual([line["status"] for line in provider.log()], [status] * 2 + [200] * 2)

    def test_retries_are_bounded(self):
        provider = self.provider("true", options=("--fail-first", "99:529", "--retry-after", "0"))
        code, events, err = self.mini("anthropic", provider)
        self.assertEqual((code, events[-1]["type"], events[-1]["code"]), (2, "error", "overloaded_error"))
        self.assertEqual(len(provider.log()), 4)
        provider = self.provider("true", options=("--fail-first", "99:429", "--retry-after", "3600"))
        started = time.monotonic()
        code, events, err = self.mini("anthropic", provider)
        self.assertEqual((code, len(events), events[0]["code"]), (2, 1, "rate_limit_error"))
        self.assertLess(time.monotonic() - started, 2)

    def test_4xx_is_final(self):
        provider = self.provider("true", options=("--refuse-auth", "k"))
        for api in APIS:
            code, events, err = self.mini(api, provider)
            self.assertEqual((code, len(events), events[0]["type"]), (2, 1, "error"))
            self.assertIn("HTTP 401", events[0]["message"])
            self.assertIn("HTTP 401", err)
        self.assertEqual(len(provider.log()), 2)

    def test_turns_are_bounded(self):
        provider = self.provider("true", "true", "true")
        code, events, _ = self.mini("anthropic", provider, "--max-turns", "2")
        self.assertEqual((code, events[-1]["code"], len(provider.log())), (2, "turns", 2))

    def test_nobody_listens(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            url = "http://127.0.0.1:%d" % probe.getsockname()[1]
        started = time.monotonic()
        code, events, err = start_mini("anthropic", url)
        self.assertEqual((code, events[-1]["code"]), (2, "unreachable"))
        self.assertTrue(2.5 < time.monotonic() - started < 6)

    def test_usage(self):
        for arguments in ([], ["--api", "x", "--base-url", "http://127.0.0.1:1"], ["--base-url", "u", "extra"],
                          ["--base-url", "u", "--max-turns", "0"]):
            result = subprocess.run([MINI, *arguments], input=b"p", capture_output=True, timeout=10)
            self.assertEqual((result.returncode, result.stdout), (64, b""))
            self.assertTrue(result.stderr)
        result = subprocess.run([MINI, "--base-url", "u"], input=b"", capture_output=True, timeout=10)
        self.assertEqual(result.returncode, 64)
        code, events, _ = start_mini("anthropic", "http://127.0.0.1:1", packet=b"\xff\xfe")
        self.assertEqual((code, events[0]["code"]), (2, "packet"))


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers each request with the next of server.answers: (status, content type, chunks)."""

    def do_POST(self):
        self.server.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        status, kind, chunks = self.server.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(chunk)
            self.wfile.flush()

    def log_message(self, *unused):
        pass


def stream(*events):
    return (200, "text/event-stream", [b"".join(b"event: x\r\ndata: %s\r\n\r\n" % json.dumps(event).encode()
                                                for event in events)])


START = {"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}}
TEXT = [{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
        {"type": "content_block_stop", "index": 0}]
STOP = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}},
        {"type": "message_stop"}]


class Misbehaving(unittest.TestCase):
    def answer(self, *answers, api="anthropic"):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        server.answers, server.requests = list(answers), []
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        try:
            self.server = server
            return start_mini(api, "http://127.0.0.1:%d" % server.server_address[1])
        finally:
            server.shutdown()
            server.server_close()

    def test_broken_stream_is_asked_again(self):
        code, events, err = self.answer(stream(START, *TEXT), stream(START, {"type": "ping"}, {"type": "new_thing"},
                                                                     *TEXT, *STOP))
        self.assertEqual(code, 0, err)
        self.assertEqual([event["type"] for event in events], ["retry", "text", "result"])
        self.assertEqual(events[-1]["usage"], {"input_tokens": 10, "output_tokens": 8})
        self.assertEqual(self.server.requests[0], self.server.requests[1])

    def test_split_anywhere(self):
        status, kind, chunks = stream(START, *TEXT, *STOP)
        code, events, err = self.answer((status, kind, [bytes([byte]) for byte in chunks[0]]))
        self.assertEqual((code, events[0]["text"]), (0, "hi"), err)

    def test_error_event(self):
        overloaded = stream(START, {"type": "error", "error": {"type": "overloaded_error", "message": "m"}})
        code, events, _ = self.answer(overloaded, stream(START, *TEXT, *STOP))
        self.assertEqual((code, events[0]["code"]), (0, "overloaded_error"))
        refused = stream(START, {"type": "error", "error": {"type": "invalid_request_error", "message": "m"}})
        code, events, _ = self.answer(refused)
        self.assertEqual((code, events[-1]["code"], len(events)), (2, "invalid_request_error", 1))
        failed = stream({"type": "response.created", "response": {}},
                        {"type": "response.failed", "response": {"error": {"code": "context_length_exceeded", "message": "m"}}})
        code, events, _ = self.answer(failed, api="openai")
        self.assertEqual((code, events[-1]["code"]), (2, "context_length_exceeded"))

    def test_no_stream(self):
        for body in (b"<html>", b'{"content":[]}', b""):
            code, events, _ = self.answer((200, "application/json", [body]))
            self.assertEqual((code, events[-1]["code"]), (2, "protocol"))

    def test_refusals_of_the_broker(self):
        for status, kind in ((403, "no_grant"), (429, "budget_tokens"), (402, "no_price"), (503, "no_upstream")):
            body = {"type": "error", "error": {"type": kind, "message": "because"}}
            code, events, _ = self.answer((status, "application/json", [json.dumps(body).encode()]))
            self.assertEqual((code, len(events), events[0]["code"]), (2, 1, kind))
            self.assertIn("because", events[0]["message"])

    def test_strange_tool_calls(self):
        def call(name, partial):
            return stream(START, {"type": "content_block_start", "index": 0, "content_block":
                                  {"type": "tool_use", "id": "t1", "name": name, "input": {}}},
                          {"type": "content_block_delta", "index": 0, "delta":
                           {"type": "input_json_delta", "partial_json": partial}},
                          {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}, {"type": "message_stop"})
        code, events, err = self.answer(call("shell", '{"command": "ec'), call("other", "{}"), call("shell", '{"command": 7}'),
                                        stream(START, *TEXT, *STOP))
        self.assertEqual((code, [event["type"] for event in events]), (0, ["tool_result"] * 3 + ["text", "result"]), err)
        results = [message["content"][0] for message in self.server.requests[-1]["messages"] if message["role"] == "user"][1:]
        self.assertEqual([result["is_error"] for result in results if isinstance(result, dict)], [True] * 3)

    def test_stopped_early(self):
        code, events, _ = self.answer(stream(START, *TEXT, {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
                                             {"type": "message_stop"}))
        self.assertEqual((code, events[-1]["type"], events[-1]["code"]), (2, "error", "max_tokens"))

    def test_huge_event(self):
        code, events, _ = self.answer((200, "text/event-stream", [b"data: "] + [b"x" * 1000000] * 18))
        self.assertEqual((code, events[-1]["code"]), (2, "protocol"))


if __name__ == "__main__":
    unittest.main()
