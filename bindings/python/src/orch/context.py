# SPDX-License-Identifier: Apache-2.0
"""Context: the event loop that the other handles live in."""
import asyncio
import ctypes
import select
import time
from typing import Any, Callable, Coroutine, List, Optional, Protocol, Set, TypeVar

from . import _callbacks, _handle, _table
from ._completion import Completion
from ._enums import LogLevel, choice
from ._errors import ClosedError, Code, Deadlock, make_error
from ._native import Path, call, checked, encode_path, lib, optional_path, options, text, try_call

T = TypeVar("T")

#: What Context.close() gives jobs to end, which is what a stop is given for its certificate.
JOBS_END_S = 10

#: Called with the level and the line. It must not call the library.
LogFunction = Callable[[LogLevel, str], Any]


class Ending(Protocol):
    """What has to end before its context can."""

    def stop(self) -> None:
        """Makes it end soon."""


class Context(_handle.Handle):
    """The event loop that scopes, sandboxes, brokers, executors and pipelines live in.

    One thread owns it at a time: only wakeup() and close() are for other threads. Callbacks run only inside run(),
    process() and the waiting calls. It never takes the process's signals, children, threads, working directory,
    environment or standard streams. After os.fork() it raises Forked in the child.

        with orch.Context() as context:             # run(), *_wait() and Completion.result() do the work
            ...
        async with orch.Context.attach() as context:    # the running asyncio loop does it
            ...

    Closing it closes every handle in it: what still runs is killed.

    log          called with (LogLevel, line); must not call the library
    log_level    lines above it are dropped
    helper_path  absolute path of orch-reaper; by default the one beside the library
    """

    _noun = "ctx"

    def __init__(self, *, log: Optional[LogFunction] = None, log_level: LogLevel = LogLevel.NOTICE,
                 helper_path: Optional[Path] = None) -> None:
        opts = options(_table.orch_ctx_opts, helper_path=optional_path(helper_path), log_level=int(log_level))
        if log is not None:
            opts.log, opts.log_destroy = _callbacks.LOG, _callbacks.DESTROY
            opts.log_userdata = _callbacks.add(_log_call(log))
        pointer = self._make("orch_ctx_new", ctypes.byref(opts))
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._loop_fd = -1
        self._watchers: List[Callable[[], bool]] = []
        self._looking = False
        self._tasks: "Set[asyncio.Task[Any]]" = set()
        #: Jobs that have not ended: the library keeps their sandboxes and this context until they have.
        self.jobs: "Set[Ending]" = set()
        super().__init__(pointer, None)

    # --- driving ---------------------------------------------------------------------------------------------------

    def run(self, timeout_ms: int = -1) -> bool:
        """Runs until quit() (True) or until `timeout_ms` have passed (False; -1: no limit).

        Signals are handled as usual. An exception in a callback ends it and is raised here; it may be called again.
        Deadlock: inside a callback, or in a running asyncio loop. Error EBUSY: another thread runs it. Forked.
        """
        return self.drive(lambda: self.dispatch("orch_ctx_run", self._pointer, 0, allow=(Code.ETIMEDOUT,)) == 0,
                          timeout_ms, "Context.run()", raises=False)

    def quit(self) -> None:
        """Ends run() after the callbacks that are due. For use inside callbacks."""
        checked(lib.orch_ctx_quit(self._pointer), "Context.quit()")

    def process(self) -> None:
        """Does the work that is due, without blocking; raises what a callback raised. Deadlock: inside a callback."""
        self.dispatch("orch_ctx_process", self._pointer)

    def fileno(self) -> int:
        """A file descriptor that is readable while there is work for process(). Do not read, close or keep it."""
        return checked(lib.orch_ctx_fd(self._pointer), "Context.fileno()")

    def wakeup(self) -> None:
        """Makes the file descriptor readable and ends a blocking turn of run(). Any thread."""
        checked(lib.orch_ctx_wakeup(self._pointer), "Context.wakeup()")

    def record_scopes(self, path: Path) -> None:
        """From now on writes each new scope down in the file `path`, before anything of it is started: recover_scopes().

        Locked: a live host records in it. Errors ECORRUPT; ESTATE: it records already; ENOENT: no such folder.
        """
        call("orch_reaper_record", self._pointer, encode_path(path))

    # --- asyncio ---------------------------------------------------------------------------------------------------

    @classmethod
    def attach(cls, *, log: Optional[LogFunction] = None, log_level: LogLevel = LogLevel.NOTICE,
               helper_path: Optional[Path] = None) -> "Context":
        """A new context that the running asyncio loop drives, for `async with`. Options as for Context().

        What a callback raises goes to the loop's exception handler, unless a call was running it.
        """
        context = cls(log=log, log_level=log_level, helper_path=helper_path)
        context.attach_to(asyncio.get_running_loop())
        return context

    def attach_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """Has `loop` drive this context from now on. Its thread is the owner then."""
        self.detach()
        self._loop_fd = self.fileno()
        loop.add_reader(self._loop_fd, self._on_readable)
        self._loop = loop

    def detach(self) -> None:
        """Takes it off the asyncio loop."""
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self._loop_fd)

    def _on_readable(self) -> None:
        try:
            self.process()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # pylint: disable=broad-except
            if self._loop is not None:
                self._loop.call_exception_handler({"message": "exception in a callback of liborch", "exception": error})

    async def __aenter__(self) -> "Context":
        if self._loop is None:
            self.attach_to(asyncio.get_running_loop())
        return self

    async def __aexit__(self, *_raised: Any) -> None:
        self.close()

    # --- for the nouns ---------------------------------------------------------------------------------------------

    def dispatch(self, name: str, *arguments: Any, allow: Any = ()) -> int:
        """Calls a C function that runs callbacks of this context."""
        try:
            return call(name, *arguments, allow=allow)
        finally:
            self._look()

    def spawn_task(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs a coroutine in the asyncio loop that drives this context; what it raises goes to the loop's handler."""
        loop = self._loop
        if loop is None:
            work.close()
            raise make_error(Code.ESTATE, "a coroutine needs a context that is attached to an asyncio loop")
        task = loop.create_task(work)
        self._tasks.add(task)  # the loop itself holds tasks weakly

        def ended(_task: "asyncio.Task[Any]") -> None:
            self._tasks.discard(task)
            if not task.cancelled() and task.exception() is not None:
                loop.call_exception_handler({"message": "exception in a coroutine that liborch began",
                                             "exception": task.exception(), "task": task})

        task.add_done_callback(ended)

    def may_wait(self, what: str) -> None:
        """Deadlock if waiting here would stop the loop that drives this context."""
        if self._loop is not None and self._loop.is_running():
            raise Deadlock(Code.EDEADLK, f"{what} would stop the asyncio loop that drives its context: await the form "
                                         "without _wait, or use a context of its own in another thread")

    def require_attached(self, what: str) -> None:
        """An error if nothing would drive this context while it is awaited."""
        if self.closed:
            raise ClosedError(Code.ECLOSED, f"{what}: its context is closed")
        if self._loop is not asyncio.get_running_loop():
            raise make_error(Code.ESTATE, f"{what} can not be awaited: its context is not attached to this asyncio "
                                          "loop (async with orch.Context.attach() as context)")

    def drive(self, turn: Callable[[], bool], timeout_ms: int, what: str, raises: bool = True) -> bool:
        """Calls turn(), which must not block, whenever there is work, until it is true. TimedOut, or False."""
        self.may_wait(what)
        end = None if timeout_ms < 0 else time.monotonic() + timeout_ms / 1000
        poller: Optional[select.poll] = None
        while not turn():
            left = None if end is None else (end - time.monotonic()) * 1000
            if left is not None and left <= 0:
                if raises:
                    raise make_error(Code.ETIMEDOUT, f"{what}: not done after {timeout_ms} ms")
                return False
            if poller is None:
                poller = select.poll()
                poller.register(self.fileno(), select.POLLIN)
            poller.poll(left)  # in Python, so that signal handlers run
        return True

    def watch(self, completion: "Completion[T]", handle: _handle.Handle, function: str, *arguments: Any,
              value: Callable[[], T]) -> "Completion[T]":
        """For what C has no callback for: calls a function that does not wait, or its waiting one with no time to wait,
        now and after each turn, until it is done or has failed."""
        def look() -> bool:
            if handle.closed:
                completion.abandon()
                return True
            code, failure = try_call(function, handle._pointer, *arguments)
            if failure is None:
                completion.finish(value())
            elif code not in (Code.ETIMEDOUT, Code.EDEADLK, Code.EBUSY) or failure.step:
                completion.fail(failure)  # the others: its time, a callback, another thread that runs the loop just now
            return completion.done()

        if not look():
            self._watchers.append(look)
        return completion

    def _look(self) -> None:
        if self._looking:
            return
        self._looking = True
        try:
            for watcher in list(self._watchers):
                if watcher() and watcher in self._watchers:
                    self._watchers.remove(watcher)
        finally:
            self._looking = False

    def close(self) -> None:
        """Closes every handle in it, then itself: the helper ends, and what still runs is killed."""
        self.detach()
        for task in list(self._tasks):
            task.cancel()
        _handle.close_children(self)
        super().close()
        for watcher in self._watchers:
            watcher()
        self._watchers.clear()

    def _release(self, pointer: int) -> None:
        self.detach()
        raised: Optional[BaseException] = None
        try:
            self._end_jobs(pointer)
        except BaseException as error:  # pylint: disable=broad-except
            raised = error
        super()._release(pointer)
        if raised is not None:
            raise raised

    def _end_jobs(self, pointer: int) -> None:
        """A job that has not ended would keep the context, and its load alive: this runs the loop until they have."""
        end = time.monotonic() + JOBS_END_S
        stopped: "Set[Ending]" = set()
        self._looking = True  # what is waited for ends with the handles
        while self.jobs and time.monotonic() < end:
            code, failure = try_call("orch_ctx_process", pointer)
            if code in (Code.EDEADLK, Code.EBUSY, Code.EFORKED):
                return  # in a callback or in another thread the loop goes on; in a forked child there is none
            if failure is not None:
                raise failure
            for job in self.jobs - stopped:
                job.stop()
                stopped.add(job)
            if self.jobs:
                select.select([lib.orch_ctx_fd(pointer)], [], [], 0.1)


def _log_call(log: LogFunction) -> Callable[[int, bytes], None]:
    return lambda level, message: log(choice(LogLevel, level), text(message))
