"""Whether two runs of one scenario, each in a state folder of its own, were the same but for what no two runs share.

    same_report.difference(ONE, OTHER)          report.json, the journal's actions in their order, the delivered tree
    same_report.event_difference(EVENTS, EVENTS)

Both give lines that name each difference; an empty list: none. The runs must do one task at a time (--jobs 1): with
two, which of two independent tasks is merged first is a matter of timing. Also with one, a task is verified while the
next is worked on: so what happened is compared in its order for each task and for the run itself, not among tasks. What
is left out or replaced is listed below, each with its reason; everything else has to be equal.
"""
import json
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(os.environ["ORCH_SOURCE_ROOT"])
DEMO = pathlib.Path(os.environ["ORCH_BUILD_ROOT"]) / "examples/orch-demo/orch-demo"

# Members that are left out, wherever they are.
LEFT_OUT = {
    "time_ms": "a time",
    "started_at_ms": "a time",
    "ended_at_ms": "a time",
    "seconds": "how long an attempt took",
    "ms": "how long a check took",
}

# Parts of texts that are replaced, in this order.
REPLACED = [
    (r"\br[0-9a-f]{12}\b", "RUN", "the run's random name"),
    (r"\borch-[0-9a-f]{16}\b", "SCOPE", "a scope's random name"),
    (r"\bg([0-9]+)\.[0-9a-f]{8}/[0-9]+", r"g\1.N/N",
     "the broker's random part of an idempotency key, and its count over all tasks"),
    (r"PID namespace [0-9]+", "PID namespace N", "an inode number that the kernel gives"),
    (r"requested  [0-9TZ:-]+", "requested  TIME", "a time"),
    (r"init       pid [0-9]+, started at tick [0-9]+,( pidfs inode [0-9]+,)? boot", r"init       pid N, started at tick N, boot",
     "who init was"),
    (r"in flight [0-9]+ settled, of [0-9]+ the", "in flight N settled, of N the",
     "what an agent still asks when its sandbox is stopped"),
    (r"[0-9.]+ ms\b", "N ms", "a duration"),
    (r"[0-9]+ alive besides init", "N alive besides init", "what still lives when a scope is stopped"),
    (r"ConnectionResetError: \[Errno 104\] Connection reset by peer|BrokenPipeError: \[Errno 32\] Broken pipe"
     r"|RemoteDisconnected: Remote end closed connection without response", "CONNECTION CUT",
     "how a check without a product sees its connection end, before or after it has sent its request"),
]

# Names that a run draws at random: equal ones stay equal, different ones stay different.
RENAMED = {
    "id": (r"[0-9a-f]{16}", "an attempt's random name"),
    "commit": (r"[0-9a-f]{40}", "a commit's hash contains its time; the hash of the tree is compared as it is"),
    "check_uid": (r"[1-9][0-9]{5,}", "root gives each scope a uid of its own, at random"),
    "product_uid": (r"[1-9][0-9]{5,}", "root gives each scope a uid of its own, at random"),
}

# Events that are a front-end's own, and those whose order among the others is a matter of timing within one attempt:
# what the agent says comes through a pipe, what the broker does through a socket. These are compared attempt by
# attempt, each kind for itself.
OWN_EVENTS = {"setup"}
LOOSE_EVENTS = {"agent", "operation"}


class _Names:
    """Replaces the random names of one run by their number."""

    def __init__(self, state):
        self.state, self.known = str(state), {}

    def text(self, text):
        text = text.replace(self.state, "STATE")
        for pattern, replacement, _ in REPLACED:
            text = re.sub(pattern, replacement, text)
        return text

    def value(self, value, name=""):
        if isinstance(value, dict):
            return {key: self.value(member, key) for key, member in value.items() if key not in LEFT_OUT}
        if isinstance(value, list):
            return [self.value(member, name) for member in value]
        pattern = RENAMED[name][0] if name in RENAMED else None
        if pattern and not isinstance(value, bool) and re.fullmatch(pattern, str(value)):
            kind = name.rpartition("_")[2]
            number = self.known.setdefault((kind, value), sum(known == kind for known, _ in self.known) + 1)
            return f"{kind.upper()} {number}"
        return self.text(value) if isinstance(value, str) else value


def _compare(one, other, where, lines):
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(set(one) | set(other)):
            if key not in one or key not in other:
                lines.append(f"{where}.{key}: only in the {'other' if key not in one else 'first'}")
            else:
                _compare(one[key], other[key], f"{where}.{key}", lines)
    elif isinstance(one, list) and isinstance(other, list):
        for index, (mine, its) in enumerate(zip(one, other)):
            _compare(mine, its, f"{where}[{index}]", lines)
        if len(one) != len(other):
            longer = max(one, other, key=len)
            over = longer[min(len(one), len(other))]
            lines.append(f"{where}: {len(one)} and {len(other)} entries, the first that is over: {over!r}")
    elif one != other or type(one) is not type(other):
        lines.append(f"{where}: {one!r} and {other!r}")


def _by_task(rows):
    """Rows of tasks in the order of the tasks; those of the run stay where they are."""
    places = [index for index, row in enumerate(rows) if row.get("task", "-") != "-"]
    moved = dict(zip(places, sorted((rows[index] for index in places), key=lambda row: row["task"])))
    return [moved.get(index, row) for index, row in enumerate(rows)]


def _journal(state):
    """The actions in the order of their intent, as "KIND KEY STATE"."""
    listed = subprocess.run([DEMO, "journal", "list", "--json", "--state", state], stdin=subprocess.DEVNULL, text=True,
                            capture_output=True, timeout=60, env={"PATH": "/usr/bin:/bin", "HOME": str(state.parent)})
    if listed.returncode != 0 or not listed.stdout:
        raise RuntimeError(f"orch-demo journal list --state {state}: {listed.returncode} {listed.stderr.strip()}")
    actions = [json.loads(line) for line in listed.stdout.splitlines()]
    return [f"{action['kind']} {action['key']} {action['state']}" for action in actions]


def _tree(state):
    """What git, and not liborch, says that the delivered tree is."""
    shown = subprocess.run(["git", "-C", state / "product", "-c", "safe.directory=*", "rev-parse", "HEAD^{tree}"],
                           text=True, capture_output=True, timeout=60, check=True,
                           env={"PATH": "/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent"})
    return shown.stdout.strip()


def difference(one, other):
    """Of two state folders of runs that have ended."""
    sides = []
    for state in map(pathlib.Path, (one, other)):
        names = _Names(state)
        report = json.loads((state / "report/report.json").read_text())
        report.update((name, _by_task(report[name])) for name in ("attempts", "verifications", "reviews"))
        journal = {}
        for line in _journal(state):
            task = re.search(r"\bT[0-9]+\b", line)
            journal.setdefault(task[0] if task else "-", []).append(names.text(line))
        sides.append({"report": names.value(report), "journal": journal, "git tree": _tree(state)})
    lines = []
    _compare(*sides, "", lines)
    return [line.lstrip(".") for line in lines]


def _sequence(events, state):
    names = _Names(state)
    strict, loose = {}, {}
    # Names are numbered as they come: task by task, as they are compared.
    for event in sorted(events, key=lambda event: event.get("task", "-")):
        kind = event["event"]
        if kind in LOOSE_EVENTS:
            attempt = f"{kind} {event.get('stage')} {event.get('task')} {event.get('attempt')}"
            loose.setdefault(attempt, []).append(names.value({key: event[key] for key in event if key != "id"}))
        elif kind not in OWN_EVENTS:
            strict.setdefault(f"in order {event.get('task', '-')}", []).append(names.value(event))
    return {**strict, **loose}


def event_difference(one, other, one_state="", other_state=""):
    """Of the events of two runs, as dicts, in the order in which they came."""
    lines = []
    _compare(_sequence(one, one_state or "\0"), _sequence(other, other_state or "\0"), "events", lines)
    return lines
