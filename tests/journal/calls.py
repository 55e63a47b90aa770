"""The journal's calls that these tests make themselves, declared from the headers by hand.

Not through the Python package: it is under test elsewhere, and what is declared twice is compared. What a callback
raises is raised when the call has returned.
"""
import contextlib
import ctypes
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import orch
from orch import _errors, _library

ACTION_STATES = ("", "INTENT", "DISPATCHED", "OBSERVED", "CONFIRMED", "FAILED", "UNKNOWN", "HANDED_OVER", "ABANDONED")
OUTCOMES = ("NONE", "APPLIED", "NOT_APPLIED", "IN_FLIGHT", "UNKNOWN")
BEGINS = ("", "FRESH", "REPLAY", "ATTACHED", "AMBIGUOUS", "CONFLICT")
POLICIES = ("", "REPEATABLE", "PROBE_FIRST", "NEVER_REPEAT")
DECISIONS = ("", "APPLIED", "NOT_APPLIED", "ABANDON")
RECOVERIES = ("", "CONTINUE", "VERIFY", "RETRY", "HAND_OVER", "ABANDON")
PERMIT_STATES = ("", "ISSUED", "USED", "EXPIRED", "REVOKED", "VOID")
TIMER_STATES = ("", "PENDING", "DONE", "CANCELED")
RECORD_TYPES = ("", "GENERATION", "ACTION", "PERMIT", "TIMER", "DECISION", "EPOCH")


class Options(ctypes.Structure):
    """An options struct; zero is the default."""

    @classmethod
    def of(cls, **values: Any) -> Any:
        made = cls()
        made.size = ctypes.sizeof(cls)
        for name, value in values.items():
            if value is not None:
                setattr(made, name, value)
        return made


class ActionOpts(Options):
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("kind", c_char_p), ("key", c_char_p), ("policy", c_uint32),
                ("reserved", c_uint32), ("request", c_char_p), ("request_length", c_size_t), ("fingerprint", c_char_p),
                ("fingerprint_length", c_size_t), ("permit", c_char_p)]


class PermitOpts(Options):
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("name", c_char_p), ("kind", c_char_p),
                ("fingerprint", c_char_p), ("fingerprint_length", c_size_t), ("expires_at_ms", c_int64),
                ("note", c_char_p), ("note_length", c_size_t)]


class TimerOpts(Options):
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("name", c_char_p), ("due_at_ms", c_int64),
                ("delay_ms", c_int64), ("payload", c_char_p), ("payload_length", c_size_t)]


class RestoreOpts(Options):
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("backup_path", c_char_p), ("path", c_char_p),
                ("anchor_path", c_char_p)]


ProbeFn = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)
DecideFn = ctypes.CFUNCTYPE(c_uint32, c_void_p, c_void_p, c_uint32, c_uint32)
HandOverFn = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)
EachFn = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p)
LineFn = ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(ctypes.c_char), c_size_t)


class RecoverOpts(Options):
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("kind_prefix", c_char_p), ("probe", ProbeFn),
                ("decide", DecideFn), ("hand_over", HandOverFn), ("userdata", c_void_p)]


#: Arguments without the last one, `reterr`; they all give a code.
CALLS: Dict[str, Tuple[Any, ...]] = {
    "orch_journal_begin": (c_void_p, POINTER(ActionOpts), POINTER(c_uint32), POINTER(c_void_p)),
    "orch_journal_recover": (c_void_p, POINTER(RecoverOpts), POINTER(c_void_p)),
    "orch_journal_prune": (c_void_p, c_int64, POINTER(c_uint64), POINTER(c_uint64)),
    "orch_journal_export": (c_void_p, c_uint32, LineFn, c_void_p),
    "orch_journal_records": (c_void_p, c_uint64, EachFn, c_void_p),
    "orch_journal_backup": (c_void_p, c_char_p, POINTER(c_uint64)),
    "orch_journal_restore": (POINTER(RestoreOpts), POINTER(c_void_p)),
    "orch_action_decide": (c_void_p, c_uint32, c_char_p, c_char_p, c_size_t),
    "orch_permit_issue": (c_void_p, POINTER(PermitOpts), POINTER(c_void_p)),
    "orch_permit_revoke": (c_void_p, c_char_p),
    "orch_permit_find": (c_void_p, c_char_p, POINTER(c_void_p)),
    "orch_permit_each": (c_void_p, EachFn, c_void_p),
    "orch_timer_set": (c_void_p, POINTER(TimerOpts), POINTER(c_void_p)),
    "orch_timer_done": (c_void_p,),
    "orch_timer_cancel": (c_void_p,),
    "orch_timer_find": (c_void_p, c_char_p, POINTER(c_void_p)),
    "orch_timer_each": (c_void_p, EachFn, c_void_p),
    "orch_timer_next": (c_void_p, POINTER(c_void_p), POINTER(c_int64)),
}

#: Whole signatures of the others: what they give, what they take.
GETTERS: Dict[str, Tuple[Any, ...]] = {
    "orch_journal_epoch": (c_uint64, c_void_p),
    "orch_action_created_at_ms": (c_int64, c_void_p),
    "orch_action_pruned": (c_int32, c_void_p),
    "orch_action_decision": (c_uint32, c_void_p, POINTER(c_char_p), POINTER(c_int64)),
    "orch_probe_reply_answer": (c_int32, c_void_p, c_uint32, c_char_p, c_size_t),
    "orch_recovery_count": (c_uint32, c_void_p),
    "orch_recovery_row": (c_int32, c_void_p, c_uint32, POINTER(c_void_p), POINTER(c_uint32), POINTER(c_uint32),
                          POINTER(c_char_p)),
    "orch_recovery_text": (c_char_p, c_void_p),
    "orch_recovery_unref": (c_void_p, c_void_p),
    "orch_permit_unref": (c_void_p, c_void_p),
    "orch_permit_name": (c_char_p, c_void_p),
    "orch_permit_kind": (c_char_p, c_void_p),
    "orch_permit_state": (c_uint32, c_void_p),
    "orch_permit_expires_at_ms": (c_int64, c_void_p),
    "orch_permit_epoch": (c_uint64, c_void_p),
    "orch_permit_action": (c_uint64, c_void_p),
    "orch_permit_note": (c_void_p, c_void_p, POINTER(c_size_t)),
    "orch_timer_ref": (c_void_p, c_void_p),
    "orch_timer_unref": (c_void_p, c_void_p),
    "orch_timer_name": (c_char_p, c_void_p),
    "orch_timer_state": (c_uint32, c_void_p),
    "orch_timer_round": (c_uint32, c_void_p),
    "orch_timer_due_at_ms": (c_int64, c_void_p),
    "orch_timer_delay_ms": (c_int64, c_void_p),
    "orch_timer_payload": (c_void_p, c_void_p, POINTER(c_size_t)),
    "orch_record_sequence": (c_uint64, c_void_p),
    "orch_record_generation": (c_uint64, c_void_p),
    "orch_record_type": (c_uint32, c_void_p),
    "orch_record_subject": (c_uint64, c_void_p),
    "orch_record_name": (c_char_p, c_void_p),
    "orch_record_kind": (c_char_p, c_void_p),
    "orch_record_state_name": (c_char_p, c_void_p),
    "orch_record_attempt": (c_uint32, c_void_p),
    "orch_restoration_unref": (c_void_p, c_void_p),
    "orch_restoration_epoch": (c_uint64, c_void_p),
    "orch_restoration_records": (c_uint64, c_void_p),
    "orch_restoration_lost": (c_uint64, c_void_p),
    "orch_restoration_unknown": (c_uint32, c_void_p),
    "orch_restoration_void": (c_uint32, c_void_p),
    "orch_restoration_replaced": (c_char_p, c_void_p),
    "orch_error_free": (c_void_p, c_void_p),
}

_functions: Dict[str, Any] = {}


def _function(name: str) -> Any:
    if name not in _functions:
        function = _library.load()[name]  # one of our own, beside the package's
        if name in CALLS:
            function.restype, function.argtypes = c_int32, [*CALLS[name], POINTER(c_void_p)]
        else:
            function.restype, *function.argtypes = GETTERS[name]
        _functions[name] = function
    return _functions[name]


def get(name: str, *arguments: Any) -> Any:
    return _function(name)(*arguments)


def call(name: str, *arguments: Any) -> int:
    """Its code; raises the error."""
    error = c_void_p()
    code = _function(name)(*arguments, ctypes.byref(error))
    try:
        if code < 0:
            raise _errors.error_of(error.value, code)
        if error.value:
            raise AssertionError(f"{name}: an error beside the code {code}")
    finally:
        get("orch_error_free", error)
    return code


@contextlib.contextmanager
def _callbacks() -> Iterator[Callable[[Any, Callable[..., Any]], Any]]:
    """Makes C functions of Python ones, for one call."""
    raised: List[BaseException] = []
    kept = []

    def make(kind: Any, function: Callable[..., Any]) -> Any:
        def run(_userdata: Any, *arguments: Any) -> Any:
            try:
                return function(*arguments)
            except BaseException as error:  # pylint: disable=broad-except
                raised.append(error)
                return 0 if kind is not EachFn else 1

        kept.append(kind(run))
        return kept[-1]

    yield make
    if raised:
        raise raised[0]


def _bytes(getter: str, pointer: Any) -> Optional[bytes]:
    size = c_size_t()
    at = get(getter, pointer, ctypes.byref(size))
    return ctypes.string_at(at, size.value) if at else None


def _named(names: Tuple[str, ...], number: int) -> str:
    """A damaged journal may tell a number that has no name."""
    return names[number] if number < len(names) else str(number)


def _length(value: Optional[bytes]) -> int:
    return len(value) if value is not None else 0


# --- actions ---------------------------------------------------------------------------------------------------------

def begin(journal: orch.Journal, kind: str, key: str, request: Optional[bytes], policy: str = "NEVER_REPEAT",
          fingerprint: Optional[bytes] = None, permit: str = "") -> Tuple[str, orch.Action]:
    opts = ActionOpts.of(kind=kind.encode(), key=key.encode(), policy=POLICIES.index(policy), request=request,
                         request_length=_length(request), fingerprint=fingerprint,
                         fingerprint_length=_length(fingerprint), permit=permit.encode() or None)
    outcome, pointer = c_uint32(), c_void_p()
    call("orch_journal_begin", journal._pointer, ctypes.byref(opts), ctypes.byref(outcome), ctypes.byref(pointer))
    return BEGINS[outcome.value], orch.Action(pointer.value or 0)


def epoch(journal: orch.Journal) -> int:
    return get("orch_journal_epoch", journal._pointer)


class Decision(NamedTuple):
    decision: str
    by: str
    at_ms: int


def decide(action: orch.Action, decision: str, by: str, note: bytes) -> None:
    call("orch_action_decide", action._pointer, DECISIONS.index(decision), by.encode(), note, len(note))


def decision_of(action: orch.Action) -> Optional[Decision]:
    by, at_ms = c_char_p(), c_int64()
    decision = get("orch_action_decision", action._pointer, ctypes.byref(by), ctypes.byref(at_ms))
    return Decision(_named(DECISIONS, decision), (by.value or b"").decode(), at_ms.value) if decision else None


def created_at_ms(action: orch.Action) -> int:
    return get("orch_action_created_at_ms", action._pointer)


def pruned(action: orch.Action) -> bool:
    return bool(get("orch_action_pruned", action._pointer))


class Recovered(NamedTuple):
    key: str
    before: str
    probe: str
    after: str
    words: str


Probe = Callable[[orch.Action], Optional[Tuple[str, bytes]]]
Decide = Callable[[orch.Action, str, str], int]


def recover(journal: orch.Journal, prefix: str = "", probe: Optional[Probe] = None, decide_fn: Optional[Decide] = None,
            hand_over: Optional[Callable[[orch.Action], None]] = None) -> List[Recovered]:
    """`probe` gives an outcome and a result, or None for no answer; `decide_fn` the number of an ORCH_RECOVER_*."""
    def borrow(pointer: int) -> orch.Action:
        return orch.Action._borrow(pointer, None)

    def ask(action: int, reply: int) -> None:
        with borrow(action) as asked:
            assert probe
            answer = probe(asked)
        if answer:
            code = get("orch_probe_reply_answer", reply, OUTCOMES.index(answer[0]), answer[1], len(answer[1]))
            assert code == 0, code

    def choose(action: int, outcome: int, proposed: int) -> int:
        with borrow(action) as asked:
            assert decide_fn
            return decide_fn(asked, OUTCOMES[outcome], RECOVERIES[proposed])

    def tell(action: int) -> None:
        with borrow(action) as told:
            assert hand_over
            hand_over(told)

    pointer = c_void_p()
    with _callbacks() as make:
        opts = RecoverOpts.of(kind_prefix=prefix.encode() or None, probe=make(ProbeFn, ask) if probe else None,
                              decide=make(DecideFn, choose) if decide_fn else None,
                              hand_over=make(HandOverFn, tell) if hand_over else None)
        call("orch_journal_recover", journal._pointer, ctypes.byref(opts), ctypes.byref(pointer))
    try:
        return [_recovered(pointer, index) for index in range(get("orch_recovery_count", pointer))]
    finally:
        get("orch_recovery_unref", pointer)


def _recovered(recovery: c_void_p, index: int) -> Recovered:
    action, before, probe, words = c_void_p(), c_uint32(), c_uint32(), c_char_p()
    code = get("orch_recovery_row", recovery, index, ctypes.byref(action), ctypes.byref(before), ctypes.byref(probe),
               ctypes.byref(words))
    assert code == 0, code
    with orch.Action._borrow(action.value or 0, None) as after:
        return Recovered(after.key, ACTION_STATES[before.value], OUTCOMES[probe.value], after.state_name,
                         (words.value or b"").decode())


# --- permits ---------------------------------------------------------------------------------------------------------

class Permit(NamedTuple):
    name: str
    kind: str
    state: str
    expires_at_ms: int
    epoch: int
    action: int
    note: Optional[bytes]


def _permit(pointer: Any) -> Permit:
    return Permit(get("orch_permit_name", pointer).decode(), get("orch_permit_kind", pointer).decode(),
                  _named(PERMIT_STATES, get("orch_permit_state", pointer)), get("orch_permit_expires_at_ms", pointer),
                  get("orch_permit_epoch", pointer), get("orch_permit_action", pointer),
                  _bytes("orch_permit_note", pointer))


def _taken_permit(pointer: c_void_p) -> Permit:
    try:
        return _permit(pointer)
    finally:
        get("orch_permit_unref", pointer)


def issue(journal: orch.Journal, name: str, kind: str, fingerprint: Optional[bytes] = None, expires_at_ms: int = 0,
          note: bytes = b"") -> Permit:
    opts = PermitOpts.of(name=name.encode(), kind=kind.encode(), fingerprint=fingerprint,
                         fingerprint_length=_length(fingerprint), expires_at_ms=expires_at_ms, note=note or None,
                         note_length=len(note))
    pointer = c_void_p()
    call("orch_permit_issue", journal._pointer, ctypes.byref(opts), ctypes.byref(pointer))
    return _taken_permit(pointer)


def revoke(journal: orch.Journal, name: str) -> None:
    call("orch_permit_revoke", journal._pointer, name.encode())


def permit(journal: orch.Journal, name: str) -> Permit:
    pointer = c_void_p()
    call("orch_permit_find", journal._pointer, name.encode(), ctypes.byref(pointer))
    return _taken_permit(pointer)


def _each(function: str, journal: orch.Journal, read: Callable[[int], Any], *before: Any) -> List[Any]:
    found: List[Any] = []

    def visit(pointer: int) -> int:
        found.append(read(pointer))
        return 0

    with _callbacks() as make:
        call(function, journal._pointer, *before, make(EachFn, visit), None)
    return found


def permits(journal: orch.Journal) -> List[Permit]:
    return _each("orch_permit_each", journal, _permit)


# --- timers ----------------------------------------------------------------------------------------------------------

class Timer(NamedTuple):
    name: str
    state: str
    round: int
    due_at_ms: int
    delay_ms: int
    payload: Optional[bytes]


def timer_of(pointer: Any) -> Timer:
    return Timer(get("orch_timer_name", pointer).decode(), _named(TIMER_STATES, get("orch_timer_state", pointer)),
                 get("orch_timer_round", pointer), get("orch_timer_due_at_ms", pointer),
                 get("orch_timer_delay_ms", pointer), _bytes("orch_timer_payload", pointer))


class TimerHandle:
    """What a timer was when it was looked up."""

    def __init__(self, pointer: c_void_p) -> None:
        self.pointer: Optional[c_void_p] = pointer

    def tell(self) -> Timer:
        return timer_of(self.pointer)

    def done(self) -> None:
        call("orch_timer_done", self.pointer)

    def cancel(self) -> None:
        call("orch_timer_cancel", self.pointer)

    def close(self) -> None:
        if self.pointer:
            get("orch_timer_unref", self.pointer)
            self.pointer = None

    def __enter__(self) -> "TimerHandle":
        return self

    def __exit__(self, *_raised: Any) -> None:
        self.close()


def set_timer(journal: orch.Journal, name: str, due_at_ms: int = 0, delay_ms: int = 0,
              payload: bytes = b"") -> TimerHandle:
    opts = TimerOpts.of(name=name.encode(), due_at_ms=due_at_ms, delay_ms=delay_ms, payload=payload or None,
                        payload_length=len(payload))
    pointer = c_void_p()
    call("orch_timer_set", journal._pointer, ctypes.byref(opts), ctypes.byref(pointer))
    return TimerHandle(pointer)


def find_timer(journal: orch.Journal, name: str) -> TimerHandle:
    pointer = c_void_p()
    call("orch_timer_find", journal._pointer, name.encode(), ctypes.byref(pointer))
    return TimerHandle(pointer)


def timers(journal: orch.Journal) -> List[Timer]:
    return _each("orch_timer_each", journal, timer_of)


def next_timer(journal: orch.Journal) -> Tuple[Optional[TimerHandle], int]:
    pointer, wait_ms = c_void_p(1), c_int64(-7)
    call("orch_timer_next", journal._pointer, ctypes.byref(pointer), ctypes.byref(wait_ms))
    return TimerHandle(pointer) if pointer.value else None, wait_ms.value


# --- records, keeping ------------------------------------------------------------------------------------------------

class Record(NamedTuple):
    sequence: int
    generation: int
    type: str
    subject: int
    name: str
    kind: str
    state: str
    attempt: int


def records(journal: orch.Journal, after: int = 0) -> List[Record]:
    def read(pointer: int) -> Record:
        return Record(get("orch_record_sequence", pointer), get("orch_record_generation", pointer),
                      _named(RECORD_TYPES, get("orch_record_type", pointer)), get("orch_record_subject", pointer),
                      get("orch_record_name", pointer).decode(), get("orch_record_kind", pointer).decode(),
                      get("orch_record_state_name", pointer).decode(), get("orch_record_attempt", pointer))

    return _each("orch_journal_records", journal, read, after)


def prune(journal: orch.Journal, closed_before_ms: int) -> Tuple[int, int]:
    """Counts of actions and of bytes."""
    actions, size = c_uint64(), c_uint64()
    call("orch_journal_prune", journal._pointer, closed_before_ms, ctypes.byref(actions), ctypes.byref(size))
    return actions.value, size.value


def export(journal: orch.Journal, with_records: bool = False) -> List[bytes]:
    found: List[bytes] = []

    def visit(line: Any, length: int) -> int:
        found.append(ctypes.string_at(line, length))
        return 0

    with _callbacks() as make:
        call("orch_journal_export", journal._pointer, 1 if with_records else 0, make(LineFn, visit), None)
    return found


def backup(journal: orch.Journal, path: Any) -> int:
    """How many records are in it."""
    count = c_uint64()
    call("orch_journal_backup", journal._pointer, bytes(path), ctypes.byref(count))
    return count.value


class Restored(NamedTuple):
    epoch: int
    records: int
    lost: int
    unknown: int
    void: int
    replaced: str


def restore(backup_path: Any, path: Any, anchor: Any = None, replace: bool = False) -> Restored:
    opts = RestoreOpts.of(flags=1 if replace else 0, backup_path=bytes(backup_path), path=bytes(path),
                          anchor_path=bytes(anchor) if anchor else None)
    pointer = c_void_p()
    call("orch_journal_restore", ctypes.byref(opts), ctypes.byref(pointer))
    try:
        numbers = [get(f"orch_restoration_{name}", pointer)
                   for name in ("epoch", "records", "lost", "unknown", "void")]
        return Restored(*numbers, get("orch_restoration_replaced", pointer).decode())
    finally:
        get("orch_restoration_unref", pointer)
