# SPDX-License-Identifier: Apache-2.0
"""Recovery: what became of open actions after a restart. ProbeReply: what a probe answers."""
import ctypes
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Optional, Tuple

from . import _callbacks, _table
from ._enums import ActionState, Outcome, Recover, choice
from ._errors import ClosedError, Code
from ._native import Text, call, checked, encode, length, lib, options, payload, text
from .action import Action, Payload


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
#: Called with the action, what the probe found, and what is proposed; gives what is to be done, or None: as proposed.
DecideFunction = Callable[[Action, Outcome, Recover], Optional[Recover]]
#: Tells a person that an action waits for a decision.
HandOverFunction = Callable[[Action], Any]


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


class _Callbacks:
    """The three come with the same userdata, and tell themselves apart by their number of arguments."""

    def __init__(self, probe: Optional[ProbeFunction], decide: Optional[DecideFunction],
                 hand_over: Optional[HandOverFunction]) -> None:
        self._probe, self._decide, self._hand_over = probe, decide, hand_over

    def __call__(self, action: int, *arguments: int) -> Optional[int]:
        borrowed = Action._borrow(action, None)
        if not arguments:
            assert self._hand_over is not None
            self._hand_over(borrowed)
            return None
        if len(arguments) == 2:
            assert self._decide is not None
            return self._decide(borrowed, choice(Outcome, arguments[0]), choice(Recover, arguments[1]))
        assert self._probe is not None
        reply = ProbeReply(arguments[0])
        try:
            self._probe(borrowed, reply)
        finally:
            reply._end()
        return None


def carry_out(journal: int, kind_prefix: Optional[Text], probe: Optional[ProbeFunction],
            decide: Optional[DecideFunction], hand_over: Optional[HandOverFunction]) -> Recovery:
    """For Journal."""
    opts = options(_table.orch_recover_opts, kind_prefix=encode(kind_prefix),
                   probe=_callbacks.PROBE if probe is not None else None,
                   decide=_callbacks.DECIDE if decide is not None else None,
                   hand_over=_callbacks.HAND_OVER if hand_over is not None else None)
    key = opts.userdata = _callbacks.add(_Callbacks(probe, decide, hand_over))
    pointer = ctypes.c_void_p()
    try:
        call("orch_journal_recover", journal, ctypes.byref(opts), ctypes.byref(pointer))
        rows = tuple(_row(pointer, index) for index in range(lib.orch_recovery_count(pointer)))
        return Recovery(rows, text(lib.orch_recovery_text(pointer)))
    finally:
        _callbacks.discard(key)
        lib.orch_recovery_unref(pointer)


def _row(pointer: ctypes.c_void_p, index: int) -> RecoveryRow:
    action, decision = ctypes.c_void_p(), ctypes.c_char_p()
    before, probe = ctypes.c_uint32(), ctypes.c_uint32()
    checked(lib.orch_recovery_row(pointer, index, ctypes.byref(action), ctypes.byref(before), ctypes.byref(probe),
                                  ctypes.byref(decision)), "Recovery.rows")
    return RecoveryRow(Action._borrow(action.value or 0, None), choice(ActionState, before.value),
                       choice(Outcome, probe.value), text(decision.value))
