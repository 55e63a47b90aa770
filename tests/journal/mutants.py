"""Models with one rule wrong each, the ways in which others went wrong: the tests have to notice every one."""
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

from model import ANY, NEW, Model, Permit, Refused, Row, Timer, digest


# --- actions ---

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


class WholePayload(Model):
    """What is over the limit is kept."""
    def with_result(self, row: Row, payload: Any) -> Row:
        return replace(row, result=payload or None, cut=False)


class ClockRises(Model):
    """Time never goes back."""
    def stamped(self, row: Row) -> Row:
        latest = max([self.now] + [one.updated_at_ms for one in self.rows.values()])
        return replace(super().stamped(row), updated_at_ms=latest)


class LateRegistration(Model):
    """Opening is no record."""
    def register(self) -> None:
        super().register()
        self.sequence -= 1


# --- recovery, people ---

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
    def needs_no_probe(self, row: Row) -> bool:
        return row.state != "INTENT" and super().needs_no_probe(row)

    def resolve(self, actor: str, outcome: str, payload: bytes) -> None:
        if self.held.actions[actor].state == "INTENT" and actor == "recovery":
            self.move(actor, "fail", ANY)
        else:
            super().resolve(actor, outcome, payload)


class BelievesTheHost(Model):
    """A host that chooses CONTINUE or RETRY needs no evidence."""
    def may(self, row: Row, found: str, choice: str) -> bool:
        return choice in ("CONTINUE", "RETRY") or super().may(row, found, choice)


class TellsOnce(Model):
    """A person is told when an action is handed over, and not again."""
    def handed_over(self, rows: List[Tuple[str, str, str, str]]) -> List[str]:
        return super().handed_over([row for row in rows if row[1] != "HANDED_OVER"])


class ForgetsTheDecision(Model):
    """The next attempt has no decision any more."""
    def again(self, recorded: Row, row: Row) -> Row:
        return replace(super().again(recorded, row), decision=None)


class DecidesWithoutRecord(Model):
    """A decision is not recorded by itself."""
    def decide(self, actor: str, decision: str, by: str, note: bytes) -> None:
        super().decide(actor, decision, by, note)
        self.sequence -= 1


class DecidesWhatIsDone(Model):
    """A person may decide about any action."""
    def decide(self, actor: str, decision: str, by: str, note: bytes) -> None:
        known = self.held.actions[actor]
        if known.state == "OBSERVED":
            self.held.actions[actor] = replace(known, state="UNKNOWN")
            self.rows[known.key] = replace(self.rows[known.key], state="UNKNOWN")
        super().decide(actor, decision, by, note)


# --- permits ---

class TwiceUsed(Model):
    """A permit that another action has is good for one more."""
    def use(self, name: str, row: Row) -> List[Permit]:
        permit = self.permits.get(name)
        if permit and permit.state == "USED" and permit.action != row.key and not self.is_expired(permit):
            return [replace(permit, action=row.key)]
        return super().use(name, row)


class NoFurtherAttempt(Model):
    """The action that has a permit may not go on under it."""
    def use(self, name: str, row: Row) -> List[Permit]:
        if name in self.permits and self.permits[name].state == "USED":
            raise Refused("EPERMIT")
        return super().use(name, row)


class AnyKind(Model):
    """A permit is good for any kind and any request."""
    def fits(self, permit: Permit, row: Row) -> bool:
        return True


class NeverExpires(Model):
    """Nobody looks at the time."""
    def is_expired(self, permit: Permit) -> bool:
        return False


class ExpiresForNow(Model):
    """What was found expired is not recorded: a clock that steps back revives it."""
    def lapse(self, permit: Permit) -> None:
        pass


class ReplayUsesPermit(Model):
    """A permit is gone also where nothing is begun."""
    def finds(self, recorded: Row) -> str:
        outcome = super().finds(recorded)
        if outcome == "REPLAY":
            for permit in self.permits.values():
                if permit.state == "ISSUED" and self.fits(permit, recorded):
                    self.commit(replace(permit, state="USED", action=recorded.key))
                    break
        return outcome


class NewTerms(Model):
    """The same name with other terms is another permit."""
    def issue(self, name: str, kind: str, fingerprint: Optional[bytes], expires_at_ms: int, note: bytes) -> str:
        if name in self.permits and self.permits[name].kind != kind:
            return self.commit(replace(self.permits[name], kind=kind)).state
        return super().issue(name, kind, fingerprint, expires_at_ms, note)


class RevivedByBackup(Model):
    """A permit that was not used when the backup was made is good again."""
    def is_void(self, permit: Permit) -> bool:
        return False


# --- timers ---

class LateDone(Model):
    """Who knows an earlier round may end this one."""
    def is_round(self, known: Timer, now: Timer) -> bool:
        return True


class SameRound(Model):
    """A timer that is set anew keeps its round."""
    def next_round(self, before: Timer) -> int:
        return before.round


class DelayByWallClock(Model):
    """A step of the clock makes a delay shorter or longer."""
    def wait_ms(self, timer: Timer) -> int:
        return timer.due_at_ms - self.now


class WholeDelayAgain(Model):
    """A reboot begins a delay from its start."""
    def left_ms(self, timer: Timer) -> int:
        return timer.delay_ms


class ClockInflates(Model):
    """After a reboot a clock that was stepped back makes a delay longer than it ever was."""
    def left_ms(self, timer: Timer) -> int:
        return max(0, timer.due_at_ms - self.now)


class FiresOnce(Model):
    """What is due is gone when it was asked for."""
    def waits(self) -> Dict[str, int]:
        waits = super().waits()
        for name, wait_ms in waits.items():
            if wait_ms == 0:
                self.timers[name] = replace(self.timers[name], state="DONE")
        return waits


# --- keeping ---

class PrunesTheOpen(Model):
    """What waits for somebody is pruned too."""
    def is_closed(self, row: Row) -> bool:
        return row.state in ("HANDED_OVER", "UNKNOWN") or super().is_closed(row)


class PruneIsATransition(Model):
    """Pruning makes an action younger."""
    def without_payloads(self, row: Row) -> Row:
        return replace(super().without_payloads(row), updated_at_ms=self.now)


class PruneForgets(Model):
    """What was pruned can be begun again."""
    def finds(self, recorded: Row) -> str:
        return "FRESH" if recorded.pruned else super().finds(recorded)


class PrunedTwice(Model):
    """The digest of what was cut is taken for its contents."""
    def without_payloads(self, row: Row) -> Row:
        return replace(super().without_payloads(row), result=digest(row.result) if row.result else None)


class StaysAsItWas(Model):
    """A restored journal takes what was in flight for what it was."""
    def is_doubtful(self, row: Row) -> bool:
        return False


class TrustsFailed(Model):
    """What had failed before the backup may be begun again, whatever was done since."""
    def is_doubtful(self, row: Row) -> bool:
        return row.state != "FAILED" and super().is_doubtful(row)


class SameEpoch(Model):
    """A restored journal goes on in its epoch."""
    def restore(self, name: str, epoch: int) -> Tuple[int, int]:
        counts = super().restore(name, epoch)
        self.epoch = epoch
        return counts


class SameGeneration(Model):
    """A restored journal gives out the backup's next generation, whoever else had it."""
    def restore(self, name: str, epoch: int) -> Tuple[int, int]:
        counts = super().restore(name, epoch)
        generation = self.backups[name].generation
        self.rows = {key: replace(row, generation=generation) if row.generation == NEW else row
                     for key, row in self.rows.items()}
        return counts


ACTIONS = [ForgetsGeneration, RetriesUnknown, LastPolicy, SameAttempt, LastObservation, KindDoesNotCount, WholePayload,
           ClockRises, LateRegistration]
RECOVERY = [ProbesNeverHandOver, OwnIsOpen, IntentIsProbed, BelievesTheHost, TellsOnce, ForgetsTheDecision,
            DecidesWithoutRecord, DecidesWhatIsDone]
PERMITS = [TwiceUsed, NoFurtherAttempt, AnyKind, NeverExpires, ExpiresForNow, ReplayUsesPermit, NewTerms,
           RevivedByBackup]
TIMERS = [LateDone, SameRound, DelayByWallClock, WholeDelayAgain, ClockInflates, FiresOnce]
KEEPING = [PrunesTheOpen, PruneIsATransition, PruneForgets, PrunedTwice, StaysAsItWas, TrustsFailed, SameEpoch,
           SameGeneration]
