# SPDX-License-Identifier: Apache-2.0
"""Sandbox: deny by default on every channel."""
import asyncio
import ctypes
import os
import socket
import tempfile
from dataclasses import dataclass
from typing import IO, Any, Iterable, List, Mapping, Optional, Union

from . import _callbacks, _handle, _table, death
from ._completion import Completion
from ._enums import Access, Limit, Net, Protect, Reason, Root, Rung, choice
from ._errors import Canceled, ClosedError, Code, TimedOut, error_of, make_error
from ._native import (Path, Text, address, buffer, call, checked, encode, encode_path, length, lib, optional_path,
                      options, payload, strings, text)
from .changes import Changes
from .context import Context
from .death import Death
from .scope import File, Proc, ProcFunction, Scope, spawn

DEFAULT_TIMEOUT_MS = 60000
DEFAULT_OUTPUT_LIMIT = 1 << 20


@dataclass(frozen=True)
class SandboxResult:
    """What Sandbox.run() gives: a plain value.

    status            0..255 the exit code, 256 + signal, or Code.ETIMEDOUT
    stdout, stderr    the bytes kept
    stdout_truncated, stderr_truncated   whether bytes over the limit were dropped
    death             the certificate
    reason            why the program ended: Reason.DISK, TIME, MEMORY, ...
    """
    status: int
    stdout: bytes
    stderr: bytes
    stdout_truncated: bool
    stderr_truncated: bool
    death: Death
    reason: Reason

    @property
    def timed_out(self) -> bool:
        """Whether its time was over."""
        return self.status == Code.ETIMEDOUT


def _read_result(pointer: ctypes.c_void_p) -> SandboxResult:
    size = ctypes.c_size_t()

    def output(stream: int) -> bytes:
        at = lib.orch_sandbox_result_output(pointer, stream, ctypes.byref(size))
        return buffer(at, size.value) or b""

    return SandboxResult(
        status=lib.orch_sandbox_result_status(pointer), stdout=output(1), stderr=output(2),
        stdout_truncated=lib.orch_sandbox_result_truncated(pointer, 1) == 1,
        stderr_truncated=lib.orch_sandbox_result_truncated(pointer, 2) == 1,
        death=death.read(lib.orch_sandbox_result_death(pointer)),
        reason=choice(Reason, lib.orch_sandbox_result_reason(pointer)))


@dataclass(frozen=True)
class Answer:
    """What Sandbox.why() answers.

    denied  what of the access asked for is denied; Access(0): nothing
    rule    the one that decided, as it was given ("deny /work/.git", with NAME:LINE of a policy), or "": none does
    text    a sentence for people
    """
    denied: Access
    rule: str
    text: str

    def __str__(self) -> str:
        return self.text


def sandbox_options(*, label: Optional[Text] = None, root: Optional[Root] = None, net: Optional[Net] = None,
                    least_rung: Optional[Rung] = None, setup_timeout_ms: Optional[int] = None,
                    max_processes: Optional[int] = None, max_open_files: Optional[int] = None,
                    max_file_mib: Optional[int] = None, tmp_mib: Optional[int] = None,
                    max_memory_mib: Optional[int] = None, max_cpu_percent: Optional[int] = None,
                    time_limit_ms: Optional[int] = None) -> Any:
    """The C structure, for Sandbox and SandboxReport."""
    return options(_table.orch_sandbox_opts, label=encode(label), root=root, net=net, least_rung=least_rung,
                   setup_timeout_ms=setup_timeout_ms, max_processes=max_processes, max_open_files=max_open_files,
                   max_file_mib=max_file_mib, tmp_mib=tmp_mib, max_memory_mib=max_memory_mib,
                   max_cpu_percent=max_cpu_percent, time_limit_ms=time_limit_ms)


class Sandbox(_handle.Handle):
    """A policy and, once started, a scope with an empty root, namespaces of its own, Landlock, seccomp and no
    capabilities.

    The policy is built until the start; later that is an Error ESTATE. Closing the last handle kills the load.

    label             for logs and certificates
    root              by default Root.TOOLS
    net               by default Net.NONE
    least_rung        what is asked of the host at least; by default Rung.PIDNS
    setup_timeout_ms  by default 10000
    max_processes     by default 512
    max_open_files    by default 1024
    max_file_mib      of one file; by default 2048
    tmp_mib           what /tmp, /dev/shm and an overlay hold together; by default 256
    max_memory_mib    where the host has a memory controller; by default none
    max_cpu_percent   of one processor, where the host has a cpu controller; by default none
    time_limit_ms     of wall time from the start, then everything in it is killed; by default none
    """

    _noun = "sandbox"

    def __init__(self, context: Context, *, label: Optional[Text] = None, root: Optional[Root] = None,
                 net: Optional[Net] = None, least_rung: Optional[Rung] = None, setup_timeout_ms: Optional[int] = None,
                 max_processes: Optional[int] = None, max_open_files: Optional[int] = None,
                 max_file_mib: Optional[int] = None, tmp_mib: Optional[int] = None,
                 max_memory_mib: Optional[int] = None, max_cpu_percent: Optional[int] = None,
                 time_limit_ms: Optional[int] = None) -> None:
        opts = sandbox_options(label=label, root=root, net=net, least_rung=least_rung,
                               setup_timeout_ms=setup_timeout_ms, max_processes=max_processes,
                               max_open_files=max_open_files, max_file_mib=max_file_mib, tmp_mib=tmp_mib,
                               max_memory_mib=max_memory_mib, max_cpu_percent=max_cpu_percent,
                               time_limit_ms=time_limit_ms)
        pointer = self._make("orch_sandbox_new", context._pointer, ctypes.byref(opts))
        self._init_borrowed()
        super().__init__(pointer, context)

    def _init_borrowed(self) -> None:
        self._started: "Optional[Completion[None]]" = None
        self._scope: Optional[Scope] = None

    @classmethod
    def _taken(cls, pointer: ctypes.c_void_p, context: Context) -> "Sandbox":
        """For SandboxPool: one that was given away, with its reference."""
        made = cls.__new__(cls)
        made._init_borrowed()
        _handle.Handle.__init__(made, pointer.value or 0, context)
        return made

    # --- the policy ------------------------------------------------------------------------------------------------

    def add_path(self, host_path: Path, inner_path: Optional[Path] = None, access: Access = Access.READ) -> None:
        """Shows a host file or folder at `inner_path` (absolute; None: the same path).

        It is resolved when the sandbox starts; a path that is missing then is an error of the start.
        Error EEXIST: the inner path is taken; EINVAL; ETOOBIG: more than 16384 rules.
        """
        call("orch_sandbox_add_path", self._pointer, encode_path(host_path), optional_path(inner_path), int(access))

    def deny_path(self, inner_path: Path) -> None:
        """Closes an inner path and everything below it. The deeper of two rules wins, and at the same path this one.

        A path that is missing when the sandbox starts stays closed when it is made later; one that ends in a slash is a
        folder. Error EINVAL; ETOOBIG.
        """
        call("orch_sandbox_deny_path", self._pointer, encode_path(inner_path))

    def set_workspace(self, host_path: Path, inner_path: Optional[Path] = None) -> None:
        """Shows a folder with Access.OWN at `inner_path` (None: "/work"), the working directory of programs."""
        call("orch_sandbox_set_workspace", self._pointer, encode_path(host_path), optional_path(inner_path))

    def set_overlay(self, host_path: Path, inner_path: Optional[Path] = None) -> None:
        """A workspace of which the host's folder stays as it is; changes() tells what programs changed in it.

        A sandbox has one or the other, once. What is written goes to the private file system (tmp_mib). Error ENOTSUP:
        not on this system; EEXIST; EINVAL. At the start Unenforceable: the kernel has no overlayfs for it.
        """
        call("orch_sandbox_set_overlay", self._pointer, encode_path(host_path), optional_path(inner_path))

    def read_policy(self, xml: Union[bytes, str], name: Optional[Text] = None) -> None:
        """Reads a policy (schemas/policy.rng): all of it, or nothing is changed. `name` is for messages.

        Error EINVAL: not well-formed, not of the schema, or a rule that is refused: the message begins with NAME:LINE;
        ETOOBIG: more than 16 MiB.
        """
        given = payload(xml)
        call("orch_sandbox_read_policy", self._pointer, given, length(given), encode(name))

    def load_policy(self, path: Path) -> None:
        """The same from a file. Also Error ENOENT, ESYS."""
        call("orch_sandbox_load_policy", self._pointer, encode_path(path))

    def set_env(self, name: Text, value: Optional[Text]) -> None:
        """Adds to the environment of every program, which has nothing of the host's. None removes."""
        call("orch_sandbox_set_env", self._pointer, encode(name), encode(value))

    def set_protection(self, protection: Text, level: Protect) -> None:
        """Level of "namespaces", "landlock", "seccomp" (by default REQUIRED), "memory", "cpu" (by default DEGRADABLE).

        Error ENOENT: no such protection.
        """
        call("orch_sandbox_set_protection", self._pointer, encode(protection), int(level))

    def why(self, path: Path, access: Access = Access.READ) -> Answer:
        """Would `path` (inside, absolute) be denied, and by which rule? Nothing is tried, and links are not followed.

        Also before the start. Error EINVAL.
        """
        pointer = ctypes.c_void_p()
        try:
            call("orch_sandbox_why", self._pointer, encode_path(path), int(access), ctypes.byref(pointer))
            return Answer(Access(lib.orch_sandbox_answer_denied(pointer)), text(lib.orch_sandbox_answer_rule(pointer)),
                          text(lib.orch_sandbox_answer_text(pointer)))
        finally:
            lib.orch_sandbox_answer_unref(pointer)

    # --- start -----------------------------------------------------------------------------------------------------

    def start(self) -> "Completion[None]":
        """Sets up namespaces, mounts and the listener.

        Unenforceable: what the host can not give, why, and the remedy; Error ESYS with its step; ENOENT: a host path is
        missing; EDENIED, ETOOBIG: an Access.OWN tree can not be handed over; EHELPER; TimedOut.
        """
        pointer = self._pointer
        completion: "Completion[None]" = Completion(self.context, "Sandbox.start()")

        def started(_sandbox: int, error: Optional[int]) -> None:
            if error:
                completion.fail(error_of(error))
            else:
                completion.finish(None)

        key = _callbacks.add(started, completion.abandon)
        call("orch_sandbox_start", pointer, _callbacks.SANDBOX_START, key, _callbacks.DESTROY)
        self._started = completion
        return completion.keep(self)

    def start_wait(self, timeout_ms: int = -1) -> None:
        """The waiting form; one that is starting or has started is waited for. Also TimedOut, Deadlock."""
        self.context.drive(
            lambda: self.context.dispatch("orch_sandbox_start_wait", self._pointer, 0, allow=(Code.ETIMEDOUT,)) == 0,
            timeout_ms, "Sandbox.start_wait()")

    # --- a standing sandbox ----------------------------------------------------------------------------------------

    @property
    def scope(self) -> Optional[Scope]:
        """Its scope; None before the start."""
        if self._scope is None or self._scope.closed:
            pointer = lib.orch_sandbox_scope(self._pointer)
            self._scope = Scope._borrow(pointer, self.context) if pointer else None
        return self._scope

    @property
    def host_uid(self) -> int:
        """The uid of the load as the host sees it."""
        return int(lib.orch_sandbox_host_uid(self._pointer))

    @property
    def listener_fd(self) -> int:
        """The listening socket of Net.BROKER, lent: Broker.add_listener() duplicates it. Error ESTATE."""
        return checked(lib.orch_sandbox_listener_fd(self._pointer), "Sandbox.listener_fd")

    def connect(self, port: int) -> "Completion[socket.socket]":
        """A non-blocking socket connected to 127.0.0.1:port **inside** the sandbox.

        Error ESTATE: not started, or over; ESYS with errno ECONNREFUSED: nobody listens.
        """
        pointer = self._pointer
        completion: "Completion[socket.socket]" = Completion(self.context, "Sandbox.connect()")

        def connected(fd: int, error: Optional[int]) -> None:
            if error:
                completion.fail(error_of(error))
                return
            made = socket.socket(fileno=fd)
            made.setblocking(False)
            completion.finish(made)

        key = _callbacks.add(connected, completion.abandon)
        call("orch_sandbox_connect", pointer, port, _callbacks.SANDBOX_CONNECT, key, _callbacks.DESTROY)
        return completion.keep(self)

    def spawn(self, argv: Iterable[Path], *, env: Optional[Mapping[str, str]] = None, cwd: Optional[Path] = None,
              stdin: File = None, stdout: File = None, stderr: File = None, leader: bool = False,
              on_event: Optional[ProcFunction] = None) -> Proc:
        """Starts a program in the started sandbox; as Scope.spawn(), but `env` is added to the sandbox's own, and `cwd`
        is by default the workspace. Error ESTATE: not started."""
        return spawn("orch_sandbox_spawn", self, argv, env, cwd, stdin, stdout, stderr, leader, on_event)

    def stop(self, *, grace_ms: int = 0, deadline_ms: int = 0) -> "Completion[Death]":
        """Stops its scope: see Scope.stop(). Error ESTATE: not started."""
        return self._standing().stop(grace_ms=grace_ms, deadline_ms=deadline_ms)

    def stop_wait(self, *, grace_ms: int = 0, deadline_ms: int = 0) -> Death:
        """The waiting form."""
        return self._standing().stop_wait(grace_ms=grace_ms, deadline_ms=deadline_ms)

    def changes(self) -> Changes:
        """What programs changed in the overlay, while it stands or after its end.

        Error ESTATE: it has no overlay, or never stood; ETOOBIG; ESYS.
        """
        return Changes(self)

    def _standing(self) -> Scope:
        scope = self.scope
        if scope is None:
            raise make_error(Code.ESTATE, "the sandbox is not started")
        return scope

    # --- the short form --------------------------------------------------------------------------------------------

    async def run(self, argv: Iterable[Path], *, timeout_ms: int = 0, output_limit: int = 0,
                  input: Union[bytes, str, None] = None) -> SandboxResult:  # pylint: disable=redefined-builtin
        """Starts if need be, runs argv as leader, captures its output, stops the scope; the sandbox is over then.

        timeout_ms    0: 60000; then the scope is stopped, and the result's status is Code.ETIMEDOUT
        output_limit  bytes kept of each stream; 0: 1 MiB; the rest is read and dropped
        input         for stdin; None: /dev/null

        Errors of the start and of the spawn. A program that ran always gives a result, and so does one that did not come
        to it before the sandbox's time limit: Code.ETIMEDOUT and Reason.TIME. A cancelled run stops the scope; stop()
        gives its certificate.
        """
        try:
            return await self._run(argv, timeout_ms, output_limit, input)
        except (Canceled, ClosedError):
            if self.scope is None:
                raise
            end = await self.stop()
            if end.limit != Limit.TIME:
                raise
            return SandboxResult(int(Code.ETIMEDOUT), b"", b"", False, False, end, Reason.TIME)

    async def _run(self, argv: Iterable[Path], timeout_ms: int, output_limit: int,
                   given: Union[bytes, str, None]) -> SandboxResult:
        loop = asyncio.get_running_loop()
        self.context.require_attached("Sandbox.run()")
        if self._started is None and self.scope is None:
            self.start()
        if self._started is not None:
            await self._started
        streams = [_Capture(loop, output_limit or DEFAULT_OUTPUT_LIMIT) for _stream in (1, 2)]
        try:
            proc = self._spawn_captured(argv, payload(given), streams)
            try:
                status = await asyncio.wait_for(proc.wait(), (timeout_ms or DEFAULT_TIMEOUT_MS) / 1000)
            except TimedOut:
                raise
            except asyncio.TimeoutError:
                status = int(Code.ETIMEDOUT)
            end = await self.stop()
        except BaseException:
            self.stop()
            raise
        finally:
            for stream in streams:
                stream.drain()
        return SandboxResult(status, streams[0].kept, streams[1].kept, streams[0].truncated, streams[1].truncated, end,
                             proc.reason)

    def _spawn_captured(self, argv: Iterable[Path], given: Optional[bytes], streams: "List[_Capture]") -> Proc:
        with _input_file(given) as source, streams[0].begin() as out, streams[1].begin() as err:
            return self.spawn(argv, stdin=source, stdout=out, stderr=err, leader=True)

    def run_wait(self, argv: Iterable[Path], *, timeout_ms: int = 0, output_limit: int = 0,
                 input: Union[bytes, str, None] = None) -> SandboxResult:  # pylint: disable=redefined-builtin
        """The waiting form of run(). Also Deadlock. One call of the library: signal handlers run when it is over."""
        self.context.may_wait("Sandbox.run_wait()")
        given = payload(input)
        opts = options(_table.orch_run_opts, timeout_ms=timeout_ms, output_limit=output_limit, input=address(given),
                       input_length=length(given))
        pointer = ctypes.c_void_p()
        try:
            self.context.dispatch("orch_sandbox_run", self._pointer, strings(argv), ctypes.byref(opts),
                                  ctypes.byref(pointer))
            return _read_result(pointer)
        finally:
            lib.orch_sandbox_result_unref(pointer)


def _input_file(given: Optional[bytes]) -> IO[bytes]:
    """A file that nobody has to write to while the program reads."""
    if given is None:
        return open(os.devnull, "rb")
    made = tempfile.TemporaryFile()
    made.write(given)
    made.flush()
    made.seek(0)
    return made


class _Capture:
    """Reads one stream of a program in the asyncio loop: at most `limit` bytes are kept."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        self._loop = loop
        self._limit = limit
        self._fd = -1
        self._kept = bytearray()
        self.truncated = False

    @property
    def kept(self) -> bytes:
        """What was kept."""
        return bytes(self._kept)

    def begin(self) -> IO[bytes]:
        """The program's end of the pipe."""
        self._fd, theirs = os.pipe()
        os.set_blocking(self._fd, False)
        self._loop.add_reader(self._fd, self._read)
        return open(theirs, "wb", buffering=0)

    def _read(self) -> bool:
        try:
            got = os.read(self._fd, 65536)
        except (BlockingIOError, InterruptedError):
            return False
        room = self._limit - len(self._kept)
        self._kept += got[:room]
        self.truncated = self.truncated or len(got) > room
        if not got:
            self._close()
        return bool(got)

    def drain(self) -> None:
        """What is left in the pipe after the end, then nothing more."""
        for _turn in range(64):  # 4 MiB: more than a pipe holds
            if self._fd < 0 or not self._read():
                break
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
