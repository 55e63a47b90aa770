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
from model import Model, Refused, Row, Snapshot  # noqa: E402

orch.use_library(os.environ.get("JOURNAL_LIBRARY") or next(BUILD.glob("lib/liborch.[sd0]*")))


class Shim(ctypes.Structure):
    """As in shim.c."""
    _fields_ = [("realtime_ms", ctypes.c_int64), ("seen", ctypes.c_uint64), ("at", ctypes.c_uint64),
                ("folder", ctypes.c_char * 256), ("trace", ctypes.c_char * 65536)]


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
    """The folders of one journal and its anchor."""

    def __init__(self, anchored: bool = True) -> None:
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # no test here loses power
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="orch-model-", dir=base))
        (self.folder / "journal").mkdir()
        (self.folder / "anchor").mkdir()
        self.path = self.folder / "journal/j"
        self.anchor = self.folder / "anchor/a" if anchored else None

    def __enter__(self) -> "Place":
        return self

    def __exit__(self, *_raised: Any) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

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
    return Row(action.kind, action.key, action.policy.name, action.request, action.result, action.state_name,
               action.attempt, action.generation, action.updated_at_ms)


def tell(journal: orch.Journal) -> Snapshot:
    """All that a journal tells."""
    rows = []

    def visit(action: orch.Action) -> None:
        with action:
            rows.append(row_of(action))

    journal.each(visit)
    return Snapshot(journal.sequence, journal.generation, tuple(rows))


# --- the coordinator ---

class Coordinator:
    """Runs in the life. Each method is a step; what it returns goes to the judge."""

    def __init__(self, place: Place, limit: int, record_at: int) -> None:
        def on_record(sequence: int) -> None:
            if sequence == self.record_at:
                os.kill(os.getpid(), signal.SIGKILL)

        self.record_at = record_at
        self.actions: Dict[str, orch.Action] = {}
        self.journal = place.open(payload_limit=limit, on_record=on_record)

    def hold(self, actor: str, action: Optional[orch.Action]) -> None:
        if action is not None:
            if actor in self.actions:
                self.actions[actor].close()
            self.actions[actor] = action

    def begin(self, actor: str, kind: str, key: str, policy: str, request: bytes, fingerprint: Optional[bytes]) -> str:
        begun = self.journal.begin(kind, key, request, policy=orch.Policy[policy], fingerprint=fingerprint)
        self.hold(actor, begun.action)
        return begun.outcome.name

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

    def recover(self, prefix: str, probes: Dict[str, Tuple[str, bytes]]) -> List[Tuple[str, str, str, str]]:
        def probe(action: orch.Action) -> Optional[Tuple[str, bytes]]:
            point("probe")
            return probes.get(action.key)

        return [row[:4] for row in calls.recover(self.journal, prefix, probe if probes else None)]

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

    def clock(self, milliseconds: int) -> None:
        shim.realtime_ms = milliseconds

    def tell(self) -> Snapshot:
        return tell(self.journal)

    def known(self, actor: str) -> Optional[Row]:
        return row_of(self.actions[actor]) if actor in self.actions else None

    def close(self) -> Tuple[int, bytes]:
        for action in self.actions.values():
            action.close()
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


def _live(stream: socket.socket, place: Place, limit: int, record_at: int, point_at: int, now: int) -> None:
    signal.alarm(60)
    shim.folder, shim.seen, shim.at, shim.realtime_ms = str(place.folder).encode(), 0, point_at, now
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


class Life:
    """The coordinator's process, seen from the judge."""

    def __init__(self, *arguments: Any) -> None:
        self.stream, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                self.stream.close()
                _live(theirs, *arguments)
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
        self.model.now = 1_700_000_000_000
        self.life: Optional[Life] = None
        self.may_be = [Snapshot()]
        self.record_at = self.point_at = 0
        self.kills = self.steps = 0

    def __enter__(self) -> "Judge":
        return self

    def __exit__(self, *_raised: Any) -> None:
        if self.life and self.life.pid:
            self.life.kill()

    def expect(self, agreed: bool, what: str, *seen: Any) -> None:
        if not agreed:
            raise Mismatch("\n    ".join([what] + [repr(one) for one in seen]))

    def died(self, before: Snapshot, commits: List[Snapshot]) -> None:
        """What was acknowledged is `before`; each record of the step in hand may have become durable."""
        self.kills += 1
        self.expect(bool(self.record_at or self.point_at), "killed by nobody")
        self.may_be = [before, *commits]
        if self.record_at and not self.point_at:  # it died when that record was durable
            exact = [one for one in self.may_be if one.sequence == self.record_at]
            self.expect(len(exact) == 1, f"died at record {self.record_at}", self.may_be)
            self.may_be = exact
        self.life, self.record_at, self.point_at = None, 0, 0
        raise Killed

    def settle(self) -> Snapshot:
        """Reads what a dead coordinator left, and changes nothing."""
        files = self.place.files(anchor=True)
        try:
            with self.place.open(read_only=True) as journal:
                told = tell(journal)
                self.expect(journal.verify() == told.sequence, "verify counts other records", told)
        except orch.Error as error:
            self.expect(error.code == orch.Code.ENOENT and not self.place.path.exists()
                        and self.may_be[0] == Snapshot(), "what is left can not be read", error, self.may_be)
            told = Snapshot()
        self.expect(self.place.files(anchor=True) == files, "reading changed the files")
        state = self.matching(told)
        self.may_be = [state]
        return state

    def matching(self, told: Snapshot) -> Snapshot:
        """The one of the possible states that was read. Generations only rise."""
        for state in self.may_be:
            if state.sequence == told.sequence:
                self.expect(len(state.rows) == len(told.rows) and told.generation >= state.generation
                            and all(one.tells(two) for one, two in zip(state.rows, told.rows)),
                            "the journal tells another state", told, state)
                rows = tuple(replace(two, fingerprint=one.fingerprint) for one, two in zip(state.rows, told.rows))
                return Snapshot(told.sequence, told.generation, rows)
        raise Mismatch(f"the journal ends at record {told.sequence}\n    {told}\n    possible: {self.may_be}")

    def open(self) -> None:
        """A new life. Killed: it died while it opened."""
        if (self.record_at or self.point_at) and len(self.may_be) > 1:
            self.settle()  # or two of the states it may leave could not be told apart
        self.life = Life(self.place, self.limit, self.record_at, self.point_at, self.model.now)
        try:
            code, generation = self.life.receive()
        except Killed:
            registered = [replace(one, sequence=one.sequence + 1, generation=one.generation + 1)
                          for one in self.may_be]
            self.died(self.may_be[0], registered)
        self.expect(not code, f"open gives {code}", generation)
        told = self.life.ask(("tell",))[0][1]
        earlier = replace(told, sequence=told.sequence - 1, generation=0)
        generations = {one.sequence: one.generation for one in self.may_be}
        self.may_be = [replace(one, generation=0) for one in self.may_be]
        state = self.matching(earlier)
        self.expect(generation > generations[state.sequence] and told.generation == generation,
                    "the generation did not rise", generation, generations)
        self.model.put(replace(state, generation=generation - 1))
        self.model.register()
        self.expect(self.model.sequence == told.sequence, "opening is one record", told, self.model.sequence)

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

    def clock(self, milliseconds: int) -> None:
        self.model.now = milliseconds
        if self.life:
            self.life.ask(("clock", milliseconds))

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
        assert self.life
        self.steps += 1
        before = self.model.snapshot()
        self.model.commits = []
        code, value = "", None
        try:
            value = getattr(self.model, name)(*arguments)
        except Refused as refused:
            code = str(refused)
        actor = arguments[0] if name in ("begin", "find", "move", "resolve") else ""
        try:
            looks = [("tell",), ("known", actor)] if look else []
            (told_code, told), *looked = self.life.ask((name, *arguments), *looks)
        except Killed:
            self.died(before, self.model.commits)
        self.expect((told_code, None if told_code else told) == (code, value), f"{name}{arguments}: the journal says",
                    told_code, told, "and the model", code, value)
        if looked:
            self.may_be = [self.model.snapshot()]
            state = self.matching(looked[0][1])
            self.model.rows = {row.key: row for row in state.rows}
            self.adopt(actor, looked[1][1])
        return value

    def adopt(self, actor: str, known: Optional[Row]) -> None:
        if not actor:
            return
        held = self.model.held.get(actor)
        self.expect((held is None) == (known is None) and (held is None or held.tells(known)),
                    f"{actor}'s handle knows another state", known, held)
        if held:
            self.model.held[actor] = replace(known, fingerprint=held.fingerprint)


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
