# SPDX-License-Identifier: Apache-2.0
"""The constants of the C interface as enumerations."""
import enum
from typing import Type, TypeVar

from . import _table as c

E = TypeVar("E", bound="Choice")


class Choice(enum.IntEnum):
    """An IntEnum that takes what a newer library may add, as a member named by its number."""

    @classmethod
    def _missing_(cls: Type[E], value: object) -> E:
        if not isinstance(value, int):
            raise ValueError(f"{value!r} is not a {cls.__name__}")
        member = int.__new__(cls, value)
        member._name_ = str(value)
        member._value_ = value
        return member

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if spec else self.name


def choice(kind: Type[E], value: int) -> E:
    """The member for a value from C."""
    return kind(value)


class LogLevel(Choice):
    """How much a log line matters."""
    ERROR = c.ORCH_LOG_ERROR
    WARNING = c.ORCH_LOG_WARNING
    NOTICE = c.ORCH_LOG_NOTICE
    DEBUG = c.ORCH_LOG_DEBUG


class Rung(Choice):
    """How a scope is closed; the best is last. NONE: not set up yet."""
    NONE = 0
    SUBREAPER = c.ORCH_RUNG_SUBREAPER
    CGROUP = c.ORCH_RUNG_CGROUP
    PIDNS = c.ORCH_RUNG_PIDNS
    CGROUP_PIDNS = c.ORCH_RUNG_CGROUP_PIDNS


class Limit(enum.IntFlag):
    """What of a scope is limited."""
    MEMORY = c.ORCH_LIMIT_MEMORY
    PROCESSES = c.ORCH_LIMIT_PROCESSES
    CPU = c.ORCH_LIMIT_CPU
    TIME = c.ORCH_LIMIT_TIME


class LimitState(Choice):
    """What was made of a limit. PARTIAL: it binds each process alone, or not everything is counted."""
    UNASKED = c.ORCH_LIMIT_UNASKED
    ENFORCED = c.ORCH_LIMIT_ENFORCED
    PARTIAL = c.ORCH_LIMIT_PARTIAL
    ABSENT = c.ORCH_LIMIT_ABSENT


class Reason(Choice):
    """Why a program ended. NONE: it has not. MEMORY, TIME: its scope's limit; STOPPED: its scope was being stopped;
    SETUP: it could not be started; LOST: how it ended is not known; DISK: without success, and its sandbox's private
    file system was full."""
    NONE = 0
    EXITED = c.ORCH_REASON_EXITED
    SIGNALED = c.ORCH_REASON_SIGNALED
    MEMORY = c.ORCH_REASON_MEMORY
    TIME = c.ORCH_REASON_TIME
    STOPPED = c.ORCH_REASON_STOPPED
    SETUP = c.ORCH_REASON_SETUP
    LOST = c.ORCH_REASON_LOST
    DISK = c.ORCH_REASON_DISK


class ProcEvent(Choice):
    """What happened to a program. Exactly one of FAILED and EXITED comes, after at most one STARTED."""
    STARTED = c.ORCH_PROC_STARTED
    FAILED = c.ORCH_PROC_FAILED
    EXITED = c.ORCH_PROC_EXITED


class StreamKind(Choice):
    """What a ProgramStream is."""
    OUTPUT = c.ORCH_STREAM_OUTPUT
    INPUT = c.ORCH_STREAM_INPUT
    PTY = c.ORCH_STREAM_PTY


class StreamEnd(Choice):
    """How a ProgramStream ended."""
    EOF = c.ORCH_STREAM_EOF
    CUT = c.ORCH_STREAM_CUT
    CLOSED = c.ORCH_STREAM_CLOSED
    BROKEN = c.ORCH_STREAM_BROKEN


class Verdict(Choice):
    """What a certificate says."""
    DEAD = c.ORCH_DEATH_DEAD
    DEAD_UNREAPED = c.ORCH_DEATH_DEAD_UNREAPED
    SURVIVORS = c.ORCH_DEATH_SURVIVORS
    UNVERIFIABLE = c.ORCH_DEATH_UNVERIFIABLE


class Root(Choice):
    """What a sandbox's root holds besides what was added: nothing, or read-only /usr, /bin, /lib*, a minimal /etc."""
    EMPTY = c.ORCH_ROOT_EMPTY
    TOOLS = c.ORCH_ROOT_TOOLS


class Net(Choice):
    """A sandbox's network: none, or 127.0.0.1:8080 inside as a socket that the host accepts on."""
    NONE = c.ORCH_NET_NONE
    BROKER = c.ORCH_NET_BROKER


class Access(enum.IntFlag):
    """What is allowed below a path. OWN implies the rest, and hands a folder to the sandbox's own user."""
    READ = c.ORCH_PATH_READ
    WRITE = c.ORCH_PATH_WRITE
    EXEC = c.ORCH_PATH_EXEC
    OWN = c.ORCH_PATH_OWN


class Protect(Choice):
    """What happens where a protection can not be enforced."""
    REQUIRED = c.ORCH_PROTECT_REQUIRED
    DEGRADABLE = c.ORCH_PROTECT_DEGRADABLE
    OFF = c.ORCH_PROTECT_OFF


class Channel(Choice):
    """What is enforced on a channel of this host."""
    ENFORCED = c.ORCH_CHANNEL_ENFORCED
    PARTIAL = c.ORCH_CHANNEL_PARTIAL
    ABSENT = c.ORCH_CHANNEL_ABSENT


class ChangeKind(Choice):
    """What became of a path of an overlay. MODIFIED: content, mode, type or link target; of a folder its mode."""
    ADDED = c.ORCH_CHANGE_ADDED
    MODIFIED = c.ORCH_CHANGE_MODIFIED
    DELETED = c.ORCH_CHANGE_DELETED


class Probe(Choice):
    """How a live probe, or its control, ended."""
    PASSED = c.ORCH_PROBE_PASSED
    FAILED = c.ORCH_PROBE_FAILED
    NOT_RUN = c.ORCH_PROBE_NOT_RUN


class ActionState(Choice):
    """What is known about an action."""
    INTENT = c.ORCH_ACTION_INTENT
    DISPATCHED = c.ORCH_ACTION_DISPATCHED
    OBSERVED = c.ORCH_ACTION_OBSERVED
    CONFIRMED = c.ORCH_ACTION_CONFIRMED
    FAILED = c.ORCH_ACTION_FAILED
    UNKNOWN = c.ORCH_ACTION_UNKNOWN
    HANDED_OVER = c.ORCH_ACTION_HANDED_OVER
    ABANDONED = c.ORCH_ACTION_ABANDONED


class Policy(Choice):
    """Whether an action may be done again."""
    REPEATABLE = c.ORCH_POLICY_REPEATABLE
    PROBE_FIRST = c.ORCH_POLICY_PROBE_FIRST
    NEVER_REPEAT = c.ORCH_POLICY_NEVER_REPEAT


class Begin(Choice):
    """What Journal.begin() found under the key. Only FRESH is to be dispatched."""
    FRESH = c.ORCH_BEGIN_FRESH
    REPLAY = c.ORCH_BEGIN_REPLAY
    ATTACHED = c.ORCH_BEGIN_ATTACHED
    AMBIGUOUS = c.ORCH_BEGIN_AMBIGUOUS
    CONFLICT = c.ORCH_BEGIN_CONFLICT


class Outcome(Choice):
    """What a probe found. NONE: none was asked."""
    NONE = 0
    APPLIED = c.ORCH_OUTCOME_APPLIED
    NOT_APPLIED = c.ORCH_OUTCOME_NOT_APPLIED
    IN_FLIGHT = c.ORCH_OUTCOME_IN_FLIGHT
    UNKNOWN = c.ORCH_OUTCOME_UNKNOWN


class Decision(Choice):
    """What a person found out about an action. NOT_APPLIED: it may be begun again. ABANDON: nobody will find out."""
    APPLIED = c.ORCH_DECISION_APPLIED
    NOT_APPLIED = c.ORCH_DECISION_NOT_APPLIED
    ABANDON = c.ORCH_DECISION_ABANDON


class Recover(Choice):
    """What recovery does with an action. VERIFY: it stays UNKNOWN and is asked about again."""
    CONTINUE = c.ORCH_RECOVER_CONTINUE
    VERIFY = c.ORCH_RECOVER_VERIFY
    RETRY = c.ORCH_RECOVER_RETRY
    HAND_OVER = c.ORCH_RECOVER_HAND_OVER
    ABANDON = c.ORCH_RECOVER_ABANDON


class PermitState(Choice):
    """What became of a permit. VOID: it was not used when the journal was restored from a backup."""
    ISSUED = c.ORCH_PERMIT_ISSUED
    USED = c.ORCH_PERMIT_USED
    EXPIRED = c.ORCH_PERMIT_EXPIRED
    REVOKED = c.ORCH_PERMIT_REVOKED
    VOID = c.ORCH_PERMIT_VOID


class TimerState(Choice):
    """What became of a timer. A due one is PENDING until Timer.done()."""
    PENDING = c.ORCH_TIMER_PENDING
    DONE = c.ORCH_TIMER_DONE
    CANCELED = c.ORCH_TIMER_CANCELED


class RecordType(Choice):
    """What a record of the journal is about. EPOCH: the journal was restored from a backup."""
    GENERATION = c.ORCH_RECORD_GENERATION
    ACTION = c.ORCH_RECORD_ACTION
    PERMIT = c.ORCH_RECORD_PERMIT
    TIMER = c.ORCH_RECORD_TIMER
    DECISION = c.ORCH_RECORD_DECISION
    EPOCH = c.ORCH_RECORD_EPOCH


class Credential(Choice):
    """How the secret is sent to an upstream."""
    NONE = c.ORCH_CREDENTIAL_NONE
    API_KEY = c.ORCH_CREDENTIAL_API_KEY
    BEARER = c.ORCH_CREDENTIAL_BEARER


class Operation(Choice):
    """A step of an operation of the broker."""
    REFUSED = c.ORCH_OPERATION_REFUSED
    DISPATCHED = c.ORCH_OPERATION_DISPATCHED
    OBSERVED = c.ORCH_OPERATION_OBSERVED
    FAILED = c.ORCH_OPERATION_FAILED
    UNKNOWN = c.ORCH_OPERATION_UNKNOWN


class ExecutorKind(Choice):
    """What does the work."""
    MINI = c.ORCH_EXECUTOR_MINI
    CLAUDE = c.ORCH_EXECUTOR_CLAUDE
    CODEX = c.ORCH_EXECUTOR_CODEX
    COMMAND = c.ORCH_EXECUTOR_COMMAND
    CALLBACK = c.ORCH_EXECUTOR_CALLBACK


class Api(Choice):
    """What the built-in executor speaks."""
    ANTHROPIC = c.ORCH_API_ANTHROPIC
    OPENAI = c.ORCH_API_OPENAI


class JobEvent(Choice):
    """What an executor's line is."""
    TEXT = c.ORCH_JOB_EVENT_TEXT
    TOOL = c.ORCH_JOB_EVENT_TOOL
    RESULT = c.ORCH_JOB_EVENT_RESULT
    OTHER = c.ORCH_JOB_EVENT_OTHER


class JobEnd(Choice):
    """How an attempt ended. FINISHED proves nothing."""
    FINISHED = c.ORCH_JOB_FINISHED
    STALLED = c.ORCH_JOB_STALLED
    TIMED_OUT = c.ORCH_JOB_TIMED_OUT
    FAILED = c.ORCH_JOB_FAILED
    HUNG = c.ORCH_JOB_HUNG


class Role(Choice):
    """Roles of a pipeline. ALL: those that have no executor of their own."""
    ALL = 0
    PLANNER = c.ORCH_ROLE_PLANNER
    CHECKER = c.ORCH_ROLE_CHECKER
    EXECUTOR = c.ORCH_ROLE_EXECUTOR
    REVIEWER = c.ORCH_ROLE_REVIEWER


class RunState(Choice):
    """Where a run is; the last three are ends."""
    INTAKE = c.ORCH_RUN_INTAKE
    CLARIFY = c.ORCH_RUN_CLARIFY
    FROZEN = c.ORCH_RUN_FROZEN
    PLANNED = c.ORCH_RUN_PLANNED
    EXECUTING = c.ORCH_RUN_EXECUTING
    ACCEPTING = c.ORCH_RUN_ACCEPTING
    DELIVERED = c.ORCH_RUN_DELIVERED
    PARTIAL = c.ORCH_RUN_PARTIAL
    ABORTED = c.ORCH_RUN_ABORTED


class Overlay(enum.IntFlag):
    """What a run waits for."""
    QUOTA_WAIT = c.ORCH_OVERLAY_QUOTA_WAIT
    BUDGET_STOP = c.ORCH_OVERLAY_BUDGET_STOP
    NEEDS_HUMAN = c.ORCH_OVERLAY_NEEDS_HUMAN
    RECOVERING = c.ORCH_OVERLAY_RECOVERING
