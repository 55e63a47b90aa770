"""What the end-to-end tests share: running orch-demo in a state folder of its own, and looking from outside at what it left."""
import ctypes
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


def cgroup_root():
    """The mount point of cgroup v2, or None."""
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[fields.index("-") + 1] == "cgroup2":
            return pathlib.Path(fields[4])
    return None


def can_pen():
    root = cgroup_root()
    return root is not None and os.access(root, os.W_OK) and os.geteuid() == 0


class Pen:
    """A cgroup that a program and all it starts live in: what is left of it is seen from outside, and of nobody else."""

    def __init__(self, name):
        self.path = cgroup_root() / f"test-{os.getpid()}-{name}"
        self.path.mkdir()

    def enter(self):
        (self.path / "cgroup.procs").write_text("0")

    def members(self):
        pids = set()
        # Groups come and go while they are walked: os.walk() passes over what is gone.
        for folder, _, _ in os.walk(self.path):
            try:
                pids.update(pathlib.Path(folder, "cgroup.procs").read_text().split())
            except OSError:
                pass
        return pids

    def empty_within(self, seconds, but=frozenset()):
        end = time.monotonic() + seconds
        while self.members() - but:
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def groups(self):
        return [name for _, names, _ in os.walk(self.path) for name in names if name.startswith("orch-")]

    def remove(self):
        if self.members():
            (self.path / "cgroup.kill").write_text("1")
            self.empty_within(10)
        for folder, _, _ in os.walk(self.path, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                pass


class Witness:
    """What this test started and did not end. As root the test lives in a pen; an ordinary user's test is the reaper of its orphans
    (PR_SET_CHILD_SUBREAPER), so that whatever it started is below it in the process tree."""

    def __init__(self):
        self.pen = Pen("e2e") if can_pen() else None
        if self.pen:
            self.home = next(line.split(":", 2)[2].strip() for line in open("/proc/self/cgroup") if line.startswith("0::"))
            self.pen.enter()
        else:
            ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)

    def left(self, patience=5.0):
        """What is still there after `patience` seconds at most."""
        if not self.pen:
            end = time.monotonic() + patience
            while descendants() and time.monotonic() < end:
                time.sleep(0.05)
            return sorted(descendants())
        me = frozenset([str(os.getpid())])
        self.pen.empty_within(patience, me)
        left = sorted(self.pen.members() - me) + self.pen.groups()
        (cgroup_root() / self.home.lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))
        self.pen.remove()
        self.pen = None
        return left


def descendants():
    """Living processes below this one."""
    parents = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            fields = pathlib.Path(path).read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if fields[0] not in "ZX":
            parents[path.split("/")[2]] = fields[1]
    me, found = str(os.getpid()), set()
    for pid in parents:
        above = parents[pid]
        while above in parents and above != me:
            above = parents[above]
        if above == me:
            found.add(pid)
    return found


def nothing_left(witness):
    left = witness.left()
    expect(left == [], f"nothing is left on the machine: {left}")


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
