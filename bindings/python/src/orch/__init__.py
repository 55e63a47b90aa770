# SPDX-License-Identifier: Apache-2.0
"""liborch for Python: scopes and death certificates, sandboxes, the action journal, the broker, executors, pipelines.

    with orch.Context() as context, orch.Scope(context) as scope:
        proc = scope.spawn(["/bin/sh", "-c", "exit 7"])
        print(proc.exit_wait())         # 7
        print(scope.stop_wait())        # the certificate

Verbs that take time come in two forms. The plain name begins and returns a Completion: await it (asyncio, with
`async with orch.Context.attach() as context`), call its result(), or give it a callback. The name with _wait blocks,
and runs the context meanwhile. Errors are orch.Error; what a callback raises comes out of the call that ran it.
Times are in ms where the name says so, sizes in MiB or bytes, money in millionths of a US dollar.
"""
from . import _table
from ._completion import Completion, Stream
from ._enums import (Access, ActionState, Api, Begin, ChangeKind, Channel, Credential, Decision, ExecutorKind, JobEnd,
                     JobEvent, Limit, LimitState, LogLevel, Net, Operation, Outcome, Overlay, PermitState, Policy,
                     Probe, ProcEvent, Protect, Reason, RecordType, Recover, Role, Root, RunState, Rung, StreamEnd,
                     StreamKind, TimerState, Verdict)
from ._errors import (Canceled, ClosedError, Code, Deadlock, Error, Forked, Locked, NeedsHuman, TimedOut, Unenforceable)
from ._handle import Handle
from ._library import VERSION as __version__
from ._library import LibraryError, use_library
from ._library import path as library_path
from .action import Action, Begun, Decided
from .broker import Broker, OperationEvent, Principal, Revoked, Spent
from .changes import Change, Changes
from .context import Context
from .death import Death, HostWork, InitProcess, Survivor
from .executor import Executor, Job, JobLine, JobResult
from .journal import ONLY_NEW, Journal, Pruned
from .permit import Permit
from .pipeline import Event, Pipeline
from .pool import SandboxPool
from .reaper import recover_scopes
from .record import Record, Watch
from .recovery import ProbeReply, Recovery, RecoveryRow
from .report import ReportRow, SandboxReport
from .restoration import Restoration
from .sandbox import Answer, Sandbox, SandboxResult
from .scope import Proc, Scope, Settlement
from .stream import ProgramStream
from .timer import NextTimer, Timer, TimerWatch

__all__ = [
    "Access", "Action", "ActionState", "Answer", "Api", "BROKER_PORT", "Begin", "Begun", "Broker", "Canceled",
    "Change", "ChangeKind", "Changes", "Channel", "ClosedError", "Code", "Completion", "Context", "Credential",
    "Deadlock", "Death", "Decided", "Decision", "Error", "Event", "Executor", "ExecutorKind", "Forked", "Handle",
    "HostWork", "InitProcess", "Job", "JobEnd", "JobEvent", "JobLine", "JobResult", "Journal", "LibraryError", "Limit",
    "LimitState", "Locked", "LogLevel", "NeedsHuman", "Net", "NextTimer", "ONLY_NEW", "Operation", "OperationEvent",
    "Outcome", "Overlay", "Permit", "PermitState", "Pipeline", "Policy", "Principal", "Probe", "ProbeReply", "Proc",
    "ProcEvent", "ProgramStream", "Protect", "Pruned", "Reason", "Record", "RecordType", "Recover", "Recovery",
    "RecoveryRow", "ReportRow", "Restoration", "Revoked", "Role", "Root", "RunState", "Rung", "Sandbox", "SandboxPool",
    "SandboxReport", "SandboxResult", "Scope", "Settlement", "Spent", "Stream", "StreamEnd", "StreamKind", "Survivor",
    "TimedOut", "Timer", "TimerState", "TimerWatch", "Unenforceable", "Verdict", "Watch", "library_path",
    "recover_scopes", "use_library", "version", "__version__",
]

#: The inner port of a Net.BROKER listener.
BROKER_PORT = _table.ORCH_BROKER_PORT


def version() -> str:
    """The version of the library that is loaded."""
    from ._native import lib, text
    return text(lib.orch_version())


for _name, _thing in list(globals().items()):
    if isinstance(_thing, type) and _thing.__module__.startswith("orch."):
        _thing.__module__ = "orch"  # where users find it, and what they read in a traceback
del _name, _thing
