# SPDX-License-Identifier: Apache-2.0
"""Timer: what is due at some time, also after a restart. TimerWatch: tells when."""
import ctypes
from typing import Any, Callable, List, NamedTuple, Optional

from . import _callbacks, _handle, _table
from ._completion import Source, Stream
from ._enums import TimerState, choice
from ._errors import Code, make_error
from ._native import Text, address, buffer, call, encode, length, lib, options, payload, text
from .action import Payload
from .context import Context
from .journal import Journal


class NextTimer(NamedTuple):
    """The pending timer that is due next, and how long until then; 0: it is due."""
    timer: "Timer"
    wait_ms: int


class Timer(_handle.Handle):
    """A timer that survives the coordinator, as it was when it was looked up. Made by set(), find(), all(), next().

    A due timer stays due until done(): killed in between, it is due again after the restart. What it starts is best an
    action whose key names the timer and its round.
    """

    _noun = "timer"

    def __init__(self, pointer: int) -> None:
        super().__init__(pointer, None)

    @classmethod
    def set(cls, journal: Journal, name: Text, *, due_at_ms: int = 0, delay_ms: int = 0,
            value: Payload = None) -> "Timer":
        """Sets a timer, or sets it anew under the same name: its round rises by 1.

        due_at_ms  ms since 1970: when the wall clock says so, however it was stepped
        delay_ms   when so much time has passed, suspend included; after a reboot what the wall clock leaves of it
        value      its payload, at most 4096 bytes

        Error EINVAL: both times are set, or one is negative or too far; ETOOBIG; others as Journal.begin().
        """
        given = payload(value)
        opts = options(_table.orch_timer_opts, name=encode(name), due_at_ms=due_at_ms, delay_ms=delay_ms,
                       payload=address(given), payload_length=length(given))
        return cls(cls._make("orch_timer_set", journal._pointer, ctypes.byref(opts)))

    @classmethod
    def find(cls, journal: Journal, name: Text) -> "Optional[Timer]":
        """The timer of that name, in whatever state, or None."""
        pointer = ctypes.c_void_p()
        code = call("orch_timer_find", journal._pointer, encode(name), ctypes.byref(pointer), allow=(Code.ENOENT,))
        return None if code == Code.ENOENT else cls(pointer.value or 0)

    @classmethod
    def all(cls, journal: Journal) -> "List[Timer]":
        """All of a journal, in the order in which they were first set."""
        found: List[Timer] = []
        key = _callbacks.add(lambda pointer: found.append(Timer._borrow(pointer, None)))
        try:
            call("orch_timer_each", journal._pointer, _callbacks.TIMER, key)
        finally:
            _callbacks.discard(key)
        return found

    @classmethod
    def next(cls, journal: Journal) -> Optional[NextTimer]:
        """For callers without a context: the pending timer that is due next, or None. Ask again after at most a minute,
        for the clock may be stepped."""
        pointer, wait_ms = ctypes.c_void_p(), ctypes.c_int64()
        call("orch_timer_next", journal._pointer, ctypes.byref(pointer), ctypes.byref(wait_ms))
        return NextTimer(cls(pointer.value), wait_ms.value) if pointer.value else None

    def done(self) -> None:
        """What it was for is done. Error ESTATE: it is not pending in this round any more."""
        call("orch_timer_done", self._pointer)

    def cancel(self) -> None:
        """It is not wanted any more. Error ESTATE: as done()."""
        call("orch_timer_cancel", self._pointer)

    @property
    def id(self) -> int:
        """Its number in the journal."""
        return int(lib.orch_timer_id(self._pointer))

    @property
    def name(self) -> str:
        """Its name, unique in the journal."""
        return text(lib.orch_timer_name(self._pointer))

    @property
    def state(self) -> TimerState:
        """What this handle knows of its state."""
        return choice(TimerState, lib.orch_timer_state(self._pointer))

    @property
    def state_name(self) -> str:
        """The same in words."""
        return text(lib.orch_timer_state_name(int(self.state)))

    @property
    def round(self) -> int:
        """1 when it is set first."""
        return int(lib.orch_timer_round(self._pointer))

    @property
    def due_at_ms(self) -> int:
        """In ms since 1970, by the wall clock as it was when it was set."""
        return int(lib.orch_timer_due_at_ms(self._pointer))

    @property
    def delay_ms(self) -> int:
        """0 for a timer that was set with due_at_ms."""
        return int(lib.orch_timer_delay_ms(self._pointer))

    @property
    def payload(self) -> Optional[bytes]:
        """What was given with it, or None."""
        size = ctypes.c_size_t()
        return buffer(lib.orch_timer_payload(self._pointer, ctypes.byref(size)), size.value)

    def _describe(self) -> str:
        return f" {self.id} {self.name!r} round {self.round} {self.state_name}"


class TimerWatch(_handle.Handle):
    """Tells of each timer when it is due: once for each round, also of those that are due already.

    With `on_due` it is called with each Timer. Without one:

        async for timer in orch.TimerWatch(journal, context):
            ...
            timer.done()

    It ends with close(), with its context, or when nobody refers to it any more; the journal stays open until then.
    Error ESTATE: the journal is read-only.
    """

    _noun = "timer_watch"

    def __init__(self, journal: Journal, context: Context, on_due: Optional[Callable[[Timer], Any]] = None) -> None:
        owner, loop = journal._pointer, context._pointer
        source: Source[Timer] = Source("TimerWatch")
        source.listener = on_due
        self._stream = source.stream(context) if on_due is None else None
        key = _callbacks.add(lambda pointer: source.put(Timer._borrow(pointer, None)), source.end)
        super().__init__(self._make("orch_timer_watch_new", owner, loop, _callbacks.TIMER_DUE, key,
                                    _callbacks.DESTROY), context)

    def __aiter__(self) -> "TimerWatch":
        self._check_open()
        if self._stream is None:
            raise make_error(Code.ESTATE, "this TimerWatch gives its timers to a function")
        return self

    async def __anext__(self) -> Timer:
        assert self._stream is not None
        return await self._stream.__anext__()
