"""What an orchestrator does with a journal, by area, each written so that it can start again anywhere.

A life is one coordinator, from open to close. The service outside knows what was really done.
"""
import contextlib
import copy
import pathlib
import sqlite3
import tarfile
import tempfile
from typing import Dict, Iterator, List, Optional, Set, Tuple, Type

from lives import ROOT, Effects, Judge, Place, calls, tell
from model import Clocks, Snapshot

LIMIT = 4096


class Base:
    """Files to begin with, and what they hold. None: nothing."""

    def __init__(self, place: Place, judge: Judge) -> None:
        self.files = {path.relative_to(place.folder): path.read_bytes() for folder in place.FOLDERS
                      for path in (place.folder / folder).iterdir() if path.suffix != ".reserve"}
        self.state, self.backups = judge.settle(), dict(judge.model.backups)
        self.highest, self.clocks = judge.highest, copy.copy(judge.model.clocks)

    def lay(self, place: Place, judge: Judge) -> None:
        for path, content in self.files.items():
            (place.folder / path).write_bytes(content)
        judge.may_be, judge.highest = [self.state], self.highest
        judge.model.put(self.state)
        judge.model.backups, judge.model.clocks = dict(self.backups), copy.copy(self.clocks)


class Area:
    """One run: lives until one came to its end, then finish()."""

    #: Effects that happen never, and those that may happen more than once. All others of KEYS: exactly once.
    KEYS: Tuple[str, ...] = ()
    NEVER: Set[str] = set()
    OFTEN: Set[str] = set()
    base: Optional[Base] = None

    def __init__(self, judge: Judge, service: Effects, run: str) -> None:
        self.judge, self.service, self.run = judge, service, run
        self.blind = False  # a wrong one, for the control: it does what is AMBIGUOUS once more
        if self.base:
            self.base.lay(judge.place, judge)

    @classmethod
    def prepare(cls, service: Effects) -> None:
        """What is there before the first point."""

    # --- the orchestrator's hands ----------------------------------------------------------------------------------

    def done(self, key: str) -> int:
        return self.service.counts(self.run).get(key, 0)

    def effect(self, key: str) -> None:
        [(code, value)] = self.judge.ask(("effect", self.service.address, self.run, key))
        self.judge.expect(not code, "effect", code, value)

    def recover(self, choices: Optional[Dict[str, str]] = None) -> None:
        done = self.service.counts(self.run)
        probes = {key: ("APPLIED", b"found") if done.get(key) else ("NOT_APPLIED", b"") for key in self.KEYS}
        self.judge.do("recover", "", probes, choices or {}, look=False)

    def begin(self, key: str, policy: str = "NEVER_REPEAT", permit: str = "") -> str:
        return self.judge.do("begin", key, "work.do", key, policy, key.encode(), None, permit, look=False)

    def move(self, key: str, verb: str, payload: bytes = b"") -> None:
        self.judge.do("move", key, verb, payload, look=False)

    def state(self, key: str) -> str:
        return self.judge.model.held.actions[key].state

    def once(self, key: str, policy: str = "NEVER_REPEAT", permit: str = "") -> None:
        """Done, and done once, whatever was before. Nobody but recovery resolves what is ambiguous."""
        self.begin(key, policy, permit)
        self.go_on(key)

    def go_on(self, key: str) -> None:
        if self.state(key) == "INTENT":
            self.move(key, "dispatch")
            self.effect(key)
            self.move(key, "observe", b"answer")
        if self.state(key) == "OBSERVED":
            self.move(key, "confirm")
        self.judge.expect(self.state(key) == "CONFIRMED", f"{key} can not go on", self.state(key))

    # --- the run ---------------------------------------------------------------------------------------------------

    def life(self) -> Tuple[int, bytes]:
        """One coordinator, from open to close: its points."""
        self.judge.open()
        if not self.blind:
            self.recover()
        self.work()
        self.judge.verify()
        return self.judge.close()

    def work(self) -> None:
        raise NotImplementedError

    def finish(self) -> Tuple[int, bytes]:
        """The last life, and what came of it all."""
        self.judge.arm(0, 0)
        seen = self.life()
        self.judged(self.judge.settle())
        done = self.service.counts(self.run)
        for key in self.KEYS:
            count = done.get(key, 0)
            self.judge.expect(count == 0 if key in self.NEVER else count == 1 or count > 1 and key in self.OFTEN,
                              f"{key} was done {count} times")
        return seen

    def judged(self, final: Snapshot) -> None:
        """The end, as far as the model does not say it."""


def states(final: Snapshot) -> Dict[str, str]:
    return {row.key: row.state for row in final.rows}


@contextlib.contextmanager
def preparing() -> Iterator[Tuple[Place, Judge]]:
    with Place() as place, Judge(place, LIMIT) as judge:
        yield place, judge


class Actions(Area):
    """Every verb of an action."""

    #: key: (policy, what becomes of it)
    TASKS = {"done": ("NEVER_REPEAT", "observe"), "lost": ("PROBE_FIRST", "unknown"),
             "refused": ("PROBE_FIRST", "fail"), "person": ("NEVER_REPEAT", "hand_over"),
             "dropped": ("NEVER_REPEAT", "abandon"), "often": ("REPEATABLE", "observe")}
    KEYS, NEVER, OFTEN = tuple(TASKS), {"dropped"}, {"often"}

    def work(self) -> None:
        for key, (policy, becomes) in self.TASKS.items():
            self.task(key, policy, becomes)
        self.judge.do("record", "run.state", "run", b"finished", look=False)

    def task(self, key: str, policy: str, becomes: str) -> None:
        while True:
            outcome = self.begin(key, policy)
            if outcome == "FRESH":
                if becomes == "abandon":
                    return self.move(key, "abandon", b"not wanted")
                self.move(key, "dispatch")
                first = self.judge.model.held.actions[key].attempt == 1
                if becomes == "fail" and first:
                    self.move(key, "fail", b"refused")
                    continue
                self.effect(key)
                if becomes in ("unknown", "hand_over"):
                    self.move(key, becomes, b"no answer")
                    if becomes == "unknown":
                        self.recover()
                        self.judge.do("find", key, key, look=False)
                else:
                    self.move(key, "observe", b"answer")
            elif outcome == "AMBIGUOUS" and self.blind:
                return self.effect(key)
            state = self.state(key)
            if state == "HANDED_OVER":  # a person looks
                if not self.done(key):
                    self.move(key, "fail", b"not there")
                    continue
                self.move(key, "observe", b"it is there")
            if self.state(key) == "OBSERVED":
                self.move(key, "confirm")
            self.judge.expect(self.state(key) in ("CONFIRMED", "ABANDONED"), f"{key} can not go on", outcome, state)
            return None

    def judged(self, final: Snapshot) -> None:
        wanted = {key: "ABANDONED" if key in self.NEVER else "CONFIRMED" for key in [*self.TASKS, "run"]}
        self.judge.expect(states(final) == wanted, "the end", states(final))


class Permits(Area):
    """What needs a permit happens once under it; what has none does not happen."""

    KEYS, NEVER = ("one", "two", "thief", "late", "taken back"), {"thief", "late", "taken back"}
    BEGUN = Clocks().now

    def work(self) -> None:
        judge, now = self.judge, self.BEGUN
        self.clock(now)
        for name in ("for one", "for two", "taken back"):
            judge.do("issue", name, "work.do", None, 0, b"asked for by a test", look=False)
        judge.do("issue", "for late", "work.do", None, now + 1000, b"", look=False)
        judge.do("revoke", "taken back", look=False)
        if self.begin("one", permit="for one") == "FRESH" and judge.model.held.actions["one"].attempt == 1:
            self.move("one", "fail", b"not yet")
            self.begin("one", permit="for one")  # and once more under the same permit
        self.go_on("one")
        self.begin("thief", permit="for one")
        self.once("two", permit="for two")
        self.begin("taken back", permit="taken back")
        self.clock(now + 1000)
        self.begin("late", permit="for late")
        self.clock(now - 1000)
        self.begin("late", permit="for late")

    def clock(self, now: int) -> None:
        self.judge.model.clocks.now = now
        self.judge.clock()

    def judged(self, final: Snapshot) -> None:
        wanted = {"for one": "USED", "for two": "USED", "taken back": "REVOKED", "for late": "EXPIRED"}
        self.judge.expect({permit.name: permit.state for permit in final.permits} == wanted, "the end", final.permits)


class Timers(Area):
    """What is due is done once for each round, across reboots."""

    KEYS, NEVER = ("wall-1", "delay-1", "again-2", "again-1", "dropped-1"), {"again-1", "dropped-1"}

    def life(self) -> Tuple[int, bytes]:
        if self.judge.model.generation:
            self.judge.model.clocks.reboot()
        return super().life()

    def work(self) -> None:
        judge, clocks = self.judge, self.judge.model.clocks
        now = Clocks().now
        for name, round_, terms in (("wall", 1, (now + 1000, 0)), ("delay", 1, (0, 2000)), ("again", 2, (0, 10**9)),
                                    ("dropped", 1, (now + 1, 0))):
            for number in range(1, round_ + 1):
                judge.do("timer_find", name, name, look=False)
                timer = judge.model.held.timers.get(name)
                if timer is None or timer.round < number:
                    judge.do("timer_set", name, name, *(terms if number == 1 else (0, 1500)), b"what for", look=False)
        judge.do("timer_end", "dropped", "cancel", look=False)
        clocks.passes(10000)
        judge.clock()
        while True:
            name, wait_ms = judge.timer_next("due", look=False)
            if wait_ms:
                break
            self.once(f"{name}-{judge.model.timers[name].round}")
            judge.do("timer_end", "due", "done", look=False)

    def judged(self, final: Snapshot) -> None:
        wanted = {"wall": "DONE", "delay": "DONE", "again": "DONE", "dropped": "CANCELED"}
        self.judge.expect({timer.name: timer.state for timer in final.timers} == wanted, "the end", final.timers)


class Decisions(Area):
    """What people decide, and what hosts choose in a recovery."""

    KEYS, NEVER = ("there", "not there", "given up", "asked twice"), {"given up"}
    #: What the person finds out.
    FOUND = {"there": "APPLIED", "not there": "NOT_APPLIED", "given up": "ABANDON", "asked twice": "APPLIED"}

    def recover(self, choices: Optional[Dict[str, str]] = None) -> None:
        super().recover({key: "HAND_OVER" for key in self.KEYS})

    def work(self) -> None:
        for key in self.KEYS:
            self.task(key)

    def task(self, key: str) -> None:
        for _ in range(4):
            outcome = self.begin(key, "PROBE_FIRST" if key == "asked twice" else "NEVER_REPEAT")
            if outcome == "FRESH":
                self.move(key, "dispatch")
                again = self.judge.model.held.actions[key].attempt > 1
                if key in ("there", "asked twice") or key == "not there" and again:
                    self.effect(key)
                if key == "not there" and again:
                    self.move(key, "observe", b"answer")
                elif key == "asked twice":
                    self.move(key, "unknown", b"no answer")
                    self.recover()
                    self.judge.do("find", key, key, look=False)
                else:
                    self.move(key, "hand_over", b"no answer")
            if self.state(key) == "HANDED_OVER":
                self.decide(key)
            if self.state(key) == "OBSERVED":
                self.move(key, "confirm")
            if self.state(key) in ("CONFIRMED", "ABANDONED"):
                return
        self.judge.expect(False, f"{key} can not go on", self.state(key))

    def decide(self, key: str) -> None:
        found = self.FOUND[key]
        if found != "ABANDON":  # killed in between, it may be otherwise than it was meant to be
            found = "APPLIED" if self.done(key) else "NOT_APPLIED"
        self.judge.do("decide", key, found, "a person", b"looked at it", look=False)

    def judged(self, final: Snapshot) -> None:
        wanted = {key: "ABANDONED" if found == "ABANDON" else "CONFIRMED" for key, found in self.FOUND.items()}
        self.judge.expect(states(final) == wanted, "the end", states(final))


class Backups(Area):
    """Copies while it is in use: whole, or not there."""

    KEYS, NAMES = ("one", "two"), ("first", "second")

    def work(self) -> None:
        for key, name in zip(self.KEYS, self.NAMES):
            self.begin(key)
            if name not in self.judge.model.backups:
                self.judge.do("backup", name, look=False)
            self.go_on(key)

    def life(self) -> Tuple[int, bytes]:
        for name in self.judge.model.backups:
            self.judge.check_backup(name)
        return super().life()

    def judged(self, final: Snapshot) -> None:
        for name in self.NAMES:
            self.judge.check_backup(name)
        left = {path.name for path in self.judge.place.backup("").iterdir() if path.stat().st_size}
        self.judge.expect(left == set(self.NAMES), "beside the backups there is", left)  # a lock may stay, empty


class Restores(Area):
    """A journal made of a backup, while the outside went on: nothing is done twice, no permit lives again."""

    #: When the backup was made: done, in flight, failed, only meant; and begun after it.
    KEYS = ("closed", "in flight", "failed", "meant", "later", "under a permit")
    NEVER = {"under a permit"}
    killed = False

    @classmethod
    def prepare(cls, service: Effects) -> None:
        with preparing() as (place, judge):
            area = cls(judge, service, "prepared")
            judge.open()
            area.once("closed")
            for name in ("unused", "used later"):
                judge.do("issue", name, "work.do", None, 0, b"")
            for key, verbs in (("in flight", ["dispatch"]), ("failed", ["dispatch", "fail"]), ("meant", [])):
                area.begin(key)
                for verb in verbs:
                    area.move(key, verb)
            judge.do("backup", "old")
            area.effect("in flight")
            area.move("in flight", "observe", b"answer")
            area.move("in flight", "confirm")
            area.go_on("meant")
            for key in ("failed", "later"):
                area.once(key)
            area.once("one", permit="used later")
            if cls.killed:
                judge.kill()
            else:
                judge.close()
            cls.base = Base(place, judge)

    def __init__(self, judge: Judge, service: Effects, run: str) -> None:
        super().__init__(judge, service, run)
        if self.base:  # the outside remembers
            for key in ("closed", "in flight", "failed", "meant", "later"):
                service.ask(service.address, "do", run, key)

    def life(self) -> Tuple[int, bytes]:
        """The restore, then a coordinator: its points are counted on."""
        judge, at = self.judge, self.judge.point_at
        if not judge.place.path.exists():
            judge.no_fresh_one()
        elif judge.settle().epoch > 1:
            return super().life()
        value = judge.restore("old")
        assert self.base
        lost = self.base.state.sequence - self.base.backups["old"].sequence
        judge.expect(value.lost == lost, "records lost", value.lost, lost)
        points, trace = judge.points, judge.trace
        judge.arm(0, at - points if at > points else 0)
        seen, more = super().life()
        return points + seen, trace + more

    def work(self) -> None:
        for permit in ("unused", "used later"):
            self.begin("under a permit", permit=permit)  # refused, says the model
        for key in ("closed", "in flight", "failed", "meant"):
            self.once(key)

    def judged(self, final: Snapshot) -> None:
        self.judge.expect({permit.state for permit in final.permits} == {"VOID"}, "permits", final.permits)
        self.judge.expect(set(states(final).values()) == {"CONFIRMED"} and final.epoch >= 2, "the end", final)
        left = {path.name for path in self.judge.place.path.parent.iterdir() if path.stat().st_size}
        whole = {name for name in left if (".replaced-" in name or name == "j.restored") and not name.endswith("-wal")}
        rest = left - whole - {f"{name}-wal" for name in whole} - {"j", "j.lock", "j.reserve"}  # no bytes of anybody
        self.judge.expect(len(whole) == 1 and not rest, "beside the journal there is", left)


class RestoresOfKilled(Restores):
    """The same, and the journal that is replaced was left by a kill."""
    killed = True


class Prunes(Area):
    """Payloads dropped, in more than one commit; what was done stays done."""

    @classmethod
    def prepare(cls, service: Effects) -> None:
        with preparing() as (place, judge):
            area = cls(judge, service, "prepared")
            judge.open()
            area.once("first")
            area.begin("open")
            for number in range(300):
                judge.do("record", "work.done", f"record {number}", b"a payload of some length" * 4, look=False)
            judge.close()
            judge.model.clocks.passes(1000)
            cls.base = Base(place, judge)

    def work(self) -> None:
        self.judge.do("prune", self.judge.model.now, look=False)
        for key in ("first", "open"):
            self.begin(key)
        self.judge.do("record", "work.done", "record 7", b"a payload of some length" * 4, look=False)

    def judged(self, final: Snapshot) -> None:
        kept = [row.key for row in final.rows if not row.pruned]
        self.judge.expect(kept == ["open"], "not pruned", kept)


class Migration(Area):
    """A journal of schema 1: brought up whole, or as it was."""

    fixture = "cleanly-closed"

    @classmethod
    def prepare(cls, service: Effects) -> None:
        with preparing() as (place, judge):
            expected = ""
            with tarfile.open(ROOT / "tests/journal/fixtures/schema-1.tar.xz") as archive:
                for name, folder in (("j", "journal"), ("j-wal", "journal"), ("a", "anchor"), ("expected", "")):
                    with contextlib.suppress(KeyError):
                        content = archive.extractfile(f"{cls.fixture}/{name}").read()
                        expected = content.decode() if not folder else expected
                        if folder:
                            (place.folder / folder / name).write_bytes(content)
            with place.open(read_only=True) as journal:
                state = tell(journal)
            # ID KIND KEY POLICY STATE ATTEMPT GENERATION ..., as the library of then told it
            wanted = [tuple(line.split()[1:7]) for line in expected.splitlines()]
            told = [(row.kind, row.key, str(calls.POLICIES.index(row.policy)),
                     str(calls.ACTION_STATES.index(row.state)), str(row.attempt), str(row.generation))
                    for row in state.rows]
            judge.expect(told == wanted and len(told) > 5, "the fixture tells otherwise than it did", told, wanted)
            judge.may_be = [state]
            cls.base = Base(place, judge)

    def work(self) -> None:
        self.judge.do("record", "work.done", "after the migration", b"", look=False)
        self.judge.do("issue", "a permit", "work.do", None, 0, b"", look=False)

    def recover(self, choices: Optional[Dict[str, str]] = None) -> None:
        """The fixture's actions stay as they are."""

    def life(self) -> Tuple[int, bytes]:
        self.schema_fits(self.judge.settle())
        return super().life()

    def schema_fits(self, state: Snapshot) -> None:
        assert self.base
        wanted = 1 if state.sequence == self.base.state.sequence else 2
        with tempfile.TemporaryDirectory() as folder:
            for path, content in self.judge.place.files().items():
                (pathlib.Path(folder) / path.name).write_bytes(content)
            with contextlib.closing(sqlite3.connect(pathlib.Path(folder) / "j")) as database:
                [[schema]] = database.execute("PRAGMA user_version")
        self.judge.expect(schema == wanted, f"the tables are of schema {schema} at record {state.sequence}")


class MigrationOfKilled(Migration):
    """The same, of what a kill left."""
    fixture = "killed"


AREAS: List[Type[Area]] = [Actions, Permits, Timers, Decisions, Backups, Restores, RestoresOfKilled, Prunes, Migration,
                           MigrationOfKilled]
