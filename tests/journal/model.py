"""A model of the journal, written from include/orch/journal.h, permit.h and timer.h alone.

It knows no files and no failures: dictionaries of rows, and one rule per paragraph of the headers. States, policies and
outcomes are the headers' words. `commits` holds the state after each commit of the running step: what a coordinator
that was killed in that step may have left is the state before it, or one of these.
"""
import hashlib
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Optional, Tuple

#: A reason that the header leaves to the library.
ANY = "(any)"
#: A generation above all that were given out before.
NEW = -1

#: verb: (state after it, states it is allowed from, whether it brings a result or reason)
TRANSITIONS = {
    "dispatch": ("DISPATCHED", {"INTENT"}, False),
    "observe": ("OBSERVED", {"DISPATCHED", "UNKNOWN", "HANDED_OVER"}, True),
    "confirm": ("CONFIRMED", {"OBSERVED"}, False),
    "fail": ("FAILED", {"INTENT", "DISPATCHED", "UNKNOWN", "HANDED_OVER"}, True),
    "unknown": ("UNKNOWN", {"DISPATCHED"}, True),
    "hand_over": ("HANDED_OVER", {"INTENT", "DISPATCHED", "UNKNOWN", "FAILED"}, True),
    "abandon": ("ABANDONED", {"INTENT", "DISPATCHED", "UNKNOWN", "FAILED", "HANDED_OVER"}, True),
}

#: What a recovery may choose: the verb for it.
CHOICES = {"VERIFY": "unknown", "RETRY": "fail", "HAND_OVER": "hand_over", "ABANDON": "abandon"}


class Refused(Exception):
    """The call gives this code and changes nothing."""


def told(model: Any, read: Any, *hidden: str) -> bool:
    """Whether what was read is what the model has. Hidden: what can not be read back."""
    same = {name: None for name in hidden}
    if getattr(model, "result", None) is ANY:
        same["result"] = None
    if getattr(model, "generation", None) == NEW:
        same["generation"] = None
    return replace(model, **same) == replace(read, **same)


@dataclass(frozen=True)
class Row:
    """An action. Payloads: None if there is none."""
    kind: str
    key: str
    policy: str
    request: Optional[bytes]
    result: Any
    state: str
    attempt: int
    generation: int
    updated_at_ms: int
    created_at_ms: int = 0
    pruned: bool = False
    decision: Optional[Tuple[str, str, int]] = None  # what, by whom, when
    fingerprint: Any = None
    cut: bool = False  # of the result only the digest is there: it was over the limit, or pruned
    permit: str = ""
    version: int = 0  # how many records it has: a state that comes back is not the one that was looked up

    HIDDEN = ("fingerprint", "cut", "permit", "version")

    def tells(self, other: "Row") -> bool:
        return told(self, other, *self.HIDDEN)


@dataclass(frozen=True)
class Permit:
    name: str
    kind: str
    state: str
    expires_at_ms: int
    epoch: int
    action: str  # the key; "": none
    note: Optional[bytes]
    fingerprint: Optional[bytes] = None

    HIDDEN = ("fingerprint",)

    def tells(self, other: "Permit") -> bool:
        return told(self, other, *self.HIDDEN)


@dataclass(frozen=True)
class Timer:
    name: str
    state: str
    round: int
    due_at_ms: int
    delay_ms: int
    payload: Optional[bytes]
    boot: int = 0  # which boot's clock counts; 0: the wall clock
    boot_due_ms: int = 0  # when it is due by that one
    left_ms: int = 0  # of its delay when that boot began to count

    HIDDEN = ("boot", "boot_due_ms", "left_ms")

    def tells(self, other: "Timer") -> bool:
        return told(self, other, *self.HIDDEN)


@dataclass(frozen=True)
class Snapshot:
    """What is durable after a commit. Rows are in the order in which they were made."""
    sequence: int = 0
    generation: int = 0
    rows: Tuple[Row, ...] = ()
    permits: Tuple[Permit, ...] = ()
    timers: Tuple[Timer, ...] = ()
    epoch: int = 1

    NOUNS = ("rows", "permits", "timers")

    def tells(self, read: "Snapshot") -> bool:
        """Whether that is what was read. Generations only rise."""
        return read.generation >= self.generation and read.epoch == self.epoch and all(
            len(getattr(self, noun)) == len(getattr(read, noun))
            and all(one.tells(two) for one, two in zip(getattr(self, noun), getattr(read, noun)))
            for noun in self.NOUNS)

    def adopt(self, read: "Snapshot") -> "Snapshot":
        """What was read, with what can not be."""
        return Snapshot(read.sequence, read.generation, *(tuple(
            adopted(one, two) for one, two in zip(getattr(self, noun), getattr(read, noun))) for noun in self.NOUNS),
            read.epoch)


def adopted(model: Any, read: Any) -> Any:
    hidden = {name: getattr(model, name) for name in model.HIDDEN}
    if getattr(model, "result", None) is ANY:
        hidden["cut"] = bool(read.result and read.result.startswith(b"sha256:"))
    return replace(read, **hidden)


@dataclass
class Clocks:
    """The wall clock, which may be stepped; the boot's clock, which goes on; and which boot it is."""
    now: int = 1_700_000_000_000
    boot_ms: int = 1_000_000
    boot: int = 1

    def passes(self, milliseconds: int) -> None:
        self.now += milliseconds
        self.boot_ms += milliseconds

    def reboot(self) -> None:
        self.boot, self.boot_ms = self.boot + 1, 5000


@dataclass
class Held:
    """What each actor's handles know, which may be older than the rows."""
    actions: Dict[str, Row] = field(default_factory=dict)
    timers: Dict[str, Timer] = field(default_factory=dict)


class Model:
    """A journal."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.clocks = Clocks()
        self.backups: Dict[str, Snapshot] = {}
        self.put(Snapshot())

    @property
    def now(self) -> int:
        return self.clocks.now

    # --- what is durable -------------------------------------------------------------------------------------------

    def put(self, state: Snapshot) -> None:
        """As after a restart: rows and numbers, and no handle."""
        self.held = Held()
        self.first_look_ms: Optional[int] = None  # by this boot's clock
        self.adopt(state)
        self.commits: List[Snapshot] = []

    def adopt(self, state: Snapshot) -> None:
        self.sequence, self.generation, self.epoch = state.sequence, state.generation, state.epoch
        self.rows: Dict[str, Row] = {row.key: row for row in state.rows}
        self.permits: Dict[str, Permit] = {permit.name: permit for permit in state.permits}
        self.timers: Dict[str, Timer] = {timer.name: timer for timer in state.timers}

    def snapshot(self) -> Snapshot:
        return Snapshot(self.sequence, self.generation, tuple(self.rows.values()), tuple(self.permits.values()),
                        tuple(self.timers.values()), self.epoch)

    def commit(self, *made: Any, decisions: int = 0) -> Any:
        """Rows that are made or changed, in one commit: a record for each. Gives the last one as it is stored."""
        for one in made:
            if isinstance(one, Row):
                one = self.stamped(one)
                self.rows[one.key] = one
            elif isinstance(one, Permit):
                self.permits[one.name] = one
            else:
                self.timers[one.name] = one
        self.sequence += len(made) + decisions
        self.commits.append(self.snapshot())
        return one

    def stamped(self, row: Row) -> Row:
        created = row.created_at_ms if row.key in self.rows else self.now
        version = self.rows[row.key].version + 1 if row.key in self.rows else 1
        return replace(row, generation=self.generation, updated_at_ms=self.now, created_at_ms=created,
                       version=version)

    # --- actions ---------------------------------------------------------------------------------------------------

    def register(self) -> None:
        """Open for writing: a new generation, before anything else."""
        self.held = Held()
        self.sequence += 1
        self.generation += 1
        self.commits.append(self.snapshot())

    def begin(self, actor: str, kind: str, key: str, policy: str, request: bytes, fingerprint: Optional[bytes],
              permit: str = "") -> str:
        row = self.asked(kind, key, policy, request, fingerprint, "INTENT")
        recorded = self.rows.get(key)
        if recorded is not None and not self.same(recorded, row):
            raise Refused("ECONFLICT")
        outcome = self.finds(recorded) if recorded is not None else "FRESH"
        if outcome == "FRESH":
            row = self.again(recorded, row) if recorded is not None else row
            used = self.use(permit, row) if permit else []
            row = replace(row, permit=permit or row.permit)
            self.commit(row, *used)
            row = self.rows[key]
        else:
            assert recorded
            row = recorded
        self.held.actions[actor] = row
        return outcome

    def asked(self, kind: str, key: str, policy: str, request: bytes, fingerprint: Optional[bytes], state: str) -> Row:
        if len(request) > self.limit:
            raise Refused("ETOOBIG")
        same = fingerprint if fingerprint is not None else (kind, request)
        return Row(kind, key, policy, request or None, None, state, 1, 0, 0, fingerprint=same)

    def same(self, recorded: Row, row: Row) -> bool:
        return recorded.kind == row.kind and recorded.fingerprint == row.fingerprint

    def finds(self, recorded: Row) -> str:
        own = recorded.generation == self.generation
        if recorded.state == "INTENT":
            return "ATTACHED" if own else "FRESH"
        if recorded.state == "DISPATCHED":
            return "ATTACHED" if own else "AMBIGUOUS"
        if recorded.state in ("OBSERVED", "CONFIRMED"):
            return "REPLAY"
        return "FRESH" if recorded.state == "FAILED" else "AMBIGUOUS"

    def again(self, recorded: Row, row: Row) -> Row:
        """The next attempt. The first policy stays."""
        return replace(recorded, request=row.request, result=None, cut=False, pruned=False, state="INTENT",
                       attempt=recorded.attempt + 1)

    def record(self, kind: str, key: str, payload: bytes) -> bool:
        row = self.asked(kind, key, "NEVER_REPEAT", payload, None, "CONFIRMED")
        recorded = self.rows.get(key)
        if recorded is None:
            self.commit(row)
        elif not self.same(recorded, row):
            raise Refused("ECONFLICT")
        return recorded is None

    def find(self, actor: str, key: str) -> bool:
        if key not in self.rows:
            return False
        self.held.actions[actor] = self.rows[key]
        return True

    def move(self, actor: str, verb: str, payload: Any = b"") -> None:
        """A transition: from what the handle knows, if that is still so."""
        known = self.held.actions[actor]
        state, sources, brings = TRANSITIONS[verb]
        if known.state not in sources or not self.is_still(known):
            raise Refused("ESTATE")
        row = replace(known, state=state)
        self.held.actions[actor] = self.commit(self.with_result(row, payload) if brings else row)

    def is_still(self, known: Row) -> bool:
        row = self.rows[known.key]
        return all(getattr(row, name) == getattr(known, name) for name in ("state", "generation", "attempt", "pruned", "version"))

    def with_result(self, row: Row, payload: Any) -> Row:
        cut = payload is not ANY and len(payload) > self.limit
        return replace(row, result=digest(payload) if cut else payload or None, cut=cut)

    def resolve(self, actor: str, outcome: str, payload: bytes) -> None:
        known = self.held.actions[actor]
        if known.state not in ("DISPATCHED", "UNKNOWN"):
            raise Refused("ESTATE")
        if outcome == "APPLIED":
            self.move(actor, "observe", payload)
            self.move(actor, "confirm")
        elif outcome == "NOT_APPLIED":
            self.move(actor, "fail", ANY)
        elif outcome == "UNKNOWN":
            self.nobody_knows(actor, known)

    def nobody_knows(self, actor: str, known: Row) -> None:
        if known.policy == "REPEATABLE":
            self.move(actor, "fail", ANY)
        elif known.policy == "NEVER_REPEAT":
            self.move(actor, "hand_over", ANY)
        elif known.state == "DISPATCHED":
            self.move(actor, "unknown", ANY)

    def decide(self, actor: str, decision: str, by: str, note: bytes) -> None:
        """What a person found out: the decision and what follows from it, in one commit."""
        known = self.held.actions[actor]
        if known.state not in ("HANDED_OVER", "UNKNOWN") or not self.is_still(known):
            raise Refused("ESTATE")
        state = {"APPLIED": "CONFIRMED", "NOT_APPLIED": "FAILED", "ABANDON": "ABANDONED"}[decision]
        row = self.with_result(replace(known, state=state, decision=(decision, by, self.now)), note)
        self.held.actions[actor] = self.commit(row, decisions=2 if decision == "APPLIED" else 1)

    def prune(self, closed_before_ms: int) -> Tuple[int, int]:
        """Payloads of what is closed long enough. How many actions, and how many bytes."""
        rows = [row for row in self.rows.values() if self.is_closed(row) and row.updated_at_ms < closed_before_ms
                and self.kept(row)]
        size = sum(self.kept(row) for row in rows)
        for at in range(0, len(rows), PRUNED_AT_ONCE):
            for row in rows[at:at + PRUNED_AT_ONCE]:
                self.rows[row.key] = self.without_payloads(row)
            self.sequence += len(rows[at:at + PRUNED_AT_ONCE])
            self.commits.append(self.snapshot())
        return len(rows), size

    def kept(self, row: Row) -> int:
        """How many bytes. One that was pruned may have got a result since: a restore opens it again."""
        return (0 if row.pruned else len(row.request or b"")) + (0 if row.cut else len(row.result or b""))

    def is_closed(self, row: Row) -> bool:
        return row.state in ("CONFIRMED", "FAILED", "ABANDONED")

    def without_payloads(self, row: Row) -> Row:
        result = row.result if row.cut or not row.result else digest(row.result)
        request = digest(row.request) if row.request and not row.pruned else row.request
        return replace(row, request=request, result=result, cut=bool(result), pruned=True,
                       generation=self.generation, version=row.version + 1)

    # --- recovery --------------------------------------------------------------------------------------------------

    def recover(self, prefix: str, probes: Dict[str, Tuple[str, bytes]], choices: Optional[Dict[str, str]] = None
                ) -> Tuple[List[Tuple[str, str, str, str]], List[str]]:
        """Rows: key, state before, what the probe found or NONE, state after. And who was handed over to a person."""
        rows = []
        for row in list(self.rows.values()):
            if not row.kind.startswith(prefix):
                continue
            if self.is_open(row):
                self.held.actions["recovery"] = row
                found = self.reconcile(row, probes, choices or {})
                rows.append((row.key, row.state, found, self.rows[row.key].state))
            elif row.state == "HANDED_OVER":
                rows.append((row.key, row.state, "NONE", row.state))
        return sorted(rows), self.handed_over(rows)

    def handed_over(self, rows: List[Tuple[str, str, str, str]]) -> List[str]:
        """Whoever waits for a person is told of at each recovery."""
        return sorted(key for key, _before, _probe, after in rows if after == "HANDED_OVER")

    def is_open(self, row: Row) -> bool:
        earlier = row.generation < self.generation
        return row.state == "UNKNOWN" or (earlier and row.state in ("INTENT", "DISPATCHED", "OBSERVED"))

    def reconcile(self, row: Row, probes: Dict[str, Tuple[str, bytes]], choices: Dict[str, str]) -> str:
        found, payload = "NONE", b""
        if not self.needs_no_probe(row):
            found, payload = probes.get(row.key, ("UNKNOWN", b""))
        choice = choices.get(row.key, "")
        if choice and self.may(row, found, choice):
            if choice == "CONTINUE":
                self.happened(row, payload)
            elif choice != "VERIFY" or row.state == "DISPATCHED" and found != "IN_FLIGHT":
                self.move("recovery", CHOICES[choice], ANY)
        elif found == "NONE":
            if row.state == "OBSERVED":
                self.move("recovery", "confirm")
            else:
                self.move("recovery", "fail", ANY)
        else:
            self.resolve("recovery", found, payload)
        return found

    def needs_no_probe(self, row: Row) -> bool:
        return row.state in ("INTENT", "OBSERVED") or row.policy == "REPEATABLE"

    def happened(self, row: Row, payload: bytes) -> None:
        if row.state != "OBSERVED":
            self.move("recovery", "observe", payload)
        self.move("recovery", "confirm")

    def may(self, row: Row, found: str, choice: str) -> bool:
        """Nothing is chosen that nobody has evidence for, nor what the transitions do not have."""
        if choice == "CONTINUE":
            return found == "APPLIED" or row.state == "OBSERVED"
        if choice == "RETRY" and found != "NOT_APPLIED" and row.policy != "REPEATABLE" and row.state != "INTENT":
            return False
        if choice == "VERIFY":
            return row.state in ("DISPATCHED", "UNKNOWN")
        return choice in CHOICES and row.state in TRANSITIONS[CHOICES[choice]][1]

    # --- permits ---------------------------------------------------------------------------------------------------

    def issue(self, name: str, kind: str, fingerprint: Optional[bytes], expires_at_ms: int, note: bytes) -> str:
        """Its state."""
        if len(note) > 4096:
            raise Refused("ETOOBIG")
        permit = Permit(name, kind, "ISSUED", expires_at_ms, self.epoch, "", note or None, fingerprint)
        recorded = self.permits.get(name)
        if recorded is None:
            return self.commit(permit).state
        if any(getattr(recorded, term) != getattr(permit, term) for term in ("kind", "fingerprint", "expires_at_ms")):
            raise Refused("ECONFLICT")
        return recorded.state

    def revoke(self, name: str) -> None:
        permit = self.permits.get(name)
        if permit is None:
            raise Refused("ENOENT")
        if permit.state != "ISSUED":
            raise Refused("ESTATE")
        self.commit(replace(permit, state="REVOKED"))

    def use(self, name: str, row: Row) -> List[Permit]:
        """What becomes of the permit of a FRESH action: a record in the same commit, or none for a further attempt."""
        permit = self.permits.get(name)
        if permit is None:
            raise Refused("EPERMIT")
        own = permit.state == "USED" and permit.action == row.key
        if permit.state != "ISSUED" and not own:
            raise Refused("EPERMIT")
        if self.is_expired(permit):
            self.lapse(permit)
            raise Refused("EPERMIT")
        if not self.fits(permit, row):
            raise Refused("EPERMIT")
        return [] if own else [replace(permit, state="USED", action=row.key)]

    def lapse(self, permit: Permit) -> None:
        """A clock that steps back brings nothing back."""
        self.commit(replace(permit, state="EXPIRED"))

    def fits(self, permit: Permit, row: Row) -> bool:
        return (permit.kind == row.kind and permit.fingerprint in (None, row.fingerprint)
                and permit.epoch == self.epoch)

    def is_expired(self, permit: Permit) -> bool:
        return 0 < permit.expires_at_ms <= self.now

    # --- timers ----------------------------------------------------------------------------------------------------

    def timer_set(self, actor: str, name: str, due_at_ms: int, delay_ms: int, payload: bytes) -> None:
        if due_at_ms and delay_ms or due_at_ms < 0 or delay_ms < 0:
            raise Refused("EINVAL")
        if len(payload) > 4096:
            raise Refused("ETOOBIG")
        self.look_at_clock()
        before = self.timers.get(name)
        timer = Timer(name, "PENDING", self.next_round(before) if before else 1, due_at_ms, delay_ms, payload or None)
        self.held.timers[actor] = self.commit(timer if due_at_ms else self.counted(timer, delay_ms))

    def counted(self, timer: Timer, left_ms: int) -> Timer:
        """Due when so much is gone of this boot's time."""
        return replace(timer, due_at_ms=self.now + left_ms, boot=self.clocks.boot,
                       boot_due_ms=self.clocks.boot_ms + left_ms, left_ms=left_ms)

    def next_round(self, before: Timer) -> int:
        return before.round + 1

    def timer_find(self, actor: str, name: str) -> None:
        if name not in self.timers:
            raise Refused("ENOENT")
        self.held.timers[actor] = self.timers[name]

    def timer_end(self, actor: str, verb: str) -> None:
        """"done" or "cancel"."""
        known = self.held.timers[actor]
        now = self.timers[known.name]
        if now.state != "PENDING" or not self.is_round(known, now):
            raise Refused("ESTATE")
        row = self.commit(replace(now, state="DONE" if verb == "done" else "CANCELED"))
        self.held.timers[actor] = replace(known, state=row.state)

    def is_round(self, known: Timer, now: Timer) -> bool:
        return known.round == now.round

    def timers_look(self) -> None:
        """The first look after a reboot: what the wall clock leaves of a delay, and never more than was left."""
        self.look_at_clock()
        others = [timer for timer in self.timers.values()
                  if timer.state == "PENDING" and timer.boot not in (0, self.clocks.boot)]
        if others:
            self.commit(*(self.counted(timer, self.left_ms(timer)) for timer in others))

    def look_at_clock(self) -> None:
        """From a coordinator's first look on it knows what is gone of this boot's time."""
        if self.first_look_ms is None:
            self.first_look_ms = self.clocks.boot_ms

    def left_ms(self, timer: Timer) -> int:
        assert self.first_look_ms is not None
        gone = self.clocks.boot_ms - self.first_look_ms
        return max(0, min(timer.left_ms - gone, timer.due_at_ms - self.now))

    def waits(self) -> Dict[str, int]:
        """How long each is pending; 0: it is due."""
        return {timer.name: max(0, self.wait_ms(timer)) for timer in self.timers.values() if timer.state == "PENDING"}

    def wait_ms(self, timer: Timer) -> int:
        return timer.boot_due_ms - self.clocks.boot_ms if timer.boot else timer.due_at_ms - self.now

    # --- a backup, and a journal made of it ------------------------------------------------------------------------

    def backup(self, name: str) -> int:
        if name in self.backups:
            raise Refused("EEXIST")
        self.backups[name] = self.snapshot()
        return self.sequence

    def restore(self, name: str, epoch: int) -> Tuple[int, int]:
        """`epoch`: the highest one that is known. How many actions became UNKNOWN, how many permits void."""
        self.put(self.backups[name])
        self.epoch = epoch + 1
        self.generation = NEW
        rows = [row for row in self.rows.values() if self.is_doubtful(row)]
        for row in rows:
            self.rows[row.key] = replace(self.stamped(row), state="UNKNOWN", result=ANY, cut=False)
        permits = [permit for permit in self.permits.values() if self.is_void(permit)]
        for permit in permits:
            self.permits[permit.name] = replace(permit, state="VOID")
        self.sequence += 2 + len(rows) + len(permits)  # whoever restores is a generation, and begins an epoch
        return len(rows), len(permits)

    def is_doubtful(self, row: Row) -> bool:
        return row.state in ("INTENT", "DISPATCHED", "FAILED")

    def is_void(self, permit: Permit) -> bool:
        return permit.state == "ISSUED"


#: Actions in one commit of a prune.
PRUNED_AT_ONCE = 256


def digest(payload: Any) -> Any:
    """What is told of a payload that is not kept."""
    if payload is ANY:
        return ANY
    return f"sha256:{hashlib.sha256(payload).hexdigest()} bytes:{len(payload)}".encode()
