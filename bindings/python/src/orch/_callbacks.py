# SPDX-License-Identifier: Apache-2.0
"""Callbacks from C.

C never gets the address of a Python object. It gets a number as userdata, which is the key of a registration here, and
one of the few functions below, which live as long as the process. The library's promise that destroy runs exactly once
ends the registration.

What a callback raises can not pass through C. It is kept, and raised by the call into the library during which it
happened, with its own traceback, once that call has returned.
"""
import ctypes
import itertools
import sys
import threading
from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional

from . import _table

Function = Callable[..., Any]


class _Registration(NamedTuple):
    call: Function
    gone: Optional[Callable[[], None]]


class Frame:
    """One call into the library, and what was raised while it ran."""

    __slots__ = ("raised", "outer")

    def __init__(self, outer: "Optional[Frame]") -> None:
        self.raised: List[BaseException] = []
        self.outer = outer

    def raise_first(self, failure: Optional[BaseException]) -> None:
        """Raises the first exception. The others, and the failure of the call itself, become its context."""
        if not self.raised:
            return
        first, *others = self.raised
        self.raised = []
        if failure is not None:
            others.append(failure)
        for other in others:
            _add_context(first, other)
        try:
            raise first
        finally:
            del first, others, failure  # this frame is in the traceback


class _Thread(threading.local):
    frame: Optional[Frame] = None
    quiet = 0  # depth of callbacks that must not call the library


_registry: Dict[int, _Registration] = {}
_keys = itertools.count(1)
_thread = _Thread()
_later: Deque[Callable[[], None]] = deque()
_strays: List[int] = []


def _add_context(first: BaseException, other: BaseException) -> None:
    last, seen = first, {id(first)}
    while last.__context__ is not None and id(last.__context__) not in seen:
        last = last.__context__
        seen.add(id(last))
    if id(other) not in seen:
        last.__context__ = other


# --- registrations -------------------------------------------------------------------------------------------------


def add(call: Function, gone: Optional[Callable[[], None]] = None) -> int:
    """Registers and returns the key. `gone` is called when the registration ends."""
    key = next(_keys)
    _registry[key] = _Registration(call, gone)
    return key


def discard(key: int) -> None:
    """Ends a registration for a C function that takes no destroy."""
    _registry.pop(key, None)


def count() -> int:
    """The number of registrations that C may still call."""
    return len(_registry)


def strays() -> int:
    """How often C named a key that was not there: 0 as long as destroy comes once and last."""
    return len(_strays)


# --- calls into the library ----------------------------------------------------------------------------------------


def enter() -> Frame:
    """Begins a call into the library."""
    frame = _thread.frame = Frame(_thread.frame)
    return frame


def leave(frame: Frame) -> None:
    """Ends it."""
    _thread.frame = frame.outer
    while _later and not _thread.quiet:
        _later.popleft()()


def defer(release: Callable[[], None]) -> bool:
    """Keeps a release for later if the library must not be called just now."""
    if _thread.quiet:
        _later.append(release)
    return _thread.quiet > 0


# --- calls from the library ----------------------------------------------------------------------------------------


def _keep(error: BaseException) -> None:
    if _thread.frame is not None:
        _thread.frame.raised.append(error)
    else:
        sys.excepthook(type(error), error, error.__traceback__)


def _run(key: int, arguments: Any) -> Any:
    registration = _registry.get(key)
    if registration is None:
        _strays.append(key)
        return None
    return registration.call(*arguments)


def _tell(key: int, *arguments: Any) -> None:
    try:
        _run(key, arguments)
    except BaseException as error:  # pylint: disable=broad-except
        _keep(error)


def _tell_quietly(key: int, *arguments: Any) -> None:
    _thread.quiet += 1
    try:
        _tell(key, *arguments)
    finally:
        _thread.quiet -= 1


def _ask(key: int, *arguments: Any) -> int:
    """For walks: another answer than 0 ends them, and so does an exception."""
    try:
        return int(_run(key, arguments) or 0)
    except BaseException as error:  # pylint: disable=broad-except
        _keep(error)
        return 1


def _choose(key: int, action: int, outcome: int, proposed: int) -> int:
    """For decisions: no answer is the proposal, and so is an exception."""
    try:
        answer = _run(key, (action, outcome, proposed))
        return proposed if answer is None else int(answer)
    except BaseException as error:  # pylint: disable=broad-except
        _keep(error)
        return proposed


def _destroy(key: int) -> None:
    registration = _registry.pop(key, None)
    if registration is None:
        _strays.append(key)
    elif registration.gone is not None:
        try:
            registration.gone()
        except BaseException as error:  # pylint: disable=broad-except
            _keep(error)


def _function(kind: Any, function: Function) -> Any:
    made = kind(function)
    # The library may call it for as long as the process lives, also while the interpreter takes modules apart.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    return made


_record_fn = next(field[1] for field in _table.orch_journal_opts._fields_ if field[0] == "on_record")

DESTROY = _function(_table.orch_destroy_fn, _destroy)
#: These may come from any call into the library, and must not call it.
LOG = _function(_table.orch_log_fn, _tell_quietly)
RECORD = _function(_record_fn, _tell_quietly)
#: These answer.
ACTION = _function(_table.orch_action_fn, _ask)
PERMIT = _function(_table.orch_permit_fn, _ask)
TIMER = _function(_table.orch_timer_each_fn, _ask)
RECORD_READ = _function(_table.orch_record_fn, _ask)
EXPORT = _function(_table.orch_export_fn, _ask)
DECIDE = _function(_table.orch_decide_fn, _choose)
#: These only tell.
PROBE = _function(_table.orch_probe_fn, _tell)
HAND_OVER = _function(_table.orch_hand_over_fn, _tell)
BEGUN = _function(_table.orch_begin_fn, _tell)
RECORDED = _function(_table.orch_recorded_fn, _tell)
MOVED = _function(_table.orch_move_fn, _tell)
TIMER_DUE = _function(_table.orch_timer_due_fn, _tell)
REVOKE = _function(_table.orch_revoke_fn, _tell)
OPERATION = _function(_table.orch_operation_fn, _tell)
PROC = _function(_table.orch_proc_fn, _tell)
STREAM_DATA = _function(_table.orch_stream_data_fn, _tell)
STREAM_END = _function(_table.orch_stream_end_fn, _tell)
STREAM_WRITABLE = _function(_table.orch_stream_writable_fn, _tell)
DEATH = _function(_table.orch_death_fn, _tell)
SETTLE = _function(_table.orch_settle_fn, _tell)
SANDBOX_START = _function(_table.orch_sandbox_start_fn, _tell)
SANDBOX_CONNECT = _function(_table.orch_sandbox_connect_fn, _tell)
JOB = _function(_table.orch_job_fn, _tell)
JOB_EVENT = _function(_table.orch_job_event_fn, _tell)
JOB_DONE = _function(_table.orch_job_done_fn, _tell)
PIPELINE_EVENT = _function(_table.orch_pipeline_event_fn, _tell)
