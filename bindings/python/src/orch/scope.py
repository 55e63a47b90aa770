# SPDX-License-Identifier: Apache-2.0
"""Scope: everything that one task started. Proc: a program in it."""
import ctypes
import weakref
from typing import Any, Callable, Iterable, List, Mapping, Optional, Tuple, Union

from . import _callbacks, _handle, _table, death
from ._completion import Completion, Source, Stream
from ._enums import Limit, LimitState, ProcEvent, Reason, Rung, choice
from ._errors import Code, Error, error_of
from ._native import (Path, Text, call, checked, descriptor, encode, environment, lib, optional_path, options, plain,
                      strings, text)
from .context import Context
from .death import Death
from .stream import ProgramStream

#: A ProgramStream; or a file descriptor or what has fileno(), which is duplicated; None: /dev/null.
File = Union[int, Any, None]


class Settlement(_handle.Handle):
    """The reply that a work on the host owes its scope's certificate. Closed without done(): it did not settle."""

    _noun = "settlement"

    def done(self, outcome: Text) -> None:
        """The work has ended; `outcome` says how, for the certificate. Error ESTATE: answered before, or too late."""
        call("orch_settlement_done", self._pointer, encode(outcome))


class Proc(_handle.Handle):
    """A program in a scope, made by Scope.spawn() or Sandbox.spawn().

    While the Proc is there, so is the handle of its scope or sandbox. The program runs on when the Proc is closed."""

    _noun = "proc"
    _state: "_ProcState"
    _owner: _handle.Handle

    @property
    def pid(self) -> int:
        """Its pid inside the scope's PID namespace, or 0."""
        return int(lib.orch_proc_pid(self._pointer))

    @property
    def exit_code(self) -> Optional[int]:
        """0..255, or None: it has not exited, did not start, or was ended by a signal."""
        code = lib.orch_proc_exit_code(self._pointer)
        return None if code < 0 else int(code)

    @property
    def term_signal(self) -> int:
        """The signal that ended it, or 0."""
        return int(lib.orch_proc_term_signal(self._pointer))

    @property
    def reason(self) -> Reason:
        """Why it ended; NONE while it has not."""
        return choice(Reason, lib.orch_proc_reason(self._pointer))

    @property
    def error(self) -> Optional[Error]:
        """Why it was not started, or None."""
        pointer = lib.orch_proc_error(self._pointer)
        return error_of(pointer) if pointer else None

    def signal(self, number: int) -> None:
        """Sends a signal to the program, not to its descendants. Error ESTATE: it has ended."""
        call("orch_proc_signal", self._pointer, int(number))

    def wait(self) -> "Completion[int]":
        """Its end: 0..255 the exit code, 256 + signal if it was ended by one. An Error if it could not be started."""
        self._check_open()
        return self._state.end.keep(self)

    def exit_wait(self, timeout_ms: int = -1) -> int:
        """The waiting form of wait(). TimedOut; Deadlock; Error ESPAWN: it could not be started."""
        status = ctypes.c_int32()
        self.context.drive(
            lambda: self.context.dispatch("orch_proc_wait", self._pointer, 0, ctypes.byref(status),
                                          allow=(Code.ETIMEDOUT,)) == 0, timeout_ms, "Proc.exit_wait()")
        return status.value

    def events(self) -> Stream[ProcEvent]:
        """What happened to it, from the start, for `async for`."""
        self._check_open()
        return self._state.source.stream(self.context, list(self._state.history))

    def _init_borrowed(self) -> None:
        raise TypeError("a Proc comes from spawn()")

    def _describe(self) -> str:
        return f" pid {self.pid}"


ProcFunction = Callable[[Proc, ProcEvent], Any]


class _ProcState:
    """What C's events go to. It does not keep the Proc alive."""

    def __init__(self, context: Context, owner: _handle.Handle, on_event: Optional[ProcFunction]) -> None:
        self.end: "Completion[int]" = Completion(context, "Proc.wait()")
        self.source: Source[ProcEvent] = Source("Proc.events()")
        self.history: List[ProcEvent] = []
        self.on_event = on_event
        self.proc: "Optional[weakref.ref[Proc]]" = None
        self.context = weakref.ref(context)
        self.owner: "weakref.ref[_handle.Handle]" = weakref.ref(owner)

    def happened(self, pointer: int, number: int) -> None:
        """The event callback."""
        event = choice(ProcEvent, number)
        self.history.append(event)
        try:
            if event == ProcEvent.EXITED:
                signal = lib.orch_proc_term_signal(pointer)
                self.end.finish(256 + signal if signal else lib.orch_proc_exit_code(pointer))
            elif event == ProcEvent.FAILED:
                self.end.fail(error_of(lib.orch_proc_error(pointer)))
        finally:
            self.source.put(event)
            if self.on_event is not None:
                self.on_event(self._handle(pointer), event)

    def gone(self) -> None:
        """Nothing more comes."""
        self.on_event = None
        self.source.end()
        self.end.abandon()

    def _handle(self, pointer: int) -> Proc:
        proc = self.proc() if self.proc is not None else None
        return proc if proc is not None and not proc.closed else self.adopt(pointer, borrowed=True)

    def adopt(self, pointer: int, borrowed: bool) -> Proc:
        """A handle with this state."""
        context = self.context()
        assert context is not None  # callbacks run only inside its calls
        if borrowed:
            plain("orch_proc_ref", pointer)
        proc = Proc(pointer, context)
        proc._state = self
        proc._owner = self.owner() or context
        self.proc = weakref.ref(proc)
        return proc


def spawn(function: str, owner: _handle.Handle, argv: Iterable[Path], env: Optional[Mapping[str, str]],
          cwd: Optional[Path], stdin: File, stdout: File, stderr: File, leader: bool,
          on_event: Optional[ProcFunction]) -> Proc:
    """For Scope and Sandbox."""
    pointer, context = owner._pointer, owner.context
    opts = options(_table.orch_proc_opts, argv=strings(argv), envp=environment(env), cwd=optional_path(cwd),
                   flags=_table.ORCH_PROC_LEADER if leader else 0)
    for name, file in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
        if isinstance(file, ProgramStream):
            setattr(opts, name + "_stream", file._pointer)
        else:
            setattr(opts, name + "_fd", descriptor(file))
    state = _ProcState(context, owner, on_event)
    opts.event, opts.destroy = _callbacks.PROC, _callbacks.DESTROY
    opts.userdata = _callbacks.add(state.happened, state.gone)
    return state.adopt(Proc._make(function, pointer, ctypes.byref(opts)), borrowed=False)


class Scope(_handle.Handle):
    """Everything that one task started, as a closed set of processes: for **unsandboxed** programs, with the same user
    and files and a PID namespace of their own. (A Sandbox makes its own scope.)

    It is set up in the background: a failure is reported by start(), start_wait() and each program spawned in it.
    Closing the last handle kills a scope that was not stopped, without a certificate.

    label             for logs and certificates; by default the scope's random name
    least_rung        what is asked of the host at least; by default Rung.PIDNS
    best_rung         no better one is tried; by default the best that there is
    setup_timeout_ms  by default 10000
    time_limit_ms     of wall time from when it stands; then it is killed
    memory_limit_bytes  of all its processes together, swap included; when the kernel kills for it, the scope ends
    process_limit     processes and threads, zombies included
    cpu_limit_percent  of one processor: 150 is one and a half
    required_limits   those that have to be enforced, or nothing is started

    Error EHELPER: orch-reaper is missing, of another version, or did not start.
    """

    _noun = "scope"

    def __init__(self, context: Context, *, label: Optional[Text] = None, least_rung: Optional[Rung] = None,
                 setup_timeout_ms: Optional[int] = None, best_rung: Optional[Rung] = None,
                 time_limit_ms: Optional[int] = None, memory_limit_bytes: Optional[int] = None,
                 process_limit: Optional[int] = None, cpu_limit_percent: Optional[int] = None,
                 required_limits: Optional[Limit] = None) -> None:
        opts = options(_table.orch_scope_opts, label=encode(label), least_rung=least_rung,
                       setup_timeout_ms=setup_timeout_ms, best_rung=best_rung, time_limit_ms=time_limit_ms,
                       memory_limit_bytes=memory_limit_bytes, process_limit=process_limit,
                       cpu_limit_percent=cpu_limit_percent, required_limits=required_limits)
        super().__init__(self._make("orch_scope_new", context._pointer, ctypes.byref(opts)), context)

    # --- start -----------------------------------------------------------------------------------------------------

    def start(self) -> "Completion[None]":
        """That its namespace stands. Unenforceable: the host can not give least_rung. Error EHELPER, ESYS."""
        self._check_open()
        completion: "Completion[None]" = Completion(self.context, "Scope.start()")
        return self.context.watch(completion, self, "orch_scope_start_wait", 0, value=lambda: None)

    def start_wait(self, timeout_ms: int = -1) -> None:
        """The waiting form. Also TimedOut, Deadlock."""
        self.context.drive(
            lambda: self.context.dispatch("orch_scope_start_wait", self._pointer, 0, allow=(Code.ETIMEDOUT,)) == 0,
            timeout_ms, "Scope.start_wait()")

    # --- programs --------------------------------------------------------------------------------------------------

    def spawn(self, argv: Iterable[Path], *, env: Optional[Mapping[str, str]] = None, cwd: Optional[Path] = None,
              stdin: File = None, stdout: File = None, stderr: File = None, leader: bool = False,
              on_event: Optional[ProcFunction] = None) -> Proc:
        """Starts a program as soon as the scope stands; returns at once.

        argv      argv[0] absolute, or looked up in the PATH of `env`
        env       the whole environment; None: a minimal one
        cwd       absolute; None: "/"
        stdin, stdout, stderr   a ProgramStream; or a descriptor or a file, which is duplicated; None: /dev/null
        leader    when it ends, the scope is stopped
        on_event  called with (proc, ProcEvent)

        ClosedError: the scope is being stopped or is over; Error ETOOBIG: more than 1 MiB of argv and env.
        """
        return spawn("orch_scope_spawn", self, argv, env, cwd, stdin, stdout, stderr, leader, on_event)

    # --- the end ---------------------------------------------------------------------------------------------------

    def stop(self, *, grace_ms: int = 0, deadline_ms: int = 0) -> "Completion[Death]":
        """Stops everything in it: SIGTERM and `grace_ms` (0: SIGKILL at once), then SIGKILL.

        The certificate comes at `deadline_ms` at the latest (0: 10000). A scope that is over gives its own again.
        """
        pointer, opts = self._pointer, options(_table.orch_stop_opts, grace_ms=grace_ms, deadline_ms=deadline_ms)
        completion: "Completion[Death]" = Completion(self.context, "Scope.stop()")
        key = _callbacks.add(lambda _scope, end: completion.finish(death.read(end)), completion.abandon)
        call("orch_scope_stop", pointer, ctypes.byref(opts), _callbacks.DEATH, key, _callbacks.DESTROY)
        return completion

    def stop_wait(self, *, grace_ms: int = 0, deadline_ms: int = 0) -> Death:
        """The waiting form of stop(); at most a second longer than `deadline_ms`. Also Deadlock."""
        self.context.may_wait("Scope.stop_wait()")
        opts = options(_table.orch_stop_opts, grace_ms=grace_ms, deadline_ms=deadline_ms)
        pointer = ctypes.c_void_p()
        try:
            self.context.dispatch("orch_scope_stop_wait", self._pointer, ctypes.byref(opts), ctypes.byref(pointer))
        except BaseException:
            lib.orch_death_unref(pointer)
            raise
        return death.take(pointer)

    def on_death(self, function: Callable[[Death], Any]) -> None:
        """Has the certificate of an end that nobody requested (the leader's exit, the helper's death) given to
        `function`. It replaces the one before."""
        pointer = self._pointer
        key = _callbacks.add(lambda _scope, end: function(death.read(end)))
        call("orch_scope_on_death", pointer, _callbacks.DEATH, key, _callbacks.DESTROY)

    def add_work(self, what: Text, settle: "Callable[[Settlement], Any]") -> None:
        """Registers work that the host does for the scope, so that its end is part of the scope's.

        When the end begins, asked for or not, `settle` is called once: it ends the work and calls done() of what it
        gets, then or later. The certificate waits for that, until the deadline; what does not settle is not DEAD.
        Error ECLOSED: the scope's end has begun; EBUSY: 64 are registered."""
        context = weakref.ref(self.context)
        key = _callbacks.add(lambda _scope, reply: settle(Settlement._borrow(reply, context())))
        call("orch_scope_add_work", self._pointer, encode(what), _callbacks.SETTLE, key, _callbacks.DESTROY)

    # --- looking ---------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Its random name: "orch-" and 16 hexadecimal digits."""
        return text(lib.orch_scope_name(self._pointer))

    @property
    def rung(self) -> Rung:
        """What was reached; NONE while it is not set up."""
        return choice(Rung, lib.orch_scope_rung(self._pointer))

    @property
    def init_pid(self) -> int:
        """Host pid of its init, or 0."""
        return int(lib.orch_scope_init_pid(self._pointer))

    @property
    def pidns_inode(self) -> int:
        """Inode number of its PID namespace, or 0."""
        return int(lib.orch_scope_pidns_inode(self._pointer))

    @property
    def cgroup(self) -> str:
        """Absolute path of its cgroup v2 leaf, or "" on the PIDNS rung."""
        return text(lib.orch_scope_cgroup(self._pointer))

    def limit(self, limit: Limit) -> Tuple[LimitState, str]:
        """What was made of it, and the mechanism in words, or the cause of its absence. Error ESTATE: it does not stand
        yet."""
        state, mechanism = ctypes.c_uint32(), ctypes.c_char_p()
        checked(lib.orch_scope_limit(self._pointer, int(limit), ctypes.byref(state), ctypes.byref(mechanism)),
                "Scope.limit()")
        return choice(LimitState, state.value), text(mechanism.value)

    def _describe(self) -> str:
        return f" {self.name}"
