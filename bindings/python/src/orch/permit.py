# SPDX-License-Identifier: Apache-2.0
"""Permit: lets one action happen once."""
import ctypes
from dataclasses import dataclass
from typing import List, Optional, Union

from . import _callbacks, _table
from ._enums import PermitState, choice
from ._errors import Code
from ._native import Text, address, buffer, call, encode, length, lib, options, payload, text
from .action import Payload
from .journal import Journal


@dataclass(frozen=True)
class Permit:
    """A permit as it was when it was looked up. It lets one action happen once: Journal.begin(permit=name) uses it up.

    It is bound to a kind of action and, with a fingerprint, to one request. A further attempt of the same action, after
    one that is known not to have happened, goes on under it. A restored backup brings none back.

    action         id of the action that has it; None: none
    epoch          of the journal in which it was issued
    expires_at_ms  ms since 1970; 0: never
    note           for people: why, by whom
    """
    id: int
    name: str
    kind: str
    state: PermitState
    state_name: str
    expires_at_ms: int
    epoch: int
    action: Optional[int]
    note: Optional[bytes]

    @classmethod
    def issue(cls, journal: Journal, name: Text, kind: Text, *, fingerprint: Payload = None, expires_at_ms: int = 0,
              note: Payload = None) -> "Permit":
        """Records a permit. The same name with the same terms gives the permit as it is now, in whatever state.

        name         unique in the journal for ever
        kind         of the action
        fingerprint  of the request, as in Journal.begin(); None: any request of that kind

        Error ECONFLICT: the name with other terms; others as Journal.begin().
        """
        same, why, pointer = payload(fingerprint), payload(note), ctypes.c_void_p()
        opts = options(_table.orch_permit_opts, name=encode(name), kind=encode(kind), fingerprint=address(same),
                       fingerprint_length=length(same), expires_at_ms=expires_at_ms, note=address(why),
                       note_length=length(why))
        try:
            call("orch_permit_issue", journal._pointer, ctypes.byref(opts), ctypes.byref(pointer))
            return _read(pointer)
        finally:
            lib.orch_permit_unref(pointer)

    @staticmethod
    def revoke(journal: Journal, name: Text) -> None:
        """Takes an issued permit back. Error ENOENT; ESTATE: it is used, expired, revoked or void."""
        call("orch_permit_revoke", journal._pointer, encode(name))

    @classmethod
    def find(cls, journal: Journal, name: Text) -> "Optional[Permit]":
        """The permit of that name, or None."""
        pointer = ctypes.c_void_p()
        try:
            code = call("orch_permit_find", journal._pointer, encode(name), ctypes.byref(pointer), allow=(Code.ENOENT,))
            return None if code == Code.ENOENT else _read(pointer)
        finally:
            lib.orch_permit_unref(pointer)

    @classmethod
    def all(cls, journal: Journal) -> "List[Permit]":
        """All of a journal, in the order of their issue."""
        found: List[Permit] = []
        key = _callbacks.add(lambda pointer: found.append(_read(pointer)))
        try:
            call("orch_permit_each", journal._pointer, _callbacks.PERMIT, key)
        finally:
            _callbacks.discard(key)
        return found


def _read(pointer: Union[ctypes.c_void_p, int]) -> Permit:
    size = ctypes.c_size_t()
    note = buffer(lib.orch_permit_note(pointer, ctypes.byref(size)), size.value)
    state = lib.orch_permit_state(pointer)
    return Permit(
        id=int(lib.orch_permit_id(pointer)), name=text(lib.orch_permit_name(pointer)),
        kind=text(lib.orch_permit_kind(pointer)), state=choice(PermitState, state),
        state_name=text(lib.orch_permit_state_name(state)), expires_at_ms=int(lib.orch_permit_expires_at_ms(pointer)),
        epoch=int(lib.orch_permit_epoch(pointer)), action=int(lib.orch_permit_action(pointer)) or None, note=note)
