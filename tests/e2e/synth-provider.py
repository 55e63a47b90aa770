# SPDX-License-Identifier: Apache-2.0
"""synth-provider: both APIs, streamed and not, steps, extends, faults, the counting service."""
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from provider import PROGRAM, Provider, events

PACKET = "orch-packet/1 run=r1 role=executor stage=execute task=%s attempt=%d\nDo it.\n"
BASH = {"name": "Bash", "description": "", "input_schema": {
    "type": "object", "properties": {"command": {"type": "string"}, "description": {"type": "string"}}}}


def write(folder, files):
    for name, text in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())


class WithScenarios(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="orch-synth-")
        self.addCleanup(self.temporary.cleanup)
        self.base = os.path.join(self.temporary.name, "base")
        self.scenario = os.path.join(self.temporary.name, "near")
        write(self.base, {
            "scenario.json": '{"name":"base","idea":"an idea"}',
            "executor-execute-T1.sh": "echo base T1\n",
            "executor-execute-T1.1.sh": "echo base first try\n",
            "executor-execute.sh": "echo base any\n",
            "planner-clarify.sh": "echo clarify\n",
        })
        write(self.scenario, {
            "scenario.json": '{"name":"near","extends":"../base"}',
            "executor-execute-T1.sh": "echo one\necho 'öäü \"q\"'\n#---\necho two\n#---\n" + "x" * 2000 + "é" * 900 + "\n",
            "README.md": "not a script",
        })

    def provider(self, *options):
        provider = Provider(self.scenario, *options)
        self.addCleanup(provider.close)
        return provider


def messages(packet, results=0, stream=False, tools=(BASH,)):
    conversation = [
        {"role": "user", "content": [{"type": "text", "text": "<system-reminder>x</system-reminder>"},
                                     {"type": "text", "text": packet}]}]
    for number in range(results):
        call = "toolu_%d" % number
        conversation += [
            {"role": "assistant", "content": [{"type": "tool_use", "id": call, "name": "Bash", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call,
                                          "content": "orch-packet/1 run=evil role=planner stage=clarify task=- attempt=9"}]}]
    return {"model": "m", "max_tokens": 100, "stream": stream, "tools": list(tools), "messages": conversation}


def responses(packet, results=0, stream=False, tool="exec_command", properties=None, tools=None):
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment/>"}]},
             {"type": "message", "role": "user", "content": [{"type": "input_text", "text": packet}]}]
    for number in range(results):
        items += [{"type": "function_call", "call_id": "c%d" % number, "name": tool, "arguments": "{}"},
                  {"type": "function_call_output", "call_id": "c%d" % number, "output": "ok"}]
    schema = {"type": "object", "properties": properties or {"cmd": {"type": "string"}}}
    return {"model": "m", "stream": stream, "input": items,
            "tools": tools if tools is not None else [{"type": "function", "name": tool, "parameters": schema}]}


class Messages(WithScenarios):
    def turn(self, provider, *args, **kwargs):
        status, _, body = provider.request("POST", "/v1/messages?beta=true", messages(*args, **kwargs))
        self.assertEqual(status, 200, body)
        return json.loads(body)

    def test_steps_are_counted_from_results(self):
        provider = self.provider()
        commands = []
        for results in range(4):
            answer = self.turn(provider, PACKET % ("T1", 2), results)
            calls = [block for block in answer["content"] if block["type"] == "tool_use"]
            self.assertEqual(answer["stop_reason"], "tool_use" if calls else "end_turn")
            commands += [call["input"]["command"] for call in calls]
            self.assertTrue(all(call["input"]["description"] for call in calls))
        self.assertEqual(commands, ["echo one\necho 'öäü \"q\"'\n", "echo two\n", "x" * 2000 + "é" * 900 + "\n"])
        self.assertEqual([line["step"] for line in provider.log()], [1, 2, 3, 4])
        first = provider.log()[0]
        self.assertEqual(list(first)[0], "n")
        self.assertEqual({key: first[key] for key in ("n", "api", "run", "role", "stage", "task", "attempt")},
                         {"n": 1, "api": "anthropic", "run": "r1", "role": "executor", "stage": "execute",
                          "task": "T1", "attempt": 2})

    def test_stream_says_the_same(self):
        provider = self.provider()
        for results in (0, 2, 3):
            request = messages(PACKET % ("T1", 2), results, stream=True)
            status, headers, body = provider.request("POST", "/v1/messages", request)
            self.assertEqual((status, headers["Content-Type"]), (200, "text/event-stream"))
            found = events(body)
            self.assertTrue(all(name == data["type"] for name, data in found))
            names = [name for name, _ in found if name != "content_block_delta"]
            block = ["content_block_start", "content_block_stop"]
            self.assertEqual(names, ["message_start", "ping"] + block * (1 if results == 3 else 2) +
                             ["message_delta", "message_stop"])
            self.assertEqual(found[0][1]["message"]["usage"]["input_tokens"],
                             len(json.dumps(request)) // 4)
            joined = "".join(data["delta"].get("partial_json", "") for name, data in found
                             if name == "content_block_delta")
            whole = self.turn(provider, PACKET % ("T1", 2), results)
            inputs = [item["input"] for item in whole["content"] if item["type"] == "tool_use"]
            self.assertEqual([json.loads(joined)] if joined else [], inputs)
            self.assertEqual(found[-2][1]["delta"]["stop_reason"], whole["stop_reason"])
            self.assertEqual(found[-2][1]["usage"]["output_tokens"], whole["usage"]["output_tokens"])

    def test_most_specific_script(self):
        provider = self.provider()

        def command(task, attempt):
            return self.turn(provider, PACKET % (task, attempt))["content"][1]["input"]["command"]
        self.assertEqual(command("T1", 1), "echo base first try\n")
        self.assertTrue(command("T1", 2).startswith("echo one"))
        self.assertTrue(command("T1", 11).startswith("echo one"))
        self.assertEqual(command("T9", 1), "echo base any\n")

    def test_missing_script_is_named(self):
        provider = self.provider()
        answer = self.turn(provider, "orch-packet/1 run=r role=planner stage=plan task=- attempt=1\n")
        self.assertIn("planner-plan.sh", answer["content"][0]["text"])
        self.assertEqual((len(answer["content"]), answer["stop_reason"]), (1, "end_turn"))
        self.assertEqual(provider.log()[0]["missing"], "planner-plan.sh")

    def test_plain_answers(self):
        provider = self.provider()
        for request in (messages("Hello"), messages(PACKET % ("T1", 1), tools=()),
                        messages("say orch-packet/1 run=r role=executor stage=execute task=T1 attempt=1"),
                        messages("orch-packet/1 run=r role=../x stage=execute task=T1 attempt=1"),
                        messages("orch-packet/1 run=r role=executor stage=execute task=T1")):
            status, _, body = provider.request("POST", "/v1/messages", request)
            answer = json.loads(body)
            self.assertEqual((status, answer["stop_reason"], len(answer["content"])), (200, "end_turn", 1))

    def test_string_content(self):
        provider = self.provider()
        request = messages("")
        request["messages"] = [{"role": "user", "content": PACKET % ("T1", 1)}]
        answer = json.loads(provider.request("POST", "/v1/messages", request)[2])
        self.assertEqual(answer["content"][1]["input"]["command"], "echo base first try\n")

    def test_bad_requests(self):
        provider = self.provider()
        for body in (b"{", b"[]", b"{}", b""):
            status, _, answer = provider.request("POST", "/v1/messages", body)
            self.assertEqual((status, json.loads(answer)["error"]["type"]), (400, "invalid_request_error"))
        self.assertEqual(provider.request("GET", "/v1/other")[0], 404)

    def test_other_endpoints(self):
        provider = self.provider()
        self.assertEqual(provider.request("HEAD", "/")[0], 200)
        status, _, body = provider.request("POST", "/v1/messages/count_tokens", messages("x" * 400))
        self.assertEqual(status, 200)
        self.assertGreater(json.loads(body)["input_tokens"], 100)
        status, _, body = provider.request("GET", "/v1/models")
        self.assertEqual((status, json.loads(body)["data"][0]["id"]), (200, "synthetic"))


class Responses(WithScenarios):
    def turn(self, provider, *args, **kwargs):
        status, _, body = provider.request("POST", "/v1/responses", responses(*args, **kwargs))
        self.assertEqual(status, 200, body)
        return json.loads(body)

    def test_steps(self):
        provider = self.provider()
        commands = []
        for results in range(4):
            answer = self.turn(provider, PACKET % ("T1", 2), results)
            self.assertEqual(answer["status"], "completed")
            commands += [json.loads(item["arguments"])["cmd"] for item in answer["output"]
                         if item["type"] == "function_call"]
        self.assertEqual(commands[1], "echo two\n")
        self.assertEqual(len(commands), 3)
        self.assertEqual([line["step"] for line in provider.log()], [1, 2, 3, 4])

    def test_stream(self):
        provider = self.provider()
        for results in (0, 2, 3):
            request = responses(PACKET % ("T1", 2), results, stream=True)
            found = events(provider.request("POST", "/v1/responses", request)[2])
            self.assertTrue(all(name == data["type"] for name, data in found))
            numbers = [data["sequence_number"] for _, data in found]
            self.assertEqual(numbers, list(range(len(numbers))))
            self.assertEqual([found[0][0], found[1][0], found[-1][0]],
                             ["response.created", "response.in_progress", "response.completed"])
            done = [data["item"] for name, data in found if name == "response.output_item.done"]
            last = found[-1][1]["response"]
            self.assertEqual(done, last["output"])
            self.assertEqual(last["usage"]["total_tokens"],
                             last["usage"]["input_tokens"] + last["usage"]["output_tokens"])
            deltas = "".join(data["delta"] for name, data in found
                             if name == "response.function_call_arguments.delta")
            calls = [item["arguments"] for item in done if item["type"] == "function_call"]
            self.assertEqual([deltas] if deltas else [], calls)
            self.assertEqual(len(calls), 0 if results == 3 else 1)

    def test_tools(self):
        provider = self.provider()
        packet = PACKET % ("T1", 1)

        def item(**kwargs):
            return self.turn(provider, packet, **kwargs)["output"][1]
        text, argv = {"command": {"type": "string"}}, {"command": {"type": "array"}}
        self.assertEqual(json.loads(item(tool="shell_command", properties=text)["arguments"]),
                         {"command": "echo base first try\n"})
        self.assertEqual(json.loads(item(tool="shell", properties=argv)["arguments"]),
                         {"command": ["/bin/sh", "-c", "echo base first try\n"]})
        self.assertEqual(json.loads(item(tool="shell", properties=text)["arguments"]),
                         {"command": "echo base first try\n"})
        with_yield = {"cmd": {"type": "string"}, "yield_time_ms": {"type": "number"}}
        self.assertGreaterEqual(json.loads(item(properties=with_yield)["arguments"])["yield_time_ms"], 10000)
        local = item(tools=[{"type": "local_shell"}])
        self.assertEqual((local["type"], local["action"]["command"][2]),
                         ("local_shell_call", "echo base first try\n"))
        self.assertEqual(len(self.turn(provider, packet, tools=[{"type": "custom", "name": "apply_patch"}])["output"]), 1)

    def test_code_mode_and_namespaces(self):
        """Codex offers its tools as an item of the input, in a namespace, and the shell inside of a program."""
        provider = self.provider()
        code = {"type": "custom", "name": "exec", "description": "Run JavaScript ... `await tools.exec_command(...)`"}
        function = {"type": "function", "name": "exec_command",
                    "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}}}

        def ask(tool, stream, results=0):
            request = responses(PACKET % ("T1", 1), results, stream=stream, tools=[])
            request["input"].insert(0, {"type": "additional_tools", "role": "developer", "tools": [
                {"type": "namespace", "name": "clock", "tools": [{"type": "function", "name": "sleep"}]},
                {"type": "namespace", "name": "functions", "tools": [tool]}]})
            return provider.request("POST", "/v1/responses", request)[2]
        call = json.loads(ask(code, False))["output"][1]
        self.assertEqual((call["type"], call["name"], call["namespace"]), ("custom_tool_call", "exec", "functions"))
        self.assertIn('tools.exec_command({"cmd":"echo base first try\\n"', call["input"])
        found = events(ask(code, True))
        deltas = "".join(data["delta"] for name, data in found if name == "response.custom_tool_call_input.delta")
        self.assertEqual(deltas, call["input"])
        call = json.loads(ask(function, False))["output"][1]
        self.assertEqual((call["type"], call["name"], call["namespace"]), ("function_call", "exec_command", "functions"))
        self.assertEqual(len(json.loads(ask(code, False, 1))["output"]), 1)


class Faults(WithScenarios):
    def test_fail_first(self):
        for path, request, status, kind in (
                ("/v1/messages", messages("x"), 429, "rate_limit_error"),
                ("/v1/messages", messages("x"), 529, "overloaded_error"),
                ("/v1/messages", messages("x"), 500, "api_error"),
                ("/v1/responses", responses("x"), 429, "usage_limit_reached"),
                ("/v1/responses", responses("x"), 503, "server_is_overloaded")):
            with Provider(self.scenario, "--fail-first", "2:%d" % status, "--retry-after", "7") as provider:
                for _ in range(2):
                    got, headers, body = provider.request("POST", path, request)
                    self.assertEqual((got, json.loads(body)["error"]["type"]), (status, kind))
                    self.assertEqual(headers["Retry-After"], None if status == 500 else "7")
                    if status == 429:
                        self.assertTrue(headers["anthropic-ratelimit-requests-reset"] or
                                        headers["x-codex-primary-reset-at"])
                self.assertEqual(provider.request("POST", path, request)[0], 200)
                self.assertEqual([line["status"] for line in provider.log()], [status, status, 200])

    def test_refuse_auth(self):
        provider = self.provider("--refuse-auth", "right")
        for path, request in (("/v1/messages", messages("x")), ("/v1/responses", responses("x"))):
            for headers, status in (({}, 401), ({"x-api-key": "wrong"}, 401), ({"x-api-key": "right"}, 200),
                                    ({"Authorization": "Bearer right"}, 200),
                                    ({"Authorization": "right"}, 401)):
                self.assertEqual(provider.request("POST", path, request, headers)[0], status)
                self.assertEqual(provider.log()[-1]["auth_ok"], status == 200)
        self.assertNotIn("right", json.dumps(provider.log()))

    def test_delay_and_parallel(self):
        provider = self.provider("--delay-ms", "400")
        started = time.monotonic()
        threads = [threading.Thread(target=provider.request, args=("POST", "/v1/messages", messages("x")))
                   for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertGreaterEqual(time.monotonic() - started, 0.4)
        self.assertLess(time.monotonic() - started, 1.5)
        self.assertEqual(sorted(line["n"] for line in provider.log()), [1, 2, 3, 4])

    def test_logged_before_answered(self):
        provider = self.provider("--delay-ms", "60000")
        thread = threading.Thread(target=self.swallow, args=(provider,))
        thread.start()
        deadline = time.monotonic() + 10
        while not provider.log() and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(len(provider.log()), 1)
        provider.stop(signal.SIGKILL)
        thread.join(10)
        self.assertFalse(thread.is_alive())

    @staticmethod
    def swallow(provider):
        try:
            provider.request("POST", "/v1/messages", messages("x"))
        except OSError:
            pass


class Outside(WithScenarios):
    def test_counts_every_arrival(self):
        provider = self.provider()
        self.assertEqual(provider.request("GET", "/outside/announce/r1%2Fannounce")[0], 404)
        self.assertEqual(provider.request("POST", "/outside/announce", {"text": "x"})[0], 400)
        for _ in range(2):
            status, _, body = provider.request("POST", "/outside/announce", {"text": "x"},
                                               {"Idempotency-Key": "r1/announce"})
            self.assertEqual(status, 200)
            self.assertTrue(json.loads(body)["id"])
        self.assertEqual([line["key"] for line in provider.outside()], ["r1/announce"] * 2)
        self.assertEqual(provider.request("GET", "/outside/announce/r1%2Fannounce")[0], 200)
        self.assertEqual(provider.request("GET", "/outside/announce/other")[0], 404)
        self.assertEqual(provider.log(), [])

        provider.stop(signal.SIGKILL)
        provider.start()
        self.assertEqual(provider.request("GET", "/outside/announce/r1%2Fannounce")[0], 200)
        provider.request("POST", "/outside/announce", {}, {"Idempotency-Key": "k"})
        self.assertEqual(provider.outside()[-1]["n"], 3)

    def test_delay(self):
        provider = self.provider("--outside-delay-ms", "300")
        started = time.monotonic()
        provider.request("POST", "/outside/announce", {}, {"Idempotency-Key": "k"})
        self.assertGreaterEqual(time.monotonic() - started, 0.3)


class Malformed(WithScenarios):
    def run_program(self, *arguments):
        return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=20)

    def refused(self, *parts):
        for mode in (["--check"], []):
            result = self.run_program("--scenario", self.scenario, *mode)
            self.assertEqual(result.returncode, 2, result)
            self.assertEqual(result.stdout, "")
            for part in parts:
                self.assertIn(part, result.stderr)

    def test_good_one_is_listed(self):
        result = self.run_program("--scenario", self.scenario, "--check")
        self.assertEqual(result.returncode, 0, result)
        self.assertTrue(result.stdout.startswith("near: an idea\n"))
        self.assertRegex(result.stdout, r"executor-execute-T1\.sh +3 steps")
        self.assertRegex(result.stdout, r"planner-clarify\.sh +1 steps")

    def test_no_scenario_json(self):
        os.unlink(os.path.join(self.scenario, "scenario.json"))
        self.refused("scenario.json", "No such file")

    def test_no_folder(self):
        self.scenario += "-missing"
        self.refused("near-missing/scenario.json", "No such file")

    def test_bad_json(self):
        write(self.scenario, {"scenario.json": '{"name":"x",\n"idea":\n}'})
        self.refused("scenario.json:3:")

    def test_wrong_members(self):
        for text in ('[]', '{"idea":"x"}', '{"name":"x"}', '{"name":5,"idea":"x"}',
                     '{"name":"x","idea":"y","extends":7}', '{"name":"","idea":"y"}'):
            write(self.scenario, {"scenario.json": text})
            self.refused("scenario.json:1:")

    def test_circle(self):
        write(self.scenario, {"scenario.json": '{"name":"x","idea":"y","extends":"../near"}'})
        self.refused("circle")

    def test_extends_missing(self):
        write(self.scenario, {"scenario.json": '{"name":"x","idea":"y","extends":"../nobody"}'})
        self.refused("../nobody/scenario.json")

    def test_no_steps(self):
        write(self.scenario, {"executor-execute-T2.sh": " \n"})
        self.refused("executor-execute-T2.sh:1:", "no steps")
        write(self.scenario, {"executor-execute-T2.sh": "echo\n#---\n\n#---\necho\n"})
        self.refused("executor-execute-T2.sh:3:", "step 2 is empty")
        write(self.scenario, {"executor-execute-T2.sh": "echo\n#---\n"})
        self.refused("executor-execute-T2.sh:3:", "step 2 is empty")

    def test_no_scripts(self):
        os.unlink(os.path.join(self.scenario, "executor-execute-T1.sh"))
        write(self.scenario, {"scenario.json": '{"name":"x","idea":"y"}'})
        self.refused("no steps")

    def test_bytes(self):
        write(self.scenario, {"executor-execute-T2.sh": b"echo \xff\n"})
        self.refused("executor-execute-T2.sh:1:", "UTF-8")
        write(self.scenario, {"executor-execute-T2.sh": b"echo \0\n"})
        self.refused("executor-execute-T2.sh", "NUL")

    def test_names(self):
        for name in ("executor-T2.sh", "cook-execute.sh", "executor-execute-.sh", "executor-execute-T1.x.sh",
                     "notes.sh"):
            write(self.scenario, {name: "echo\n"})
            self.refused(name, "ROLE-STAGE")
            os.unlink(os.path.join(self.scenario, name))

    def test_arguments(self):
        for arguments in ([], ["--scenario"], ["--port", "x", "--scenario", self.scenario],
                          ["--scenario", self.scenario, "--fail-first", "3"],
                          ["--scenario", self.scenario, "--fail-first", "3:200"],
                          ["--scenario", self.scenario, "extra"], ["--nonsense"]):
            result = self.run_program(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertTrue(result.stderr)

    def test_unusable_files_and_port(self):
        with Provider(self.scenario) as provider:
            result = self.run_program("--scenario", self.scenario, "--port", str(provider.port))
            self.assertEqual(result.returncode, 1)
            self.assertIn("in use", result.stderr)
        for option in ("--log", "--outside-log", "--port-file"):
            result = self.run_program("--scenario", self.scenario, option, "/nonexistent/file")
            self.assertEqual(result.returncode, 1)
            self.assertIn("/nonexistent/file", result.stderr)

    def test_port_file(self):
        path = os.path.join(self.temporary.name, "port")
        with Provider(self.scenario, "--port-file", path) as provider:
            with open(path) as file:
                self.assertEqual(int(file.read()), provider.port)
            self.assertEqual(provider.stop(), 0)


if __name__ == "__main__":
    unittest.main()
