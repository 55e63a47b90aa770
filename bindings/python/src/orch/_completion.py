# SPDX-License-Identifier: Apache-2.0
"""What a verb that takes time gives back, and streams of events."""
import asyncio
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, Generator, Generic, List, Optional, TypeVar

from ._errors import Canceled, ClosedError, Code

if TYPE_CHECKING:
    from .context import Context

T = TypeVar("T")


class Completion(Generic[T]):
    """The end of something that was begun. It goes on whether anybody waits for it or not.

    `await completion` inside asyncio, in an attached context: gives the value or raises the error. A cancelled await
    cancels the waiting only, and it may be awaited again.
    `completion.result(timeout_ms)` elsewhere: runs the context until it is done.
    `completion.add_done_callback(fn)`: fn(completion), inside Context.run() or process().
    """

    def __init__(self, context: "Context", what: str) -> None:
        self._context = weakref.ref(context)
        self._what = what
        self._done = False
        self._value: Optional[T] = None
        self._error: Optional[BaseException] = None
        self._listeners: List[Callable[["Completion[T]"], Any]] = []
        self._kept: Any = None

    def done(self) -> bool:
        """Whether it is over."""
        return self._done

    def result(self, timeout_ms: int = -1) -> T:
        """The value, or the error raised; runs the context until then. TimedOut after `timeout_ms` (-1: no limit)."""
        if not self._done:
            self._owner().drive(self._turn, timeout_ms, self._what)
        return self._outcome()

    def add_done_callback(self, listener: Callable[["Completion[T]"], Any]) -> None:
        """Calls listener(completion) when it is over; at once if it is already."""
        if self._done:
            listener(self)
        else:
            self._listeners.append(listener)

    def __await__(self) -> Generator[Any, None, T]:
        if not self._done:
            self._owner().require_attached(self._what)
            future = asyncio.get_running_loop().create_future()

            def wake(_completion: "Completion[T]") -> None:
                if not future.done():
                    future.set_result(None)

            self._listeners.append(wake)
            try:
                yield from future
            finally:
                if wake in self._listeners:
                    self._listeners.remove(wake)
        return self._outcome()

    def __repr__(self) -> str:
        state = "pending" if not self._done else "failed" if self._error else "done"
        return f"<orch.Completion of {self._what}: {state}>"

    # --- for the nouns ---------------------------------------------------------------------------------------------

    def keep(self: "Completion[T]", handle: Any) -> "Completion[T]":
        """Keeps a handle from being collected until it is over: nothing would come of it otherwise."""
        if not self._done:
            self._kept = handle
        return self

    def finish(self, value: T) -> None:
        """The first end counts."""
        self._settle(value, None)

    def fail(self, error: BaseException) -> None:
        """The first end counts."""
        self._settle(None, error)

    def abandon(self) -> None:
        """C will not call back any more."""
        if not self._done:
            self.fail(Canceled(Code.ECANCELED, f"{self._what}: closed before it was done"))

    # ---------------------------------------------------------------------------------------------------------------

    def _settle(self, value: Optional[T], error: Optional[BaseException]) -> None:
        if self._done:
            return
        self._done, self._value, self._error, self._kept = True, value, error, None
        listeners, self._listeners = self._listeners, []
        raised: Optional[BaseException] = None
        for listener in listeners:
            try:
                listener(self)
            except BaseException as failure:  # pylint: disable=broad-except
                raised = raised or failure
        if raised is not None:
            raise raised

    def _outcome(self) -> T:
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._value  # type: ignore[return-value]

    def _owner(self) -> "Context":
        context = self._context()
        if context is None:
            raise ClosedError(Code.ECLOSED, f"{self._what}: its context is closed")
        return context

    def _turn(self) -> bool:
        if not self._done:
            self._owner().process()
        return self._done


class Stream(Generic[T]):
    """Events, for `async for`, by one reader. It ends after the last event; cancelling the reader loses none."""

    def __init__(self, context: "Context", what: str, waiting: List[T], ended: bool) -> None:
        self._context = weakref.ref(context)
        self._what = what
        self._waiting: Deque[T] = deque(waiting)
        self._ended = ended
        self._future: "Optional[asyncio.Future[None]]" = None

    def put(self, event: T) -> None:
        """For the nouns."""
        self._waiting.append(event)
        self._wake()

    def end(self) -> None:
        """For the nouns."""
        self._ended = True
        self._wake()

    def waiting(self) -> int:
        """For the nouns: how many events the reader has not taken."""
        return len(self._waiting)

    def _wake(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def __aiter__(self) -> "Stream[T]":
        return self

    async def __anext__(self) -> T:
        while not self._waiting:
            context = self._context()
            if self._ended or context is None:
                raise StopAsyncIteration
            context.require_attached(self._what)
            self._future = asyncio.get_running_loop().create_future()
            try:
                await self._future
            finally:
                self._future = None
        return self._waiting.popleft()


class Source(Generic[T]):
    """Where events come from: a listener, and any number of streams. It knows no handle and keeps none alive."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._streams: "weakref.WeakSet[Stream[T]]" = weakref.WeakSet()
        self._ended = False
        self.listener: Optional[Callable[[T], Any]] = None

    def put(self, event: T) -> None:
        """One event for all."""
        for stream in list(self._streams):
            stream.put(event)
        if self.listener is not None:
            self.listener(event)

    def end(self) -> None:
        """No more events."""
        self.listener = None
        self.end_streams()

    def end_streams(self) -> None:
        """No more events for streams."""
        self._ended = True
        for stream in list(self._streams):
            stream.end()

    def stream(self, context: "Context", before: Optional[List[T]] = None) -> Stream[T]:
        """A new stream: `before`, then what comes from now on."""
        made = Stream(context, self._what, before or [], self._ended)
        self._streams.add(made)
        return made
