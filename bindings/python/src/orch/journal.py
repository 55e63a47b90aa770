# SPDX-License-Identifier: Apache-2.0
"""Journal: a durable record of actions. Action: one of them. Recovery: what became of open ones after a restart."""
import ctypes
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple, Union

from . import _callbacks, _handle, _table
from ._enums import ActionState, Begin, Outcome, Policy, choice
from ._errors import ClosedError, Code
from ._native import (Path, Text, address, buffer, call, checked, encode, encode_path, length, lib, optional_path,
                      options, payload, text)

Payload = Union[bytes, bytearray, memoryview, str, None]


class Action(_handle.Handle):
    """One action: what was intended, dispatched, observed and confirmed. Made by Journal.begin(), find(), actions().

    The transitions are each one durable commit. Error ESTATE: another transition was first, nothing was changed; look
    the action up again. EPOISONED: a commit failed, reopen the journal. ENOSPC (dispatch only): the disk is full.
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
    def updated_at_ms(self) -> int:
        """When, in ms since 1970."""
        return int(lib.orch_action_updated_at_ms(self._pointer))

    @property
    def request(self) -> Optional[bytes]:
        """Its request, or None."""
        return self._payload("orch_action_request")

    @property
    def result(self) -> Optional[bytes]:
        """Its result, or the reason of a side state, or None."""
        return self._payload("orch_action_result")

    def _payload(self, function: str) -> Optional[bytes]:
        size = ctypes.c_size_t()
        return buffer(getattr(lib, function)(self._pointer, ctypes.byref(size)), size.value)

    def _describe(self) -> str:
        return f" {self.id} {self.kind} {self.key!r} {self.state_name}"


class Begun(NamedTuple):
    """What Journal.begin() gives."""
    outcome: Begin
    action: Action


class ProbeReply:
    """The reply to a probe. Answer inside the probe; no answer is UNKNOWN."""

    def __init__(self, pointer: int) -> None:
        self._held: Optional[int] = pointer

    @property
    def _pointer(self) -> int:
        if self._held is None:
            raise ClosedError(Code.ECLOSED, "this probe is over: answer inside it")
        return self._held

    def answer(self, outcome: Outcome, result: Payload = None) -> None:
        """What became of the action; `result` is recorded when APPLIED. Error ESTATE: answered already."""
        given = payload(result)
        checked(lib.orch_probe_reply_answer(self._pointer, int(outcome), given, length(given)), "ProbeReply.answer()")

    def _end(self) -> None:
        self._held = None


#: Asks the outside what became of an action, and answers the reply. Broker.probe is one.
ProbeFunction = Callable[[Action, ProbeReply], Any]


@dataclass(frozen=True)
class RecoveryRow:
    """What became of one action: the state before, what the probe found (NONE: none was asked), what was decided."""
    action: Action
    state_before: ActionState
    probe: Outcome
    decision: str


@dataclass(frozen=True)
class Recovery:
    """What Journal.recover() did: iterable by row. `text` is for people."""
    rows: Tuple[RecoveryRow, ...]
    text: str = field(repr=False)

    def __iter__(self) -> Iterator[RecoveryRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        return self.text


def _recovery_row(pointer: ctypes.c_void_p, index: int) -> RecoveryRow:
    action, decision = ctypes.c_void_p(), ctypes.c_char_p()
    before, probe = ctypes.c_uint32(), ctypes.c_uint32()
    checked(lib.orch_recovery_row(pointer, index, ctypes.byref(action), ctypes.byref(before), ctypes.byref(probe),
                                  ctypes.byref(decision)), "Recovery.rows")
    return RecoveryRow(Action._borrow(action.value or 0, None), choice(ActionState, before.value),
                       choice(Outcome, probe.value), text(decision.value))


class Journal(_handle.Handle):
    """A durable record of actions. It needs no context; what a call did is durable when it returns.

    A handle is used by one thread at a time. One coordinator owns a journal; a second one is refused. It is closed when
    its last handle is, those of its actions included.

    path           the database; beside it come PATH-wal, PATH.lock and PATH.reserve
    anchor_path    a small file outside the journal's folder, so that an older copy put back is noticed; None: none
    payload_limit  bytes of a request or result; by default 1 MiB
    read_only      reads what a dead coordinator wrote, without owning it
    on_record      called with the sequence number after each durable record; must not call the library

    Locked: another coordinator owns it; Error ECORRUPT, ESCHEMA, ENETFS, ENOENT, ENOSPC, ESYS, EINVAL.
    """

    _noun = "journal"

    def __init__(self, path: Path, *, anchor_path: Optional[Path] = None, payload_limit: Optional[int] = None,
                 read_only: bool = False, on_record: Optional[Callable[[int], Any]] = None) -> None:
        opts = options(_table.orch_journal_opts, path=encode_path(path), anchor_path=optional_path(anchor_path),
                       payload_limit=payload_limit, flags=_table.ORCH_JOURNAL_READ_ONLY if read_only else 0)
        if on_record is not None:
            opts.on_record, opts.destroy = _callbacks.RECORD, _callbacks.DESTROY
            opts.userdata = _callbacks.add(on_record)
        super().__init__(self._make("orch_journal_open", ctypes.byref(opts)), None)

    @property
    def generation(self) -> int:
        """This coordinator's: rises with each open for writing."""
        return int(lib.orch_journal_generation(self._pointer))

    @property
    def sequence(self) -> int:
        """Number of the last durable record."""
        return int(lib.orch_journal_sequence(self._pointer))

    def begin(self, kind: Text, key: Text, request: Payload = None, *, policy: Policy = Policy.NEVER_REPEAT,
              fingerprint: Payload = None) -> Begun:
        """Records an intent, or finds what is recorded under the key: (outcome, action). Dispatch only what is FRESH.

        kind         "notify.send": 1..63 of [a-z0-9._-]
        key          idempotency key, unique in the journal
        policy       whether it may be done again; the first one stays
        fingerprint  what makes two requests the same; None: SHA-256 of kind and request

        Error ECONFLICT: the key with another kind or fingerprint; ETOOBIG: nothing recorded; ENOSPC; EPOISONED.
        """
        given, same = payload(request), payload(fingerprint)
        opts = options(_table.orch_action_opts, kind=encode(kind), key=encode(key), policy=int(policy),
                       request=address(given), request_length=length(given), fingerprint=address(same),
                       fingerprint_length=length(same))
        outcome = ctypes.c_uint32()
        pointer = Action._make("orch_journal_begin", self._pointer, ctypes.byref(opts), ctypes.byref(outcome))
        return Begun(choice(Begin, outcome.value), Action(pointer))

    def record(self, kind: Text, key: Text, value: Payload = None) -> bool:
        """Records something whose record is the whole effect: straight to CONFIRMED. False: the same was there already.

        Error ECONFLICT: something else was; others as begin()."""
        given, fresh = payload(value), ctypes.c_int32()
        call("orch_journal_record", self._pointer, encode(kind), encode(key), given, length(given), ctypes.byref(fresh))
        return bool(fresh.value)

    def find(self, key: Text) -> Optional[Action]:
        """The action under a key, or None."""
        pointer = ctypes.c_void_p()
        code = call("orch_journal_find", self._pointer, encode(key), ctypes.byref(pointer), allow=(Code.ENOENT,))
        return None if code == Code.ENOENT else Action(pointer.value or 0)

    def each(self, function: Callable[[Action], Optional[int]], kind_prefix: Optional[Text] = None) -> int:
        """Walks the actions in order of their intent: function(action), until one answers neither None nor 0.

        The answer that ended it, or 0. The callback may keep the action, and move it on."""
        journal = self._pointer
        answers: List[int] = []

        def visit(pointer: int) -> int:
            answers.append(int(function(Action._borrow(pointer, None)) or 0))
            return 1 if answers[-1] else 0

        key = _callbacks.add(visit)
        try:
            ended = call("orch_journal_each", journal, encode(kind_prefix), _callbacks.ACTION, key)
        finally:
            _callbacks.discard(key)
        return answers[-1] if ended else 0

    def actions(self, kind_prefix: Optional[Text] = None) -> List[Action]:
        """All actions, or those whose kind starts with `kind_prefix`, in order of their intent."""
        found: List[Action] = []
        self.each(found.append, kind_prefix)
        return found

    def recover(self, probe: Optional[ProbeFunction] = None, kind_prefix: Optional[Text] = None) -> Recovery:
        """After a restart: for each action that an earlier generation left open, probes, then decides.

        probe  called with (action, reply); without one, or without an answer, it is UNKNOWN

        Each decision is a commit: it can be killed at any point and run again. What a probe raises is raised at the
        end; that action is UNKNOWN then.
        """
        journal = self._pointer

        def ask(action: int, pointer: int) -> None:
            assert probe is not None
            reply = ProbeReply(pointer)
            try:
                probe(Action._borrow(action, None), reply)
            finally:
                reply._end()

        key = _callbacks.add(ask)
        pointer = ctypes.c_void_p()
        try:
            call("orch_journal_recover", journal, encode(kind_prefix),
                 _callbacks.PROBE if probe is not None else _table.orch_probe_fn(), key, ctypes.byref(pointer))
            rows = tuple(_recovery_row(pointer, index) for index in range(lib.orch_recovery_count(pointer)))
            return Recovery(rows, text(lib.orch_recovery_text(pointer)))
        finally:
            _callbacks.discard(key)
            lib.orch_recovery_unref(pointer)

    def verify(self) -> int:
        """Checks the whole journal, and its anchor, and returns the number of records. Error ECORRUPT names the first
        record that does not fit."""
        records = ctypes.c_uint64()
        call("orch_journal_verify", self._pointer, ctypes.byref(records))
        return records.value
