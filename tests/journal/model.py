"""A model of the journal, written from include/orch/journal.h alone.

It knows no files and no failures: a dictionary of rows, and one rule per paragraph of the header. States, policies and
outcomes are the header's words. `commits` holds the state after each record of the running step: what a coordinator
that was killed in that step may have left is the state before it, or one of these.
"""
import hashlib
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional, Tuple

#: A reason that the header leaves to the library.
ANY = "(any)"

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


class Refused(Exception):
    """The call gives this code and changes nothing."""


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
    fingerprint: Any = None  # not to be read back

    def tells(self, other: "Row") -> bool:
        """Whether `other`, which was read, is this one."""
        result = other.result if self.result is ANY else self.result
        return replace(self, result=result, fingerprint=None) == replace(other, fingerprint=None)


@dataclass(frozen=True)
class Snapshot:
    """What is durable after a record."""
    sequence: int = 0
    generation: int = 0
    rows: Tuple[Row, ...] = ()  # in order of their intent


class Model:
    """A journal. `held`: what each actor's handle knows, which may be older than the row."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.now = 0
        self.put(Snapshot())

    # --- what is durable -------------------------------------------------------------------------------------------

    def put(self, state: Snapshot) -> None:
        """As after a restart: rows and numbers, and no handle."""
        self.sequence, self.generation = state.sequence, state.generation
        self.rows: Dict[str, Row] = {row.key: row for row in state.rows}
        self.held: Dict[str, Row] = {}
        self.commits: List[Snapshot] = []

    def snapshot(self) -> Snapshot:
        return Snapshot(self.sequence, self.generation, tuple(self.rows.values()))

    def commit(self, row: Row) -> Row:
        self.sequence += 1
        row = replace(row, generation=self.generation, updated_at_ms=self.now)
        self.rows[row.key] = row
        self.commits.append(self.snapshot())
        return row

    # --- calls -----------------------------------------------------------------------------------------------------

    def register(self) -> None:
        """Open for writing: a new generation, before anything else."""
        self.held = {}
        self.sequence += 1
        self.generation += 1
        self.commits.append(self.snapshot())

    def begin(self, actor: str, kind: str, key: str, policy: str, request: bytes, fingerprint: Optional[bytes]) -> str:
        row = self.asked(kind, key, policy, request, fingerprint, "INTENT")
        recorded = self.rows.get(key)
        if recorded is None:
            outcome, row = "FRESH", self.commit(row)
        else:
            if not self.same(recorded, row):
                raise Refused("ECONFLICT")
            outcome = self.finds(recorded)
            if outcome == "FRESH":
                row = self.commit(self.again(recorded, row))
            else:
                row = recorded
        self.held[actor] = row
        return outcome

    def asked(self, kind: str, key: str, policy: str, request: bytes, fingerprint: Optional[bytes], state: str) -> Row:
        if len(request) > self.limit:
            raise Refused("ETOOBIG")
        same = fingerprint if fingerprint is not None else (kind, request)
        return Row(kind, key, policy, request or None, None, state, 1, 0, 0, same)

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
        return replace(recorded, request=row.request, result=None, state="INTENT", attempt=recorded.attempt + 1)

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
        self.held[actor] = self.rows[key]
        return True

    def move(self, actor: str, verb: str, payload: Any = b"") -> None:
        """A transition: from what the handle knows, if that is still so."""
        known = self.held[actor]
        state, sources, brings = TRANSITIONS[verb]
        if known.state not in sources or not self.is_still(known):
            raise Refused("ESTATE")
        result = self.cut(payload) if brings else known.result
        self.held[actor] = self.commit(replace(known, state=state, result=result))

    def is_still(self, known: Row) -> bool:
        row = self.rows[known.key]
        return (row.state, row.generation, row.attempt) == (known.state, known.generation, known.attempt)

    def cut(self, payload: Any) -> Any:
        if payload is not ANY and len(payload) > self.limit:
            return f"sha256:{hashlib.sha256(payload).hexdigest()} bytes:{len(payload)}".encode()
        return payload or None

    def resolve(self, actor: str, outcome: str, payload: bytes) -> None:
        known = self.held[actor]
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

    def recover(self, prefix: str, probes: Dict[str, Tuple[str, bytes]]) -> List[Tuple[str, str, str, str]]:
        """Rows: key, state before, what the probe found or NONE, state after."""
        rows = []
        for row in list(self.rows.values()):
            if self.is_open(row) and row.kind.startswith(prefix):
                self.held["recovery"] = row
                found = self.decide(row, probes)
                rows.append((row.key, row.state, found, self.rows[row.key].state))
        return rows

    def is_open(self, row: Row) -> bool:
        earlier = row.generation < self.generation
        return row.state == "UNKNOWN" or (earlier and row.state in ("INTENT", "DISPATCHED", "OBSERVED"))

    def decide(self, row: Row, probes: Dict[str, Tuple[str, bytes]]) -> str:
        if row.state == "OBSERVED":
            self.move("recovery", "confirm")
        elif row.state == "INTENT" or row.policy == "REPEATABLE":
            self.move("recovery", "fail", ANY)
        else:
            outcome, payload = probes.get(row.key, ("UNKNOWN", b""))
            self.resolve("recovery", outcome, payload)
            return outcome
        return "NONE"


# --- one rule wrong each: the tests have to notice ---

class ForgetsGeneration(Model):
    """A dispatch of an earlier generation is taken for our own."""
    def finds(self, recorded: Row) -> str:
        return "ATTACHED" if recorded.state == "DISPATCHED" else super().finds(recorded)


class RetriesUnknown(Model):
    """What nobody knows is begun again."""
    def finds(self, recorded: Row) -> str:
        return "FRESH" if recorded.state == "UNKNOWN" else super().finds(recorded)


class LastPolicy(Model):
    """A later policy replaces the first."""
    def again(self, recorded: Row, row: Row) -> Row:
        return replace(super().again(recorded, row), policy=row.policy)


class SameAttempt(Model):
    """A retry keeps the number of the attempt."""
    def again(self, recorded: Row, row: Row) -> Row:
        return replace(super().again(recorded, row), attempt=recorded.attempt)


class LastObservation(Model):
    """A handle that knows an older state may still write."""
    def is_still(self, known: Row) -> bool:
        return True


class KindDoesNotCount(Model):
    """The same fingerprint under another kind is the same request."""
    def same(self, recorded: Row, row: Row) -> bool:
        return recorded.fingerprint == row.fingerprint


class ProbesNeverHandOver(Model):
    """NEVER_REPEAT stays UNKNOWN, for a retry to come."""
    def nobody_knows(self, actor: str, known: Row) -> None:
        if known.state == "DISPATCHED":
            self.move(actor, "unknown", ANY)


class OwnIsOpen(Model):
    """Recovery takes what this very coordinator has in flight for lost."""
    def is_open(self, row: Row) -> bool:
        return row.state in ("INTENT", "DISPATCHED", "OBSERVED", "UNKNOWN")


class IntentIsProbed(Model):
    """What was never dispatched is asked for."""
    def decide(self, row: Row, probes: Dict[str, Tuple[str, bytes]]) -> str:
        if row.state != "INTENT":
            return super().decide(row, probes)
        self.move("recovery", "fail", ANY)
        return "UNKNOWN"


class WholePayload(Model):
    """What is over the limit is kept."""
    def cut(self, payload: Any) -> Any:
        return payload or None


class ClockRises(Model):
    """Time never goes back."""
    def commit(self, row: Row) -> Row:
        self.now = max([self.now] + [one.updated_at_ms for one in self.rows.values()])
        return super().commit(row)


class LateRegistration(Model):
    """Opening is no record."""
    def register(self) -> None:
        super().register()
        self.sequence -= 1


MUTANTS = [ForgetsGeneration, RetriesUnknown, LastPolicy, SameAttempt, LastObservation, KindDoesNotCount,
           ProbesNeverHandOver, OwnIsOpen, IntentIsProbed, WholePayload, ClockRises, LateRegistration]
