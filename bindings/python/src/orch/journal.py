# SPDX-License-Identifier: Apache-2.0
"""Journal: a durable record of actions."""
import ctypes
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Optional

from . import _callbacks, _handle, _table, recovery, restoration
from ._completion import Completion
from ._enums import ActionState, Begin, Policy, choice
from ._errors import Code, error_of
from ._native import (Path, Text, address, call, encode, encode_path, length, lib, optional_path, options, payload)
from .action import Action, Begun, Payload
from .context import Context
from .record import PAGE, Record, Watch, walk
from .recovery import DecideFunction, HandOverFunction, ProbeFunction, Recovery
from .restoration import Restoration

#: For Journal.watch(): only what is new.
ONLY_NEW = 2**64 - 1


class Pruned(NamedTuple):
    """What Journal.prune() dropped."""
    actions: int
    bytes: int


class Journal(_handle.Handle):
    """A durable record of actions. It needs no context; what a call did is durable when it returns.

    Any number of threads may use one Journal: what they ask for at the same time goes into one commit. One coordinator
    owns a journal; a second one is refused. It is closed when its last handle is, those of its actions, timers and
    watches included. The forms with _async do not wait for the disk: they give a Completion, in a context.

    path           the database; beside it come PATH-wal, PATH.lock and PATH.reserve
    anchor_path    a small file outside the journal's folder, so that an older copy put back is noticed; None: none
    payload_limit  bytes of a request or result; by default 1 MiB
    read_only      reads what a dead coordinator wrote, without owning it
    on_record      called with the sequence number after each durable record; must not call the library

    Locked: another coordinator owns it; Error ECORRUPT, ESCHEMA, ENETFS, ENOENT, ENOSPC, ESYS, EINVAL.
    """

    _noun = "journal"

    def __init__(self, path: Path, *, anchor_path: Optional[Path] = None, payload_limit: Optional[int] = None,
                 read_only: bool = False, on_record: Optional[Callable[[int], Any]] = None) -> None:
        opts = options(_table.orch_journal_opts, path=encode_path(path), anchor_path=optional_path(anchor_path),
                       payload_limit=payload_limit, flags=_table.ORCH_JOURNAL_READ_ONLY if read_only else 0)
        if on_record is not None:
            opts.on_record, opts.destroy = _callbacks.RECORD, _callbacks.DESTROY
            opts.userdata = _callbacks.add(on_record)
        super().__init__(self._make("orch_journal_open", ctypes.byref(opts)), None)

    @property
    def generation(self) -> int:
        """This coordinator's: rises with each open for writing."""
        return int(lib.orch_journal_generation(self._pointer))

    @property
    def sequence(self) -> int:
        """Number of the last durable record."""
        return int(lib.orch_journal_sequence(self._pointer))

    @property
    def epoch(self) -> int:
        """1 for a journal that was never restored; each restore() starts the next one."""
        return int(lib.orch_journal_epoch(self._pointer))

    # --- recording -------------------------------------------------------------------------------------------------

    def begin(self, kind: Text, key: Text, request: Payload = None, *, policy: Policy = Policy.NEVER_REPEAT,
              fingerprint: Payload = None, permit: Optional[Text] = None) -> Begun:
        """Records an intent, or finds what is recorded under the key: (outcome, action). Dispatch only what is FRESH.

        kind         "notify.send": 1..63 of [a-z0-9._-]
        key          idempotency key, unique in the journal
        policy       whether it may be done again; the first one stays
        fingerprint  what makes two requests the same; None: SHA-256 of kind and request
        permit       name of a Permit that a FRESH outcome uses up in the same transaction; None: none is needed

        Error ECONFLICT: the key with another kind or fingerprint; ETOOBIG: nothing recorded; EPERMIT: the permit is
        missing, used by another action, expired, revoked, void, or for something else; ENOSPC; EPOISONED.
        """
        given, same = payload(request), payload(fingerprint)
        opts = _action_options(kind, key, given, policy, same, permit)
        outcome = ctypes.c_uint32()
        pointer = Action._make("orch_journal_begin", self._pointer, ctypes.byref(opts), ctypes.byref(outcome))
        return Begun(choice(Begin, outcome.value), Action(pointer))

    def begin_async(self, context: Context, kind: Text, key: Text, request: Payload = None, *,
                    policy: Policy = Policy.NEVER_REPEAT, fingerprint: Payload = None,
                    permit: Optional[Text] = None) -> "Completion[Begun]":
        """The same without waiting for the disk: done when it is durable.

        The order of one thread's calls is kept. Canceled: the journal was closed first; what was asked for is recorded
        all the same.
        """
        given, same = payload(request), payload(fingerprint)
        pointer, opts = self._pointer, _action_options(kind, key, given, policy, same, permit)
        completion: "Completion[Begun]" = Completion(context, "Journal.begin_async()")

        def begun(outcome: int, action: Optional[int], error: Optional[int]) -> None:
            if error:
                completion.fail(error_of(error))
            else:
                completion.finish(Begun(choice(Begin, outcome), Action._borrow(action or 0, None)))

        key_of = _callbacks.add(begun, completion.abandon)
        call("orch_journal_begin_async", pointer, context._pointer, ctypes.byref(opts), _callbacks.BEGUN, key_of,
             _callbacks.DESTROY)
        return completion.keep(self)

    def record(self, kind: Text, key: Text, value: Payload = None) -> bool:
        """Records something whose record is the whole effect: straight to CONFIRMED. False: the same was there already.

        Error ECONFLICT: something else was; others as begin()."""
        given, fresh = payload(value), ctypes.c_int32()
        call("orch_journal_record", self._pointer, encode(kind), encode(key), given, length(given), ctypes.byref(fresh))
        return bool(fresh.value)

    def record_async(self, context: Context, kind: Text, key: Text, value: Payload = None) -> "Completion[bool]":
        """The same without waiting for the disk: see begin_async()."""
        pointer, given = self._pointer, payload(value)
        completion: "Completion[bool]" = Completion(context, "Journal.record_async()")

        def recorded(fresh: int, error: Optional[int]) -> None:
            if error:
                completion.fail(error_of(error))
            else:
                completion.finish(bool(fresh))

        key_of = _callbacks.add(recorded, completion.abandon)
        call("orch_journal_record_async", pointer, context._pointer, encode(kind), encode(key), given, length(given),
             _callbacks.RECORDED, key_of, _callbacks.DESTROY)
        return completion.keep(self)

    # --- looking ---------------------------------------------------------------------------------------------------

    def find(self, key: Text) -> Optional[Action]:
        """The action under a key, or None."""
        pointer = ctypes.c_void_p()
        code = call("orch_journal_find", self._pointer, encode(key), ctypes.byref(pointer), allow=(Code.ENOENT,))
        return None if code == Code.ENOENT else Action(pointer.value or 0)

    def each(self, function: Callable[[Action], Optional[int]], kind_prefix: Optional[Text] = None) -> int:
        """Walks the actions in order of their intent: function(action), until one answers neither None nor 0.

        The answer that ended it, or 0. The callback may keep the action, and move it on."""
        journal = self._pointer
        answers: List[int] = []

        def visit(pointer: int) -> int:
            answers.append(int(function(Action._borrow(pointer, None)) or 0))
            return 1 if answers[-1] else 0

        key = _callbacks.add(visit)
        try:
            ended = call("orch_journal_each", journal, encode(kind_prefix), _callbacks.ACTION, key)
        finally:
            _callbacks.discard(key)
        return answers[-1] if ended else 0

    def actions(self, kind_prefix: Optional[Text] = None) -> List[Action]:
        """All actions, or those whose kind starts with `kind_prefix`, in order of their intent."""
        found: List[Action] = []
        self.each(found.append, kind_prefix)
        return found

    def query(self, *, kind_prefix: Optional[Text] = None, key_prefix: Optional[Text] = None,
              states: Iterable[ActionState] = (), updated_from_ms: int = 0, updated_before_ms: int = 0,
              newest_first: bool = False, after_id: int = 0, limit: int = 0) -> Iterator[Action]:
        """The actions that all of what is given fits, in order of their intent; read while they are taken.

        states             one of these; none: all
        updated_..._ms     the last transition was at that time (ms since 1970) or later; was before
        after_id           only those that come after this one in the order that is asked for
        limit              how many at most; 0: all
        """
        self._check_open()
        made = options(_table.orch_query_opts, kind_prefix=encode(kind_prefix), key_prefix=encode(key_prefix),
                       updated_from_ms=updated_from_ms, updated_before_ms=updated_before_ms, after_id=after_id,
                       flags=_table.ORCH_QUERY_NEWEST_FIRST if newest_first else 0)
        for state in states:
            made.states |= 1 << int(state)
        return self._pages(made, limit)

    def _pages(self, opts: _table.orch_query_opts, limit: int) -> Iterator[Action]:
        left = limit
        while True:
            page: List[Action] = []
            opts.limit = min(left, PAGE) if limit else PAGE
            key = _callbacks.add(lambda pointer, found=page: found.append(Action._borrow(pointer, None)))
            try:
                call("orch_journal_query", self._pointer, ctypes.byref(opts), _callbacks.ACTION, key)
            finally:
                _callbacks.discard(key)
            if page:
                opts.after_id = page[-1].id
            yield from page
            left -= len(page)
            if len(page) < opts.limit or (limit and not left):
                return

    def records(self, after: int = 0) -> Iterator[Record]:
        """What happened, in order: the records after that sequence number; read while they are taken."""
        self._check_open()
        return walk(self, after)

    def watch(self, context: Context, function: Optional[Callable[[Record], Any]] = None, *, after: int = 0) -> Watch:
        """The records after that sequence number, then each new one when it is durable; ONLY_NEW: only new ones.

        Called with each, or `async for record in journal.watch(context)`. See Watch."""
        return Watch(self, context, after, function)

    # --- after a restart -------------------------------------------------------------------------------------------

    def recover(self, probe: Optional[ProbeFunction] = None, kind_prefix: Optional[Text] = None, *,
                decide: Optional[DecideFunction] = None, hand_over: Optional[HandOverFunction] = None) -> Recovery:
        """After a restart: for each action that an earlier generation left open, probes, then decides.

        probe      called with (action, reply); without one, or without an answer, it is UNKNOWN
        decide     called with (action, outcome, proposed); gives a Recover, or None: as proposed. What nobody has
                   evidence for is not taken, and the row says so
        hand_over  called with each action that waits for a person, at each recovery

        Each decision is a commit: it can be killed at any point and run again. What these raise is raised at the end;
        a probe that raised is UNKNOWN then, and a proposal stands.
        """
        return recovery.carry_out(self._pointer, kind_prefix, probe, decide, hand_over)

    def verify(self) -> int:
        """Checks the whole journal, and its anchor, and returns the number of records. Error ECORRUPT names the first
        record that does not fit."""
        records = ctypes.c_uint64()
        call("orch_journal_verify", self._pointer, ctypes.byref(records))
        return records.value

    # --- keeping, copying, restoring -------------------------------------------------------------------------------

    def prune(self, closed_before_ms: int) -> Pruned:
        """Drops the payloads of actions that were CONFIRMED, FAILED or ABANDONED before that time, in ms since 1970.

        The actions stay, with the digests of their payloads: begin() finds them as before. The file does not shrink."""
        actions, size = ctypes.c_uint64(), ctypes.c_uint64()
        call("orch_journal_prune", self._pointer, closed_before_ms, ctypes.byref(actions), ctypes.byref(size))
        return Pruned(actions.value, size.value)

    def export(self, write: Callable[[bytes], Any], *, records: bool = False) -> None:
        """Everything as NDJSON: write(line) for each line of JSON, e.g. the write of a binary file.

        records  also a line for each record

        The last line is {"type":"end",...}: without it the export is not whole. What `write` raises ends it.
        """
        def take(line: int, size: int) -> None:
            write(ctypes.string_at(line, size))

        key = _callbacks.add(take)
        try:
            call("orch_journal_export", self._pointer, _table.ORCH_EXPORT_RECORDS if records else 0, _callbacks.EXPORT,
                 key)
        finally:
            _callbacks.discard(key)

    def backup(self, path: Path) -> int:
        """Writes a whole, verified copy while the journal is in use, and returns its number of records.

        A copy is no journal: restore() makes one of it; read_only opens it. Error EEXIST: `path` is there already, and
        stays as it is; ENOENT: no such folder; ENOSPC, ESYS, ECORRUPT.
        """
        count = ctypes.c_uint64()
        call("orch_journal_backup", self._pointer, encode_path(path), ctypes.byref(count))
        return count.value

    @staticmethod
    def restore(backup_path: Path, path: Path, *, anchor_path: Optional[Path] = None,
                replace: bool = False) -> Restoration:
        """Makes a journal of what backup() wrote: a new epoch, whole or not at all.

        A backup does not know what happened after it was made: permits that were not used are void, and open or failed
        actions are UNKNOWN, until recover() has asked what became of them.

        anchor_path  as in Journal()
        replace      a journal at `path` is moved aside, never removed

        Error EEXIST: there is one, without `replace`; ECORRUPT: no backup, or damaged; Locked; ESCHEMA, ENETFS, ...
        """
        return restoration.make(backup_path, path, anchor_path, replace)


def _action_options(kind: Text, key: Text, request: Optional[bytes], policy: Policy, fingerprint: Optional[bytes],
                    permit: Optional[Text]) -> _table.orch_action_opts:
    """The caller keeps `request` and `fingerprint` alive."""
    return options(_table.orch_action_opts, kind=encode(kind), key=encode(key), policy=int(policy),
                   request=address(request), request_length=length(request), fingerprint=address(fingerprint),
                   fingerprint_length=length(fingerprint), permit=encode(permit))
