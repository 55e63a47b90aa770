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
from ._enums import Access, Net, Protect, Root, Rung
from ._errors import Code, TimedOut, error_of, make_error
from ._native import (Path, Text, address, buffer, call, checked, encode, encode_path, length, lib, optional_path,
                      options, payload, strings)
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
    """
    status: int
    stdout: bytes
    stderr: bytes
    stdout_truncated: bool
    stderr_truncated: bool
    death: Death

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
        death=death.read(lib.orch_sandbox_result_death(pointer)))


def sandbox_options(*, label: Optional[Text] = None, root: Optional[Root] = None, net: Optional[Net] = None,
                    least_rung: Optional[Rung] = None, setup_timeout_ms: Optional[int] = None,
                    max_processes: Optional[int] = None, max_open_files: Optional[int] = None,
                    max_file_mib: Optional[int] = None, tmp_mib: Optional[int] = None,
                    max_memory_mib: Optional[int] = None) -> Any:
    """The C structure, for Sandbox and SandboxReport."""
    return options(_table.orch_sandbox_opts, label=encode(label), root=root, net=net, least_rung=least_rung,
                   setup_timeout_ms=setup_timeout_ms, max_processes=max_processes, max_open_files=max_open_files,
                   max_file_mib=max_file_mib, tmp_mib=tmp_mib, max_memory_mib=max_memory_mib)


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
    tmp_mib           size of /tmp; by default 256
    max_memory_mib    where the host has a memory controller; by default none
    """

    _noun = "sandbox"

    def __init__(self, context: Context, *, label: Optional[Text] = None, root: Optional[Root] = None,
                 net: Optional[Net] = None, least_rung: Optional[Rung] = None, setup_timeout_ms: Optional[int] = None,
                 max_processes: Optional[int] = None, max_open_files: Optional[int] = None,
                 max_file_mib: Optional[int] = None, tmp_mib: Optional[int] = None,
                 max_memory_mib: Optional[int] = None) -> None:
        opts = sandbox_options(label=label, root=root, net=net, least_rung=least_rung,
                               setup_timeout_ms=setup_timeout_ms, max_processes=max_processes,
                               max_open_files=max_open_files, max_file_mib=max_file_mib, tmp_mib=tmp_mib,
                               max_memory_mib=max_memory_mib)
        pointer = self._make("orch_sandbox_new", context._pointer, ctypes.byref(opts))
        self._init_borrowed()
        super().__init__(pointer, context)

    def _init_borrowed(self) -> None:
        self._started: "Optional[Completion[None]]" = None
        self._scope: Optional[Scope] = None

    # --- the policy ------------------------------------------------------------------------------------------------

    def add_path(self, host_path: Path, inner_path: Optional[Path] = None, access: Access = Access.READ) -> None:
        """Shows a host file or folder at `inner_path` (absolute; None: the same path).

        It is resolved when the sandbox starts; a path that is missing then is an error of the start.
        Error EEXIST: the inner path is taken; EINVAL; ETOOBIG: more than 256 paths.
        """
        call("orch_sandbox_add_path", self._pointer, encode_path(host_path), optional_path(inner_path), int(access))

    def set_workspace(self, host_path: Path, inner_path: Optional[Path] = None) -> None:
        """Shows a folder with Access.OWN at `inner_path` (None: "/work"), the working directory of programs."""
        call("orch_sandbox_set_workspace", self._pointer, encode_path(host_path), optional_path(inner_path))

    def set_env(self, name: Text, value: Optional[Text]) -> None:
        """Adds to the environment of every program, which has nothing of the host's. None removes."""
        call("orch_sandbox_set_env", self._pointer, encode(name), encode(value))

    def set_protection(self, protection: Text, level: Protect) -> None:
        """Level of "landlock", "seccomp" or "memory". Error ENOENT: no such protection."""
        call("orch_sandbox_set_protection", self._pointer, encode(protection), int(level))

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

        Errors of the start and of the spawn. A program that ran always gives a result. A cancelled run stops the scope;
        stop() gives its certificate.
        """
        loop = asyncio.get_running_loop()
        self.context.require_attached("Sandbox.run()")
        if self._started is None and self.scope is None:
            self.start()
        if self._started is not None:
            await self._started
        streams = [_Capture(loop, output_limit or DEFAULT_OUTPUT_LIMIT) for _stream in (1, 2)]
        try:
            proc = self._spawn_captured(argv, payload(input), streams)
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
        return SandboxResult(status, streams[0].kept, streams[1].kept, streams[0].truncated, streams[1].truncated, end)

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
