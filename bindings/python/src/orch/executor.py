# SPDX-License-Identifier: Apache-2.0
"""Executor: what does the work of a role. Job: one attempt."""
import ctypes
import inspect
import weakref
from dataclasses import dataclass
from typing import Any, Awaitable, Callable, Iterable, NamedTuple, Optional, Union

from . import _callbacks, _handle, _table
from ._completion import Completion, Source, Stream
from ._enums import Api, ExecutorKind, JobEnd, JobEvent, choice
from ._errors import ClosedError, Code, Error, Forked, make_error
from ._native import Path, Text, call, encode, lib, optional_path, options, plain, strings, text
from .context import Context
from .sandbox import Sandbox


class JobLine(NamedTuple):
    """One thing that an executor said."""
    event: JobEvent
    text: str


@dataclass(frozen=True)
class JobResult:
    """How an attempt ended: `status` is 0..255, 256 + signal, or -1; `message` is for people. It proves nothing."""
    end: JobEnd
    status: int
    message: str


class Job(_handle.Handle):
    """One attempt of an executor, made by Executor.run(), or given to a host's executor, which finishes it.

    A host's executor that returns without finish() and without keeping its Job has failed the attempt.
    """

    _noun = "job"

    def __init__(self, pointer: int, context: Context, state: "_JobState") -> None:
        self._state: Optional[_JobState] = state
        self._sandbox: Optional[Sandbox] = None
        super().__init__(pointer, context)

    def _init_borrowed(self) -> None:
        self._state = None
        self._sandbox = None

    def wait(self) -> "Completion[JobResult]":
        """Its end. Error ESTATE: this Job is one that a host's executor was given."""
        self._check_open()
        return self._own("Job.wait()").end.keep(self)

    def events(self) -> Stream[JobLine]:
        """What the executor says from now on, for `async for`."""
        self._check_open()
        return self._own("Job.events()").source.stream(self.context)

    def _own(self, what: str) -> "_JobState":
        if self._state is None:
            raise make_error(Code.ESTATE, f"{what} is for who began the job, with Executor.run()")
        return self._state

    def finish(self, status: int = 0, message: Text = "") -> None:
        """For a host's executor: ends the job as FINISHED. Error ESTATE: it has ended already, or runs a program."""
        call("orch_job_finish", self._pointer, status, encode(message))

    @property
    def packet(self) -> str:
        """The whole prompt."""
        return text(lib.orch_job_packet(self._pointer))

    @property
    def sandbox(self) -> Sandbox:
        """Where things are run. Error ECLOSED: the job is over."""
        if self._sandbox is None or self._sandbox.closed:
            pointer = lib.orch_job_sandbox(self._pointer)
            if not pointer:
                raise ClosedError(Code.ECLOSED, "the job is over, and has no sandbox any more")
            self._sandbox = Sandbox._borrow(pointer, self.context)
        return self._sandbox

    @property
    def workspace(self) -> Optional[str]:
        """Host path of the workspace; None: the sandbox has none."""
        path = lib.orch_job_workspace(self._pointer)
        return None if path is None else text(path)

    @property
    def claimed_tokens(self) -> int:
        """What the executor itself claims to have used. The authority is the broker."""
        return int(lib.orch_job_claimed_tokens(self._pointer))

    def close(self) -> None:
        """Gives the reference back, and that on its sandbox."""
        if getattr(self, "_sandbox", None) is not None:
            self._sandbox.close()  # type: ignore[union-attr]
            self._sandbox = None
        super().close()


#: A host's executor: called with the Job. It may be a coroutine function in an attached context.
JobFunction = Callable[[Job], Union[None, Any, Awaitable[Any]]]


class _JobState:
    """What C's events go to. It does not keep the Job alive."""

    def __init__(self, context: Context, sandbox: Sandbox, on_event: Optional[Callable[[JobLine], Any]]) -> None:
        self.end: "Completion[JobResult]" = Completion(context, "Job.wait()")
        self.source: Source[JobLine] = Source("Job.events()")
        self.source.listener = on_event
        self._jobs = context.jobs
        self._sandbox: Optional[int] = sandbox._pointer
        plain("orch_sandbox_ref", self._sandbox)
        self._jobs.add(self)

    def said(self, _job: int, event: int, line: bytes) -> None:
        """The event callback."""
        self.source.put(JobLine(choice(JobEvent, event), text(line)))

    def done(self, _job: int, end: int, status: int, message: bytes) -> None:
        """The done callback."""
        self.source.end()
        self.end.finish(JobResult(choice(JobEnd, end), status, text(message)))

    def heard(self, *arguments: Any) -> None:
        """Both come with the same userdata: an end has one argument more."""
        (self.done if len(arguments) == 4 else self.said)(*arguments)

    def gone(self) -> None:
        """Nothing more comes."""
        self._jobs.discard(self)
        sandbox, self._sandbox = self._sandbox, None
        self.source.end()
        self.end.abandon()
        if sandbox is not None:
            plain("orch_sandbox_unref", sandbox)

    def stop(self) -> None:
        """For the end of the context: its program is killed with its sandbox."""
        scope = lib.orch_sandbox_scope(self._sandbox)
        if scope:
            try:
                call("orch_scope_stop", scope, None, _table.orch_death_fn(), None, _table.orch_destroy_fn())
            except Forked:
                pass


class Executor(_handle.Handle):
    """What does the work of a role: it gets a packet (text) and a sandbox with a workspace, where it leaves its answer.

    Made by mini(), claude(), codex(), command() or callback().

    Error ENOENT: the program is not there (the message says where it was sought); EINVAL.
    """

    _noun = "executor"

    def __init__(self, context: Context, kind: ExecutorKind, *, api: Optional[Api] = None, model: Optional[Text] = None,
                 argv: Optional[Iterable[Path]] = None, program: Optional[Path] = None,
                 job: Optional[JobFunction] = None) -> None:
        owner = context._pointer
        opts = options(_table.orch_executor_opts, kind=int(kind), api=api, model=encode(model),
                       argv=None if argv is None else strings(argv), program=optional_path(program))
        if job is not None:
            opts.job, opts.destroy = _callbacks.JOB, _callbacks.DESTROY
            opts.userdata = _callbacks.add(_job_call(context, job))
        super().__init__(self._make("orch_executor_new", owner, ctypes.byref(opts)), context)

    @classmethod
    def mini(cls, context: Context, *, api: Api = Api.ANTHROPIC, model: Optional[Text] = None,
             program: Optional[Path] = None) -> "Executor":
        """The built-in one, with one tool: a shell. `program`: orch-mini; by default the one beside the library."""
        return cls(context, ExecutorKind.MINI, api=api, model=model, program=program)

    @classmethod
    def claude(cls, context: Context, program: Path, *, model: Optional[Text] = None) -> "Executor":
        """Claude Code. `program`: its absolute path."""
        return cls(context, ExecutorKind.CLAUDE, model=model, program=program)

    @classmethod
    def codex(cls, context: Context, program: Path, *, model: Optional[Text] = None) -> "Executor":
        """The Codex CLI. `program`: its absolute path."""
        return cls(context, ExecutorKind.CODEX, model=model, program=program)

    @classmethod
    def command(cls, context: Context, argv: Iterable[Path]) -> "Executor":
        """Any program: packet on stdin, workspace as working directory. argv[0] that is a host file is shown in the
        sandbox with its folder, at /opt/executor."""
        return cls(context, ExecutorKind.COMMAND, argv=argv)

    @classmethod
    def callback(cls, context: Context, job: JobFunction) -> "Executor":
        """A function of the host: job(Job), which calls Job.finish() there or later. In an attached context it may be a
        coroutine function. One that raises, or a coroutine that ends without finish(), ends the job with status -1."""
        return cls(context, ExecutorKind.CALLBACK, job=job)

    @property
    def kind(self) -> ExecutorKind:
        """What it is."""
        return choice(ExecutorKind, lib.orch_executor_kind(self._pointer))

    @property
    def kind_name(self) -> str:
        """The same in words."""
        return text(lib.orch_executor_kind_name(int(self.kind)))

    @property
    def operation(self) -> Optional[str]:
        """The grant that it needs: "ai.anthropic", "ai.openai" or None."""
        name = lib.orch_executor_operation(self._pointer)
        return None if name is None else text(name)

    def prepare(self, sandbox: Sandbox) -> None:
        """Shows the program's files in a sandbox that is not started yet; run() needs it."""
        call("orch_executor_prepare", self._pointer, sandbox._pointer)

    def run(self, sandbox: Sandbox, packet: Text, *, timeout_ms: int = 0, stall_ms: int = 0,
            on_event: Optional[Callable[[JobLine], Any]] = None) -> Job:
        """Begins one attempt in the started sandbox, which it does not stop: that is the caller's, and gives the
        certificate.

        packet      the whole prompt
        timeout_ms  0: 1800000
        stall_ms    no event for so long; 0: 300000
        on_event    called with each JobLine

        Error ESTATE: the sandbox is not started.
        """
        executor, inside = self._pointer, sandbox._pointer
        opts = options(_table.orch_job_opts, packet=encode(packet), timeout_ms=timeout_ms, stall_ms=stall_ms)
        state = _JobState(self.context, sandbox, on_event)
        opts.event, opts.done, opts.destroy = _callbacks.JOB_EVENT, _callbacks.JOB_DONE, _callbacks.DESTROY
        opts.userdata = _callbacks.add(state.heard, state.gone)
        return Job(Job._make("orch_executor_run", executor, inside, ctypes.byref(opts)), self.context, state)


def _job_call(context: Context, function: JobFunction) -> Callable[[int], None]:
    owner = weakref.ref(context)

    def begin(pointer: int) -> None:
        living = owner()
        assert living is not None  # callbacks run only inside its calls
        job = Job._borrow(pointer, living)
        answer = None
        try:
            answer = function(job)
            if inspect.iscoroutine(answer):
                living.spawn_task(_finish_later(answer, job))
        except BaseException as error:
            if inspect.iscoroutine(answer):
                answer.close()
            _give_up(job, f"the host's executor failed: {error!r}")
            raise

    return begin


async def _finish_later(answer: Any, job: Job) -> None:
    why = "the host's executor ended without finishing the job"
    try:
        await answer
    except BaseException as error:
        why = f"the host's executor failed: {error!r}"
        raise
    finally:
        _give_up(job, why)


def _give_up(job: Job, why: str) -> None:
    """Nobody will finish it any more. Not left to the last reference: who began the job may hold one."""
    try:
        if not job.closed:
            job.finish(-1, why)
    except Error as error:
        if error.code != Code.ESTATE:  # finished, as it should be
            raise
    finally:
        job.close()
