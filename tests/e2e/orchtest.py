"""What the end-to-end tests share: running orch-demo in a state folder of its own, and looking from outside at what it left."""
import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(os.environ["ORCH_SOURCE_ROOT"])
BUILD = pathlib.Path(os.environ["ORCH_BUILD_ROOT"])
DEMO = BUILD / "examples/orch-demo/orch-demo"
SYNTH = BUILD / "examples/synth-provider/synth-provider"
SCENARIOS = ROOT / "examples/scenarios"

failures = []


def expect(condition, text):
    print(("ok      " if condition else "FAILED  ") + text, flush=True)
    if not condition:
        failures.append(text)
    return condition


def finish():
    print(f"{len(failures)} expectation(s) failed" if failures else "all expectations met")
    sys.exit(1 if failures else 0)


class Area:
    """A temporary folder with a HOME and an XDG_STATE_HOME; removed at the end."""

    def __init__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="orch-e2e-"))
        self.path.chmod(0o755)
        self.env = {"PATH": "/usr/bin:/bin", "HOME": str(self.path), "LANG": "C.UTF-8",
                    "XDG_STATE_HOME": str(self.path / "xdg")}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)

    def demo(self, *args, timeout=300, env=None, user=None, **more):
        command = [DEMO, *map(str, args)]
        if user is not None:
            command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"] + command
        return subprocess.run(command, env={**self.env, **(env or {})}, stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, timeout=timeout, **more)

    def run(self, *args, state="state", **more):
        """orch-demo run --json; gives (process, events)."""
        done = self.demo("run", "--json", "--state", self.path / state, *args, **more)
        return done, events_of(done.stdout)


def events_of(text):
    events = []
    for line in text.splitlines():
        if line.startswith("{"):
            events.append(json.loads(line))
    return events


def end_of(events):
    ends = [event for event in events if event.get("event") == "end"]
    return ends[-1] if ends else {}


def report_of(state):
    return json.loads((pathlib.Path(state) / "report/report.json").read_text())


def pid_namespaces():
    """Inodes of the PID namespaces that have a process."""
    found = {}
    for link in glob.glob("/proc/[0-9]*/ns/pid"):
        try:
            found.setdefault(os.readlink(link), []).append(int(link.split("/")[2]))
        except OSError:
            pass
    return found


def our_programs():
    names = ("orch-reaper", "orch-demo", "synth-provider", "orch-mini")
    found = []
    for path in glob.glob("/proc/[0-9]*/comm"):
        try:
            if pathlib.Path(path).read_text().strip() in names:
                found.append(path.split("/")[2])
        except OSError:
            pass
    return set(found)


def cgroups():
    return set(glob.glob("/sys/fs/cgroup/**/orch-*", recursive=True))


class Witness:
    """What is on the machine before and after, seen from outside."""

    def __init__(self):
        self.namespaces, self.programs, self.groups = set(pid_namespaces()), our_programs(), cgroups()

    def left(self, patience=5.0):
        """What is new and still there after `patience` seconds at most."""
        end = time.monotonic() + patience
        while True:
            new = (set(pid_namespaces()) - self.namespaces, our_programs() - self.programs,
                   cgroups() - self.groups)
            if not any(new) or time.monotonic() > end:
                return [item for part in new for item in part]
            time.sleep(0.05)


def ndjson(path):
    path = pathlib.Path(path)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Synth:
    """A synthetic provider of our own, outside of any run."""

    def __init__(self, area, scenario, *args, name="synth"):
        self.log, self.outside = area.path / f"{name}.ndjson", area.path / f"{name}-outside.ndjson"
        self.process = subprocess.Popen(
            [SYNTH, "--scenario", SCENARIOS / scenario, "--port", "0", "--log", self.log, "--outside-log", self.outside,
             *map(str, args)], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env={"PATH": "/usr/bin:/bin"})
        self.url = self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def git(repo, *args):
    """Git on a delivered repository that this test made: system and global configuration are kept out."""
    return subprocess.run(["git", "-C", str(repo), "-c", "safe.directory=*", *args], text=True, capture_output=True,
                          env={"PATH": "/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent"}, timeout=60)
