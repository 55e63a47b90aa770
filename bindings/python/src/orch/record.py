# SPDX-License-Identifier: Apache-2.0
"""Record: one thing that the journal wrote down. Watch: records as they become durable."""
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Type

from . import _callbacks, _handle
from ._completion import Stream
from ._enums import ActionState, Choice, Decision, PermitState, RecordType, TimerState, choice
from ._errors import Code, make_error
from ._native import call, lib, plain, text
from .context import Context

#: How many records a Watch keeps for a reader that is slow; it reads on when they are taken.
WAITING = 1000
#: How many records are read at a time by those who ask for all.
PAGE = 256

_STATES: Dict[int, Type[Choice]] = {
    RecordType.ACTION: ActionState, RecordType.PERMIT: PermitState, RecordType.TIMER: TimerState,
    RecordType.DECISION: Decision}


@dataclass(frozen=True)
class Record:
    """What happened.

    sequence    its number: 1, 2, 3, ...
    at_ms       when, in ms since 1970
    generation  of the coordinator that wrote it
    type        what it is about
    subject     id of the action, permit, timer or decision; the generation or epoch itself
    name        key of the action, also of a decision's; name of the permit or timer; or ""
    kind        of the action or permit; or ""
    state       what it made: ActionState, PermitState, TimerState or Decision; None for the others
    state_name  the same in words; or ""
    attempt     of the action; round of the timer; or 0
    """
    sequence: int
    at_ms: int
    generation: int
    type: RecordType
    type_name: str
    subject: int
    name: str
    kind: str
    state: Optional[Choice]
    state_name: str
    attempt: int


def read(record: int) -> Record:
    """A copy of one that C lends."""
    number = lib.orch_record_type(record)
    states = _STATES.get(number)
    return Record(
        sequence=int(lib.orch_record_sequence(record)), at_ms=int(lib.orch_record_at_ms(record)),
        generation=int(lib.orch_record_generation(record)), type=choice(RecordType, number),
        type_name=text(lib.orch_record_type_name(number)), subject=int(lib.orch_record_subject(record)),
        name=text(lib.orch_record_name(record)), kind=text(lib.orch_record_kind(record)),
        state=choice(states, lib.orch_record_state(record)) if states is not None else None,
        state_name=text(lib.orch_record_state_name(record)), attempt=int(lib.orch_record_attempt(record)))


def walk(journal: _handle.Handle, after: int) -> Iterator[Record]:
    """For Journal.records()."""
    while True:
        page: List[Record] = []

        def visit(record: int, found: List[Record] = page) -> int:
            found.append(read(record))
            return int(len(found) == PAGE)

        key = _callbacks.add(visit)
        try:
            call("orch_journal_records", journal._pointer, after, _callbacks.RECORD_READ, key)
        finally:
            _callbacks.discard(key)
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].sequence


class Watch(_handle.Handle):
    """Records as they become durable, each once and in order; made by Journal.watch().

    With a function it is called with each Record, until it answers neither None nor 0, or raises. Without one:

        async for record in journal.watch(context):
            ...

    It ends with close(), with its context, or when nobody refers to it any more; the journal stays open until then.
    Poisoned, a journal tells nothing more.
    """

    _noun = "watch"

    def __init__(self, journal: _handle.Handle, context: Context, after: int,
                 function: Optional[Callable[[Record], Any]]) -> None:
        held = journal._pointer
        self._state = _WatchState(context, function)
        super().__init__(self._begin(held, context, after), context)
        plain("orch_journal_ref", held)  # between two readings C has none
        self._journal = held

    def __aiter__(self) -> "Watch":
        self._check_open()
        if not self._state.streams:
            raise make_error(Code.ESTATE, "this Watch gives its records to a function")
        return self

    async def __anext__(self) -> Record:
        state = self._state
        if state.paused and not state.stream.waiting() and not self.closed:
            ended, self._held[0] = self._held[0], self._begin(self._journal, self.context, state.last)
            state.paused = False
            plain("orch_watch_unref", ended)
        return await state.stream.__anext__()

    def _begin(self, journal: int, context: Context, after: int) -> int:
        key = _callbacks.add(self._state.happened, self._state.begun())
        return self._make("orch_journal_watch", journal, context._pointer, after, _callbacks.RECORD_READ, key,
                          _callbacks.DESTROY)

    def _release(self, pointer: int) -> None:
        super()._release(pointer)
        self._state.stream.end()
        plain("orch_journal_unref", self._journal)


class _WatchState:
    """What C's records go to. It does not keep the Watch alive."""

    def __init__(self, context: Context, function: Optional[Callable[[Record], Any]]) -> None:
        self.stream: Stream[Record] = Stream(context, "Journal.watch()", [], False)
        self.streams = function is None
        self.paused = False
        self.last = 0
        self._function = function
        self._reading = 0

    def begun(self) -> Callable[[], None]:
        """C begins to read; gives what is called when it will not call any more."""
        self._reading += 1
        reading = self._reading

        def gone() -> None:
            if reading == self._reading and not self.paused:
                self._function = None
                self.stream.end()

        return gone

    def happened(self, pointer: int) -> int:
        """The callback."""
        record = read(pointer)
        if not self.streams:
            return int(self._function(record) or 0) if self._function is not None else 1
        self.last = record.sequence
        self.stream.put(record)
        self.paused = self.stream.waiting() >= WAITING
        return int(self.paused)
