# SPDX-License-Identifier: Apache-2.0
"""
executors.py mini|claude|codex: the executor does real tool calls in a sandbox, through the broker, against synth-provider; as the
calling user and, where that is root, as uid 1000. The provider refuses whoever does not have the key that only the broker knows.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from provider import BUILD, SOURCE, Provider

KEY = "sk-only-the-broker-knows-this"
PACKET = "orch-packet/1 run=r1 role=executor stage=execute task=%s attempt=1\nDo what the task says.\n"
IDENTITIES = (0, 1000) if os.geteuid() == 0 else (os.geteuid(),)
CLAUDE, CODEX, MINI = "claude", "codex", "mini"
STEPS = r"""pwd > out/where; id -u > out/uid; env > out/env; printf '%s\n' "a \"b\" \$c" 'ä' > tree/first.txt
cat > tree/second.txt <<'END'
$HOME `date` \
END
#---
cat tree/first.txt tree/second.txt > out/both; curl -s -m 3 http://127.0.0.1:8080/notify.send -d x > out/refused; echo seen
"""

kind, program, sources = None, None, {}


def program_of(name):
    """Host path, or exits: 77 without the CLI; under CI that is a failure."""
    if name == MINI:
        return os.path.join(BUILD, "lib/executor/mini/orch-mini")
    result = subprocess.run([os.path.join(SOURCE, "tests/e2e/fetch-clis"), name], capture_output=True, text=True,
                            stdin=subprocess.DEVNULL, timeout=1000)
    if result.returncode == 0:
        return result.stdout.strip().split("=", 1)[1]
    print(result.stderr.strip() or "skipped: no CLI")
    if os.environ.get("CI") == "true":
        print("CI=true: a skipped test of a real CLI is a failure")
        sys.exit(1)
    sys.exit(77)


def place(source, target):
    """A CLI is hundreds of megabytes: a second name for it, where that can be."""
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        shutil.copyfile(source, target)
    os.chmod(target, 0o755)


class Executors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.area = tempfile.mkdtemp(prefix="orch-executors-")
        cls.addClassCleanup(shutil.rmtree, cls.area)
        os.chmod(cls.area, 0o755)
        cls.bin = os.path.join(cls.area, "bin")
        os.mkdir(cls.bin, 0o755)
        for name, path in (("driver", "tests/e2e/executors-driver"), ("orch-reaper", "lib/helper/orch-reaper"),
                           ("orch-mini", "lib/executor/mini/orch-mini")):
            shutil.copy(os.path.join(BUILD, path), os.path.join(cls.bin, name))
            os.chmod(os.path.join(cls.bin, name), 0o755)
        # As it lies in a folder of its own, with what it needs beside it.
        cls.cli = "-"
        if kind != MINI:
            os.mkdir(os.path.join(cls.area, "cli"), 0o755)
            for name in os.listdir(os.path.dirname(program)):
                place(os.path.join(os.path.dirname(program), name), os.path.join(cls.area, "cli", name))
            cls.cli = os.path.join(cls.area, "cli", os.path.basename(program))
        cls.scenario = os.path.join(cls.area, "scenario")
        os.mkdir(cls.scenario)
        for name, text in (("scenario.json", '{"name":"x","idea":"y","extends":"%s"}' %
                            os.path.join(SOURCE, "examples/scenarios/shelf")), ("executor-execute-T9.sh", STEPS)):
            with open(os.path.join(cls.scenario, name), "w", encoding="utf-8") as file:
                file.write(text)

    def folder(self, uid):
        folder = tempfile.mkdtemp(prefix="run-", dir=self.area)
        for name in ("work", "work/tree", "work/out"):
            os.mkdir(os.path.join(folder, name))
        for name in ("", "work", "work/tree", "work/out"):
            os.chown(os.path.join(folder, name), uid, uid)
        return folder

    def drive(self, uid, url, task="T9", api="anthropic", *more):
        """(folder, events, end, seconds)"""
        folder = self.folder(uid)
        command = [os.path.join(self.bin, "driver"), kind, self.cli, api, url, KEY, folder,
                   os.path.join(self.bin, "orch-reaper"), PACKET % task, *more]
        if uid != os.geteuid():
            command = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"] + command
        started = time.monotonic()
        result = subprocess.run(command, env={"PATH": "/usr/bin:/bin", "HOME": folder}, stdin=subprocess.DEVNULL,
                                capture_output=True, timeout=200)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        lines = [json.loads(line) for line in result.stdout.decode().splitlines()]
        return folder, lines[:-1], lines[-1], time.monotonic() - started

    def provider(self, *options):
        provider = Provider(self.scenario, "--refuse-auth", KEY, *options)
        self.addCleanup(provider.close)
        return provider

    def read(self, folder, name):
        with open(os.path.join(folder, "work", name), encoding="utf-8") as file:
            return file.read()

    def asked(self, provider):
        """Requests that a packet went with; CLIs ask other things too."""
        return [line for line in provider.log() if line["run"] is not None]

    def finished(self, end, message=""):
        self.assertEqual((end["end"], end["status"]), (1, 0), "%s %s" % (end, message))
        self.assertEqual(end["verdict"], "DEAD")

    def works(self, uid, api):
        provider = self.provider()
        folder, events, end, seconds = self.drive(uid, provider.url, "T9", api)
        self.finished(end, events)
        print("%s (%s, uid %d, in the sandbox %d): %.1f s" % (kind, api, uid, end["uid"], seconds), flush=True)
        self.assertEqual(self.read(folder, "out/where"), "/work\n")
        self.assertEqual(self.read(folder, "out/both"), 'a "b" $c\nä\n$HOME `date` \\\n')
        self.assertIn("no_grant", self.read(folder, "out/refused"))
        self.assertNotEqual(self.read(folder, "out/uid"), "0\n")
        self.assertNotIn(KEY, self.read(folder, "out/env"))
        self.assertNotIn(KEY, json.dumps(events))
        asked = self.asked(provider)
        self.assertEqual([line["step"] for line in asked], [1, 2, 3])
        self.assertEqual({line["auth_ok"] for line in asked}, {True})
        self.assertEqual({line["api"] for line in asked}, {api})
        tools = [event["text"] for event in events if event["event"] == "tool"]
        self.assertEqual(len(tools), 2, events)
        self.assertIn("cat tree/first.txt", tools[1])
        self.assertIn("result", [event["event"] for event in events])
        self.assertGreaterEqual(end["requests"], 3)
        self.assertGreater(end["claimed"], 0)

    def test_real_tool_calls(self):
        apis = {MINI: ("anthropic", "openai"), CLAUDE: ("anthropic",), CODEX: ("openai",)}[kind]
        for uid in IDENTITIES:
            for api in apis:
                with self.subTest(uid=uid, api=api):
                    self.works(uid, api)

    def test_a_task_of_the_scenario(self):
        """Long commands, with here-documents and quotes, come through unchanged."""
        provider = self.provider()
        folder, events, end, _ = self.drive(IDENTITIES[-1], provider.url, "T1")
        self.finished(end, events)
        expected = os.path.join(self.area, "expected")
        os.makedirs(os.path.join(expected, "tree"))
        with open(os.path.join(SOURCE, "examples/scenarios/shelf/executor-execute-T1.sh"), encoding="utf-8") as file:
            for step in file.read().split("#---\n"):
                subprocess.run(["/bin/sh", "-c", step], cwd=expected, check=True, capture_output=True, timeout=60)
        result = subprocess.run(["diff", "-r", expected + "/tree", os.path.join(folder, "work/tree")],
                                capture_output=True, text=True, timeout=60)
        self.assertEqual(result.stdout + result.stderr, "")

    def test_no_grant_is_told_soon(self):
        provider = self.provider()
        _, events, end, seconds = self.drive(IDENTITIES[0], provider.url, "T9", "anthropic", "no-grant")
        self.assertEqual(self.asked(provider), [])
        self.assertEqual((end["end"], end["verdict"]), (1, "DEAD"), "%s %s" % (end, events))
        self.assertNotEqual(end["status"], 0)
        self.assertLess(seconds, 10 if kind == MINI else 100)
        print("%s without a grant: %.1f s: %s" % (kind, seconds, end["message"][:200]), flush=True)

    def test_nobody_listens(self):
        _, events, end, seconds = self.drive(IDENTITIES[0], "http://127.0.0.1:1")
        self.assertEqual((end["end"], end["verdict"]), (1, "DEAD"), "%s %s" % (end, events))
        self.assertNotEqual(end["status"], 0)
        self.assertLess(seconds, 20 if kind == MINI else 100)
        print("%s without a provider: %.1f s: %s" % (kind, seconds, end["message"][:200]), flush=True)

    def test_a_busy_provider(self):
        provider = self.provider("--fail-first", "1:529" if kind != CODEX else "1:503")
        folder, events, end, _ = self.drive(IDENTITIES[0], provider.url)
        self.finished(end, events)
        self.assertTrue(os.path.exists(os.path.join(folder, "work/out/both")))
        statuses = [line["status"] for line in self.asked(provider)]
        self.assertEqual(statuses.count(200), 3)


if __name__ == "__main__":
    kind = sys.argv.pop(1)
    program = program_of(kind)
    unittest.main()
