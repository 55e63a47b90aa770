"""A coordinator in a process of its own that can be killed anywhere, and a judge that holds the model beside it.

Life     one process: it opens the journal, does what it is told step by step, and ends by close or by SIGKILL
Judge    gives each step to the life and to the model, and compares; after a death it looks at what was left
Effects  a service on the loopback that outlives the coordinators and counts what they did
"""
import contextlib
import ctypes
import json
import os
import pathlib
import pickle
import shutil
import signal
import socket
import stat
import struct
import sys
import tempfile
from dataclasses import replace
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Type

ROOT = pathlib.Path(os.environ["ORCH_SOURCE_ROOT"])
BUILD = pathlib.Path(os.environ["ORCH_BUILD_ROOT"])
SHIM = next((path for path in (BUILD / "tests/journal").glob("libjournal-shim.*") if path.is_file()), None)

sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bindings/python/src"))
if str(SHIM) not in os.environ.get("LD_PRELOAD", ""):
    if SHIM is None:
        sys.exit(f"the shim is not built: ninja -C {BUILD} tests/journal/libjournal-shim.so")
    os.environ["LD_PRELOAD"] = f"{os.environ.get('LD_PRELOAD', '')} {SHIM}".strip()
    os.execv(sys.executable, [sys.executable, "-B", *sys.argv])

import orch  # noqa: E402

import calls  # noqa: E402
from model import NEW, Clocks, Model, Permit, Refused, Row, Snapshot, Timer, adopted  # noqa: E402

orch.use_library(os.environ.get("JOURNAL_LIBRARY") or next(BUILD.glob("lib/liborch.[sd0]*")))


class Shim(ctypes.Structure):
    """As in shim.c."""
    _fields_ = [("realtime_ms", ctypes.c_int64), ("boottime_ms", ctypes.c_int64), ("seen", ctypes.c_uint64),
                ("at", ctypes.c_uint64), ("bad_syncs", ctypes.c_uint64), ("disk_full", ctypes.c_uint64),
                ("boot_id", ctypes.c_char * 64), ("folder", ctypes.c_char * 256), ("trace", ctypes.c_char * 65536)]


_preloaded = ctypes.CDLL(str(SHIM))
shim = Shim.in_dll(_preloaded, "journal_shim")


def point(name: str) -> None:
    """A point to be killed at, of the test's own."""
    _preloaded.journal_shim_point(name.encode())


class Mismatch(Exception):
    """The journal and the model do not agree."""


class Killed(Exception):
    """The coordinator was killed in this step."""


class Place:
    """The folders of one journal, its anchor and its backups."""

    FOLDERS = ("journal", "anchor", "backup")

    def __init__(self, anchored: bool = True) -> None:
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # no test here loses power
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="orch-model-", dir=base))
        for folder in self.FOLDERS:
            (self.folder / folder).mkdir()
        self.path = self.folder / "journal/j"
        self.anchor = self.folder / "anchor/a" if anchored else None

    def __enter__(self) -> "Place":
        return self

    def __exit__(self, *_raised: Any) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def backup(self, name: str) -> pathlib.Path:
        return self.folder / "backup" / name

    def files(self, anchor: bool = False) -> Dict[pathlib.Path, bytes]:
        """What a copy of the journal's folder holds. The reserve is space and nothing else."""
        folders = ["journal", "anchor"] if anchor else ["journal"]
        return {path: path.read_bytes() for folder in folders for path in sorted((self.folder / folder).iterdir())
                if path.suffix != ".reserve" and stat.S_ISREG(path.lstat().st_mode) and os.access(path, os.R_OK)}

    def put_back(self, files: Dict[pathlib.Path, bytes]) -> None:
        """The whole folder as it was in the copy."""
        for folder in {path.parent for path in files} | {self.path.parent}:
            for path in folder.iterdir():
                if path.is_dir() and not path.is_symlink():
                    path.rmdir()
                else:
                    path.unlink()
        for path, content in files.items():
            path.write_bytes(content)

    def open(self, **options: Any) -> orch.Journal:
        return orch.Journal(self.path, anchor_path=self.anchor, **options)


def row_of(action: orch.Action) -> Row:
    decision = calls.decision_of(action)
    return Row(action.kind, action.key, action.policy.name, action.request, action.result, action.state_name,
               action.attempt, action.generation, action.updated_at_ms, calls.created_at_ms(action),
               calls.pruned(action), tuple(decision) if decision else None)


def timer_row(timer: calls.TimerHandle) -> Timer:
    return Timer(*timer.tell())


def tell(journal: orch.Journal) -> Snapshot:
    """All that a journal tells."""
    rows, keys = [], {0: ""}

    def visit(action: orch.Action) -> None:
        with action:
            rows.append(row_of(action))
            keys[action.id] = action.key

    journal.each(visit)
    permits = [Permit(*permit[:5], keys.get(permit.action, f"({permit.action})"), permit.note)
               for permit in calls.permits(journal)]
    return Snapshot(journal.sequence, journal.generation, tuple(rows), tuple(permits),
                    tuple(Timer(*timer) for timer in calls.timers(journal)), calls.epoch(journal))


# --- the coordinator ---

class Coordinator:
    """Runs in the life. Each method is a step; what it returns goes to the judge."""

    def __init__(self, place: Place, limit: int, record_at: int) -> None:
        def on_record(sequence: int) -> None:
            if sequence == self.record_at:
                os.kill(os.getpid(), signal.SIGKILL)

        self.record_at = record_at
        self.place = place
        self.actions: Dict[str, orch.Action] = {}
        self.timers: Dict[str, calls.TimerHandle] = {}
        self.journal = place.open(payload_limit=limit, on_record=on_record)

    def hold(self, actor: str, action: Optional[orch.Action]) -> None:
        if action is not None:
            if actor in self.actions:
                self.actions[actor].close()
            self.actions[actor] = action

    def begin(self, actor: str, kind: str, key: str, policy: str, request: bytes, fingerprint: Optional[bytes],
              permit: str = "") -> str:
        outcome, action = calls.begin(self.journal, kind, key, request, policy, fingerprint, permit)
        self.hold(actor, action)
        return outcome

    def record(self, kind: str, key: str, payload: bytes) -> bool:
        return self.journal.record(kind, key, payload)

    def find(self, actor: str, key: str) -> bool:
        action = self.journal.find(key)
        self.hold(actor, action)
        return action is not None

    def move(self, actor: str, verb: str, payload: bytes = b"") -> None:
        action = self.actions[actor]
        getattr(action, verb)(*([] if verb in ("dispatch", "confirm") else [payload]))

    def resolve(self, actor: str, outcome: str, payload: bytes) -> None:
        self.actions[actor].resolve(orch.Outcome[outcome], payload)

    def decide(self, actor: str, decision: str, by: str, note: bytes) -> None:
        calls.decide(self.actions[actor], decision, by, note)

    def recover(self, prefix: str, probes: Dict[str, Tuple[str, bytes]], choices: Optional[Dict[str, str]] = None
                ) -> Tuple[List[Tuple[str, str, str, str]], List[str]]:
        told = []

        def probe(action: orch.Action) -> Optional[Tuple[str, bytes]]:
            point("probe")
            return probes.get(action.key)

        def choose(action: orch.Action, _outcome: str, proposed: str) -> int:
            point("choice")
            return calls.RECOVERIES.index((choices or {}).get(action.key, proposed))

        def hand_over(action: orch.Action) -> None:
            point("hand-over")
            told.append(action.key)

        rows = calls.recover(self.journal, prefix, probe if probes else None, choose if choices else None, hand_over)
        return sorted(row[:4] for row in rows), sorted(told)

    def prune(self, closed_before_ms: int) -> Tuple[int, int]:
        return calls.prune(self.journal, closed_before_ms)

    def backup(self, name: str) -> int:
        return calls.backup(self.journal, self.place.backup(name))

    def issue(self, *terms: Any) -> str:
        return calls.issue(self.journal, *terms).state

    def revoke(self, name: str) -> None:
        calls.revoke(self.journal, name)

    def hold_timer(self, actor: str, timer: Optional[calls.TimerHandle]) -> None:
        if timer is not None:
            if actor in self.timers:
                self.timers[actor].close()
            self.timers[actor] = timer

    def timer_set(self, actor: str, *terms: Any) -> None:
        self.hold_timer(actor, calls.set_timer(self.journal, *terms))

    def timer_find(self, actor: str, name: str) -> None:
        self.hold_timer(actor, calls.find_timer(self.journal, name))

    def timer_end(self, actor: str, verb: str) -> None:
        getattr(self.timers[actor], verb)()

    def timer_next(self, actor: str) -> Tuple[str, int]:
        timer, wait_ms = calls.next_timer(self.journal)
        self.hold_timer(actor, timer)
        return timer.tell().name if timer else "", wait_ms

    def verify(self) -> int:
        return self.journal.verify()

    def effect(self, address: Tuple[str, int], run: str, key: str) -> None:
        point("before the effect")
        Effects.ask(address, "do", run, key)
        point("after the effect")

    # The judge's own.

    def arm(self, records: int, points: int) -> None:
        """Die at the n-th record from here, or at the n-th point."""
        self.record_at = self.journal.sequence + records if records else 0
        shim.at = shim.seen + points if points else 0

    def clock(self, clocks: Clocks) -> None:
        set_clocks(clocks)

    def tell(self) -> Snapshot:
        return tell(self.journal)

    def known(self, actor: str) -> Tuple[Optional[Row], Optional[Timer]]:
        return (row_of(self.actions[actor]) if actor in self.actions else None,
                timer_row(self.timers[actor]) if actor in self.timers else None)

    def close(self) -> Tuple[int, bytes]:
        for handle in (*self.actions.values(), *self.timers.values()):
            handle.close()
        self.journal.close()
        return shim.seen, shim.trace


def _send(stream: socket.socket, value: Any) -> None:
    text = pickle.dumps(value)
    stream.sendall(struct.pack("=I", len(text)) + text)


def _receive(stream: socket.socket) -> Any:
    def exactly(length: int) -> bytes:
        text = b""
        while len(text) < length:
            part = stream.recv(length - len(text))
            if not part:
                raise EOFError
            text += part
        return text

    return pickle.loads(exactly(struct.unpack("=I", exactly(4))[0]))


def _attempt(function: Callable[..., Any], *arguments: Any) -> Tuple[str, Any]:
    try:
        return "", function(*arguments)
    except orch.Error as error:
        return error.code.name, str(error)


def set_clocks(clocks: Optional[Clocks]) -> None:
    """None: the system's."""
    shim.realtime_ms, shim.boottime_ms = (clocks.now, clocks.boot_ms) if clocks else (0, 0)
    shim.boot_id = f"00000000-0000-4000-8000-{clocks.boot:012d}".encode() if clocks else b""


def _live(stream: socket.socket, place: Place, limit: int, record_at: int, point_at: int, clocks: Clocks) -> None:
    signal.alarm(60)
    shim.folder, shim.seen, shim.at = str(place.folder).encode(), 0, point_at
    set_clocks(clocks)
    coordinator: Optional[Coordinator] = None

    def birth() -> int:
        nonlocal coordinator
        coordinator = Coordinator(place, limit, record_at)
        return coordinator.journal.generation

    _send(stream, _attempt(birth))
    while coordinator:
        with contextlib.suppress(EOFError):
            steps = _receive(stream)
            _send(stream, [_attempt(getattr(coordinator, name), *arguments) for name, *arguments in steps])
            continue
        return


def _restore(stream: socket.socket, place: Place, point_at: int, clocks: Clocks, name: str, replace_: bool) -> None:
    """A life that makes a journal of a backup, and is over."""
    signal.alarm(60)
    shim.folder, shim.seen, shim.at = str(place.folder).encode(), 0, point_at
    set_clocks(clocks)
    code, value = _attempt(calls.restore, place.backup(name), place.path, place.anchor, replace_)
    _send(stream, (code, value, shim.seen, bytes(shim.trace)))


class Life:
    """The coordinator's process, seen from the judge."""

    def __init__(self, body: Callable[..., None], *arguments: Any) -> None:
        self.stream, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                self.stream.close()
                body(theirs, *arguments)
                status = 0
            except BaseException as error:  # pylint: disable=broad-except
                print(f"the coordinator failed: {error!r}", file=sys.stderr, flush=True)
            finally:
                os._exit(status)
        theirs.close()

    def receive(self) -> Any:
        try:
            return _receive(self.stream)
        except (EOFError, ConnectionError):
            status = self.end()
            if status != -signal.SIGKILL:
                raise Mismatch(f"the coordinator ended by itself: {status}") from None
            raise Killed from None

    def ask(self, *steps: Tuple[Any, ...]) -> List[Tuple[str, Any]]:
        _send(self.stream, steps)
        return self.receive()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.end()

    def end(self) -> int:
        """Its exit status; minus the signal if it was killed."""
        self.stream.close()
        pid, self.pid = self.pid, 0
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# --- the judge ---

class Judge:
    """`may_be`: while nobody lives, what the files may tell; the first is what was acknowledged."""

    def __init__(self, place: Place, limit: int, model: Type[Model] = Model) -> None:
        self.place, self.limit = place, limit
        self.model = model(limit)
        self.life: Optional[Life] = None
        self.may_be = [Snapshot()]
        self.record_at = self.point_at = 0
        self.kills = self.steps = 0
        self.highest = 0  # of the generations that were given out
        self.interrupted = False  # a restore was, and it may have taken its epoch with it

    def __enter__(self) -> "Judge":
        return self

    def __exit__(self, *_raised: Any) -> None:
        if self.life and self.life.pid:
            self.life.kill()

    def expect(self, agreed: bool, what: str, *seen: Any) -> None:
        if not agreed:
            raise Mismatch("\n    ".join([what] + [repr(one) for one in seen]))

    def died(self, before: Snapshot, commits: List[Snapshot]) -> None:
        """What was acknowledged is `before`; each commit of the step in hand may have become durable."""
        self.kills += 1
        self.expect(bool(self.record_at or self.point_at), "killed by nobody")
        self.may_be = [before, *commits]
        if self.record_at and not self.point_at:  # it died when that record was durable
            exact = [one for one in self.may_be if one.sequence >= self.record_at][:1]
            self.expect(len(exact) == 1, f"died at record {self.record_at}", self.may_be)
            self.may_be = exact
        self.life, self.record_at, self.point_at = None, 0, 0
        raise Killed

    def kill(self) -> None:
        """Between two steps: all that is known was acknowledged."""
        assert self.life
        self.life.kill()
        self.life, self.may_be, self.record_at, self.point_at = None, [self.model.snapshot()], 0, 0

    def settle(self) -> Snapshot:
        """Reads what a dead coordinator left, and changes nothing."""
        files = self.place.files(anchor=True)
        try:
            with self.place.open(read_only=True) as journal:
                state = self.matching(tell(journal))
                self.expect(journal.verify() == state.sequence, "verify counts other records", state)
        except orch.Error as error:
            self.expect(error.code == orch.Code.ENOENT and not self.place.path.exists()
                        and self.may_be[0] == Snapshot(), "what is left can not be read", error, self.may_be)
            state = Snapshot()
        self.expect(self.place.files(anchor=True) == files, "reading changed the files")
        self.may_be = [state]
        return state

    def matching(self, read: Snapshot) -> Snapshot:
        """The one of the possible states that was read."""
        for state in self.may_be:
            if self.interrupted and state.generation == NEW and read.epoch > state.epoch:
                state = replace(state, epoch=read.epoch)
            if (state.sequence, state.epoch) == (read.sequence, read.epoch):
                self.expect(state.tells(read), "the journal tells another state", read, state)
                self.expect(state.generation != NEW or read.generation > self.highest, "a restored journal goes on "
                            "below a generation that was given out", read.generation, self.highest)
                return state.adopt(read)
        raise Mismatch(f"the journal ends at record {read.sequence}, epoch {read.epoch}\n    {read}\n    "
                       f"possible: {self.may_be}")

    def open(self) -> None:
        """A new life. Killed: it died while it opened."""
        if (self.record_at or self.point_at) and len(self.may_be) > 1:
            self.settle()  # or two of the states it may leave could not be told apart
        self.life = Life(_live, self.place, self.limit, self.record_at, self.point_at, self.model.clocks)
        try:
            code, generation = self.life.receive()
        except Killed:
            registered = [replace(one, sequence=one.sequence + 1, generation=one.generation + 1)
                          for one in self.may_be]
            self.died(self.may_be[0], registered)
        self.expect(not code, f"open gives {code}", generation)
        read = self.life.ask(("tell",))[0][1]
        state = self.matching(replace(read, sequence=read.sequence - 1))
        given = {one.sequence: one.generation for one in self.may_be}[state.sequence]
        self.expect(generation > given and read.generation == generation, "the generation did not rise", generation,
                    given)
        self.highest = max(self.highest, generation)
        self.model.put(replace(state, generation=generation - 1))
        self.model.register()
        self.expect(self.model.sequence == read.sequence, "opening is one record", read, self.model.sequence)

    def arm(self, records: int, points: int) -> None:
        """For this life, or for the next one from its start."""
        self.record_at, self.point_at = 0, points
        if records:
            self.record_at = records + (self.model.sequence if self.life else self.settle().sequence)
        if self.life:
            self.life.ask(("arm", records, points))

    def ask(self, *steps: Tuple[Any, ...]) -> List[Tuple[str, Any]]:
        """Steps that record nothing, and may be the last ones."""
        assert self.life
        try:
            return self.life.ask(*steps)
        except Killed:
            self.died(self.model.snapshot(), [])
            raise

    def verify(self) -> None:
        [(code, count)] = self.ask(("verify",))
        self.expect((code, count) == ("", self.model.sequence), "verify", code, count, self.model.sequence)

    def clock(self) -> None:
        """The life gets the clocks of the model."""
        if self.life:
            self.life.ask(("clock", self.model.clocks))

    def close(self) -> Tuple[int, bytes]:
        """A clean end: the points that this life passed, and their names."""
        assert self.life
        before = self.model.snapshot()
        try:
            code, value = self.life.ask(("close",))[0]
        except Killed:
            self.died(before, [])
        self.expect(not code, f"close gives {code}", value)
        self.expect(self.life.end() == 0, "the coordinator failed after its end")
        self.life, self.may_be, self.record_at, self.point_at = None, [before], 0, 0
        self.expect(not pathlib.Path(f"{self.place.path}-wal").exists(), "a log is left after a clean close")
        return value

    def do(self, name: str, *arguments: Any, look: bool = True) -> Any:
        """One step: its answer, which is the model's."""
        if not self.life:
            self.open()
        before = self.model.snapshot()
        self.model.commits = []
        code, value = "", None
        try:
            value = getattr(self.model, name)(*arguments)
        except Refused as refused:
            code = str(refused)
        actor = arguments[0] if name in self.ACTS else ""
        try:
            told_code, told = self.step(before, actor, look, name, *arguments)
        except Killed:
            if name == "backup" and not self.place.backup(arguments[0]).exists():
                self.model.backups.pop(arguments[0], None)
            raise
        self.expect((told_code, None if told_code else told) == (code, value), f"{name}{arguments}: the journal says",
                    told_code, told, "and the model", code, value)
        self.looked(actor)
        return value

    #: Steps whose first argument is who holds the handle.
    ACTS = ("begin", "find", "move", "resolve", "decide", "timer_set", "timer_find", "timer_end")

    def step(self, before: Snapshot, actor: str, look: bool, *step: Any) -> Tuple[str, Any]:
        """The life's answer to a step that the model has taken."""
        assert self.life
        self.steps += 1
        self.seen: List[Tuple[str, Any]] = []
        try:
            answer, *self.seen = self.life.ask(step, *([("tell",), ("known", actor)] if look else []))
        except Killed:
            self.died(before, self.model.commits)
        return answer

    def looked(self, actor: str) -> None:
        """All that the journal tells after the step is what the model has."""
        if not self.seen:
            return
        (_, read), (_, known) = self.seen
        self.may_be = [self.model.snapshot()]
        self.model.adopt(self.matching(read))
        for held, row in zip((self.model.held.actions, self.model.held.timers), known):
            kept = held.get(actor)
            self.expect((kept is None) == (row is None) and (kept is None or kept.tells(row)),
                        f"{actor}'s handle knows another state", row, kept)
            if kept:
                held[actor] = adopted(kept, row)

    def timer_next(self, actor: str, look: bool = True) -> Tuple[str, int]:
        """The next timer: one of those that the model takes for it. Its name, and how long until it is due."""
        if not self.life:
            self.open()
        before = self.model.snapshot()
        self.model.commits = []
        self.model.timers_look()
        waits = self.model.waits()
        code, told = self.step(before, actor, look, "timer_next", actor)
        self.expect(not code, f"timer_next gives {code}", told)
        name, wait_ms = told
        right = wait_ms == min(waits.values()) == waits.get(name) if waits else (name, wait_ms) == ("", -1)
        self.expect(right, "the next timer is", name, wait_ms, "and may be", waits, self.model.clocks)
        if name:
            self.model.held.timers[actor] = self.model.timers[name]
        self.looked(actor)
        return name, wait_ms

    # --- backups ---------------------------------------------------------------------------------------------------

    def check_backup(self, name: str) -> None:
        """It is whole, and tells what the journal told when it was made."""
        path, state = self.place.backup(name), self.model.backups[name]
        with orch.Journal(path, read_only=True) as journal:
            read = tell(journal)
            self.expect(state.tells(read) and read.sequence == state.sequence, "a backup tells another state", read,
                        state)
            self.expect(journal.verify() == state.sequence, "verify counts other records of a backup", state)

    def no_fresh_one(self) -> None:
        """A restore that was killed must not leave a place where a coordinator begins with nothing."""
        if self.place.path.exists():
            return
        files = self.place.files(anchor=True)
        try:
            with self.place.open() as journal:
                raise Mismatch(f"between two journals a third one is made, at record {journal.sequence}")
        except orch.Error as error:
            self.expect(error.code == orch.Code.ECORRUPT, "between two journals open gives", error)
        self.place.put_back(files)

    def restore(self, name: str) -> calls.Restored:
        """Makes a journal of a backup, in the place of the one that is there. Killed: it is to be done again."""
        there = self.place.path.exists()
        before = self.settle() if there else self.may_be[0]
        counts = self.model.restore(name, max(before.epoch, self.model.backups[name].epoch))
        after, at = self.model.snapshot(), self.point_at
        self.life, self.record_at, self.point_at = Life(_restore, self.place, at, self.model.clocks, name, True), 0, 0
        self.steps += 1
        try:
            code, value, self.points, self.trace = self.life.receive()
        except Killed:
            self.point_at, self.interrupted = at, True
            self.died(before, [after])
        self.expect(self.life.end() == 0, "the restore failed after its end")
        self.life = None
        self.expect(not code, f"restore gives {code}", value)
        if self.interrupted and value.epoch > after.epoch:
            after = replace(after, epoch=value.epoch)
        self.may_be, self.interrupted = [after], False
        self.expect(value[0:2] == (after.epoch, self.model.backups[name].sequence) and value[3:5] == counts
                    and (value.replaced != "") == there, "the restoration", value, after.epoch, counts)
        return value


# --- the outside ---

class Effects:
    """Counts effects by key, in a process that outlives every coordinator."""

    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = listener.getsockname()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                signal.alarm(600)
                self._serve(listener)
            finally:
                os._exit(0)
        listener.close()

    @staticmethod
    def _serve(listener: socket.socket) -> None:
        counts: Dict[str, Dict[str, int]] = {}
        while True:
            with contextlib.suppress(OSError), listener.accept()[0] as stream:
                verb, run, key = stream.recv(300).decode().split(" ", 2)
                done = counts.setdefault(run, {})
                if verb == "do":
                    done[key] = done.get(key, 0) + 1
                stream.sendall(json.dumps(done).encode())

    @staticmethod
    def ask(address: Tuple[str, int], verb: str, run: str, key: str = "") -> Dict[str, int]:
        """"do" or "count": how often each key of that run was done."""
        with socket.create_connection(address, timeout=20) as stream:
            stream.sendall(f"{verb} {run} {key}".encode())
            return json.loads(stream.recv(4096))

    def counts(self, run: str) -> Dict[str, int]:
        return self.ask(self.address, "count", run)

    def __enter__(self) -> "Effects":
        return self

    def __exit__(self, *_raised: Any) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def lines(trace: bytes) -> Iterator[str]:
    return iter(trace.decode(errors="replace").splitlines())
