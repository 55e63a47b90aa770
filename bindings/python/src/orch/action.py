# SPDX-License-Identifier: Apache-2.0
"""Action: what the journal records, from its intent to its confirmed end."""
import ctypes
from typing import NamedTuple, Optional, Union

from . import _callbacks, _handle
from ._completion import Completion
from ._enums import ActionState, Begin, Decision, Outcome, Policy, choice
from ._errors import error_of
from ._native import Text, buffer, call, encode, length, lib, payload, text
from .context import Context

Payload = Union[bytes, bytearray, memoryview, str, None]


class Decided(NamedTuple):
    """What a person decided about an action."""
    decision: Decision
    by: str
    at_ms: int


class Action(_handle.Handle):
    """One action: what was intended, dispatched, observed and confirmed. Made by Journal.begin(), find(), actions().

    The transitions are each one durable commit. Error ESTATE: another transition was first, nothing was changed; look
    the action up again. EPOISONED: a commit failed, reopen the journal. ENOSPC (dispatch only): the disk is full.
    One thread uses an Action at a time.
    """

    _noun = "action"

    def __init__(self, pointer: int) -> None:
        super().__init__(pointer, None)

    # --- transitions -----------------------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """From INTENT: it is about to be done."""
        call("orch_action_dispatch", self._pointer)

    def observe(self, result: Payload = None) -> None:
        """From DISPATCHED, UNKNOWN, HANDED_OVER: the result was seen. A payload over the limit is cut, and says so."""
        self._with_payload("orch_action_observe", result)

    def confirm(self) -> None:
        """From OBSERVED: the outside confirms it."""
        call("orch_action_confirm", self._pointer)

    def fail(self, reason: Payload = None) -> None:
        """It is known not to have happened: a later begin is FRESH again."""
        self._with_payload("orch_action_fail", reason)

    def unknown(self, reason: Payload = None) -> None:
        """From DISPATCHED: nobody can tell. No blind retry."""
        self._with_payload("orch_action_unknown", reason)

    def hand_over(self, reason: Payload = None) -> None:
        """A person decides."""
        self._with_payload("orch_action_hand_over", reason)

    def abandon(self, reason: Payload = None) -> None:
        """Given up."""
        self._with_payload("orch_action_abandon", reason)

    def resolve(self, outcome: Outcome, result: Payload = None) -> None:
        """From DISPATCHED, UNKNOWN: applies what a probe found, as Journal.recover() does."""
        given = payload(result)
        call("orch_action_resolve", self._pointer, int(outcome), given, length(given))

    def decide(self, decision: Decision, by: Text, note: Payload = None) -> None:
        """From HANDED_OVER, UNKNOWN: what a person found out. Who it was and the note stay in the journal.

        APPLIED makes it CONFIRMED, NOT_APPLIED FAILED, ABANDON ABANDONED; the note becomes its result.
        """
        given = payload(note)
        call("orch_action_decide", self._pointer, int(decision), encode(by), given, length(given))

    def move_async(self, context: Context, state: ActionState, value: Payload = None) -> "Completion[None]":
        """Any of the transitions, by the state to reach, without waiting for the disk: done when it is durable.

        Moves that are asked for at the same time share a commit. Error EBUSY: this Action has a move under way.
        Canceled: the journal was closed first; what was asked for is recorded all the same.
        """
        pointer, given = self._pointer, payload(value)
        completion: "Completion[None]" = Completion(context, "Action.move_async()")

        def moved(_action: int, error: Optional[int]) -> None:
            if error:
                completion.fail(error_of(error))
            else:
                completion.finish(None)

        key = _callbacks.add(moved, completion.abandon)
        call("orch_action_move_async", pointer, context._pointer, int(state), given, length(given), _callbacks.MOVED,
             key, _callbacks.DESTROY)
        return completion.keep(self)

    def _with_payload(self, function: str, value: Payload) -> None:
        given = payload(value)
        call(function, self._pointer, given, length(given))

    # --- looking ---------------------------------------------------------------------------------------------------

    @property
    def id(self) -> int:
        """Its number in the journal."""
        return int(lib.orch_action_id(self._pointer))

    @property
    def kind(self) -> str:
        """What it is: "notify.send"."""
        return text(lib.orch_action_kind(self._pointer))

    @property
    def key(self) -> str:
        """Its idempotency key."""
        return text(lib.orch_action_key(self._pointer))

    @property
    def state(self) -> ActionState:
        """What this handle knows of its state."""
        return choice(ActionState, lib.orch_action_state(self._pointer))

    @property
    def state_name(self) -> str:
        """The same in words."""
        return text(lib.orch_action_state_name(int(self.state)))

    @property
    def policy(self) -> Policy:
        """Whether it may be done again."""
        return choice(Policy, lib.orch_action_policy(self._pointer))

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return int(lib.orch_action_attempt(self._pointer))

    @property
    def generation(self) -> int:
        """Of the coordinator that moved it last."""
        return int(lib.orch_action_generation(self._pointer))

    @property
    def created_at_ms(self) -> int:
        """When it was begun first, in ms since 1970."""
        return int(lib.orch_action_created_at_ms(self._pointer))

    @property
    def updated_at_ms(self) -> int:
        """When it was moved last, in ms since 1970."""
        return int(lib.orch_action_updated_at_ms(self._pointer))

    @property
    def request(self) -> Optional[bytes]:
        """Its request, or None."""
        return self._payload("orch_action_request")

    @property
    def result(self) -> Optional[bytes]:
        """Its result, or the reason of a side state, or None."""
        return self._payload("orch_action_result")

    @property
    def pruned(self) -> bool:
        """Whether Journal.prune() dropped its payloads: they read b"sha256:HEX bytes:N"."""
        return bool(lib.orch_action_pruned(self._pointer))

    @property
    def decision(self) -> Optional[Decided]:
        """The last decision of a person about it: (decision, by, at_ms), or None."""
        by, at_ms = ctypes.c_char_p(), ctypes.c_int64()
        made = lib.orch_action_decision(self._pointer, ctypes.byref(by), ctypes.byref(at_ms))
        return Decided(choice(Decision, made), text(by.value), at_ms.value) if made else None

    def _payload(self, function: str) -> Optional[bytes]:
        size = ctypes.c_size_t()
        return buffer(getattr(lib, function)(self._pointer, ctypes.byref(size)), size.value)

    def _describe(self) -> str:
        return f" {self.id} {self.kind} {self.key!r} {self.state_name}"


class Begun(NamedTuple):
    """What Journal.begin() gives."""
    outcome: Begin
    action: Action
