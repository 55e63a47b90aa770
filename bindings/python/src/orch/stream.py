# SPDX-License-Identifier: Apache-2.0
"""ProgramStream: what a program of a scope reads and writes, by pipe or terminal."""
import ctypes
from typing import Any, Callable, List, Optional, Union

from . import _callbacks, _handle, _table
from ._completion import Completion, Source, Stream
from ._enums import StreamEnd, StreamKind, choice
from ._errors import Code
from ._native import call, lib, options
from .context import Context


class _State:
    """What C's callbacks go to. It does not keep the ProgramStream alive."""

    def __init__(self, context: Context, on_data: Optional[Callable[[bytes], Any]],
                 on_writable: Optional[Callable[[], Any]]) -> None:
        self.end: "Completion[StreamEnd]" = Completion(context, "ProgramStream.end()")
        self.source: Source[bytes] = Source("ProgramStream.chunks()")
        self.before: List[bytes] = []
        self.kept = on_data is None
        self.on_data, self.on_writable = on_data, on_writable

    def happened(self, _pointer: int, *arguments: Any) -> None:
        """The three callbacks: bytes and their number, the end, room in the queue."""
        if len(arguments) == 2:
            self.data(ctypes.string_at(*arguments))
        elif arguments:
            self.end.finish(choice(StreamEnd, arguments[0]))
        elif self.on_writable is not None:
            self.on_writable()

    def data(self, piece: bytes) -> None:
        """A piece of output: to the function, else to the reader of chunks()."""
        if self.on_data is not None:
            self.on_data(piece)
        elif self.kept:
            self.before.append(piece)
        else:
            self.source.put(piece)

    def gone(self) -> None:
        """Nothing more comes."""
        self.on_data = self.on_writable = None
        self.source.end()
        self.end.abandon()


class ProgramStream(_handle.Handle):
    """One end of a pipe or terminal; the program that it is given to in spawn() has the other.

    What the program itself wrote before it exited is there before its exit is told, and a descendant that keeps the
    other end open delays nothing: the end is CUT then, or, with `hold`, comes with the scope's certificate.

    kind                 StreamKind.OUTPUT (stdout, stderr or both), INPUT (stdin), PTY (for all three)
    on_data              called with each piece of output; without it the pieces wait for chunks()
    on_writable          called when there is room again after a write() that took less than all
    capture_first_bytes, capture_last_bytes   what of an output is kept for `captured`
    capture_only         nothing is given to chunks()
    queue_limit_bytes    what of an input waits at most; by default 65536
    rows, columns        of a terminal; by default 24 and 80
    hold                 it goes on after its program's exit
    paused               it begins as after pause()

    Closing the handle does not end it: see shut(). Error ESYS: no descriptor or terminal can be had.
    """

    _noun = "stream"

    def __init__(self, context: Context, kind: StreamKind, *, on_data: Optional[Callable[[bytes], Any]] = None,
                 on_writable: Optional[Callable[[], Any]] = None, capture_first_bytes: Optional[int] = None,
                 capture_last_bytes: Optional[int] = None, capture_only: bool = False,
                 queue_limit_bytes: Optional[int] = None, rows: Optional[int] = None, columns: Optional[int] = None,
                 hold: bool = False, paused: bool = False) -> None:
        flags = (_table.ORCH_STREAM_HOLD if hold else 0) | (_table.ORCH_STREAM_PAUSED if paused else 0)
        opts = options(_table.orch_stream_opts, kind=kind, flags=flags, capture_first_bytes=capture_first_bytes,
                       capture_last_bytes=capture_last_bytes, queue_limit_bytes=queue_limit_bytes, rows=rows,
                       columns=columns)
        self._state = state = _State(context, on_data, on_writable)
        if kind != StreamKind.INPUT and not capture_only:
            opts.data = _callbacks.STREAM_DATA
        opts.end, opts.writable, opts.destroy = _callbacks.STREAM_END, _callbacks.STREAM_WRITABLE, _callbacks.DESTROY
        pointer = context._pointer
        opts.userdata = _callbacks.add(state.happened, state.gone)
        super().__init__(self._make("orch_stream_new", pointer, ctypes.byref(opts)), context)

    def _init_borrowed(self) -> None:
        raise TypeError("a ProgramStream is made, not borrowed")

    # --- output ----------------------------------------------------------------------------------------------------

    def chunks(self) -> Stream[bytes]:
        """The pieces of output, for `async for`, by one reader; from the beginning if it is the first. They are kept
        here as long as nobody takes them: pause() holds the program instead."""
        self._check_open()
        before, self._state.before, self._state.kept = self._state.before, [], False
        return self._state.source.stream(self.context, before)

    def pause(self) -> None:
        """Nothing is read: the program stands still once its pipe is full, and nothing is lost. ClosedError."""
        call("orch_stream_pause", self._pointer)

    def resume(self) -> None:
        """Reads again. ClosedError."""
        call("orch_stream_resume", self._pointer)

    @property
    def captured(self) -> bytes:
        """What was kept: the first capture_first_bytes, and the last capture_last_bytes behind them."""
        length = ctypes.c_size_t()
        pointer = lib.orch_stream_captured(self._pointer, ctypes.byref(length))
        return ctypes.string_at(pointer, length.value)

    @property
    def dropped(self) -> int:
        """Bytes that were read and not kept, from between the two parts of `captured`."""
        return int(lib.orch_stream_dropped(self._pointer))

    # --- input -----------------------------------------------------------------------------------------------------

    def write(self, what: Union[bytes, str]) -> int:
        """Gives the program bytes to read. How many were taken: fewer than all if the queue is full, and then
        on_writable comes. ClosedError."""
        data = what.encode() if isinstance(what, str) else bytes(what)
        taken = ctypes.c_size_t()
        call("orch_stream_write", self._pointer, data, len(data), ctypes.byref(taken), allow=(Code.EBUSY,))
        return taken.value

    def shut(self) -> None:
        """No more comes from here. Input: what waits is written, then the program reads end of file. Output: no more
        is read. Terminal: it is hung up."""
        call("orch_stream_close", self._pointer)

    @property
    def queued(self) -> int:
        """Bytes that wait to be read; after the end, that nobody will read."""
        return int(lib.orch_stream_queued(self._pointer))

    def resize(self, rows: int, columns: int) -> None:
        """The terminal has another size: SIGWINCH. ClosedError."""
        call("orch_stream_resize", self._pointer, rows, columns)

    # --- the end ---------------------------------------------------------------------------------------------------

    def end(self) -> "Completion[StreamEnd]":
        """How it ended."""
        self._check_open()
        return self._state.end.keep(self)

    def end_wait(self, timeout_ms: int = -1) -> StreamEnd:
        """The waiting form. TimedOut; Deadlock."""
        reason = ctypes.c_uint32()
        self.context.drive(
            lambda: self.context.dispatch("orch_stream_end_wait", self._pointer, 0, ctypes.byref(reason),
                                          allow=(Code.ETIMEDOUT,)) == 0, timeout_ms, "ProgramStream.end_wait()")
        return choice(StreamEnd, reason.value)

    @property
    def reason(self) -> Optional[StreamEnd]:
        """How it ended, or None."""
        reason = lib.orch_stream_reason(self._pointer)
        return choice(StreamEnd, reason) if reason else None

    @property
    def bytes(self) -> int:
        """Bytes of the program's that were read; input: that went into the pipe."""
        return int(lib.orch_stream_bytes(self._pointer))
