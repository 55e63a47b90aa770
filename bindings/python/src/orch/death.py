# SPDX-License-Identifier: Apache-2.0
"""Death: the certificate of a scope's end."""
import ctypes
from dataclasses import dataclass, field
from typing import Optional, Tuple

from ._enums import Limit, Verdict, choice
from ._errors import Code
from ._native import checked, lib, text


@dataclass(frozen=True)
class Survivor:
    """A process that lived at the deadline."""
    pid: int
    start_time_ticks: int
    state: str
    wchan: str


@dataclass(frozen=True)
class HostWork:
    """What the host did for a scope, and how that ended; outcome None: it did not settle."""
    what: str
    outcome: Optional[str]


@dataclass(frozen=True)
class InitProcess:
    """Identity of a scope's init: pid and start time, and its pidfd's inode (0: Linux before 6.9)."""
    pid: int
    start_time_ticks: int
    pidfs_inode: int


@dataclass(frozen=True)
class Death:
    """The certificate of a scope's end: what died, how that was proved, how long it took. A plain value.

    verdict           DEAD: every process is dead and reaped, proved; DEAD_UNREAPED; SURVIVORS; UNVERIFIABLE
    verdict_name      the same in words
    mechanism, proof  how it was killed and how that was proved
    reason            cause of UNVERIFIABLE; of SURVIVORS what holds them, where that is known; else ""
    limit             the limit that ended the scope: Limit.MEMORY, Limit.TIME, or Limit(0)
    scope             the scope's name
    pidns_inode       of its PID namespace
    boot_id           the boot that pids and start times are of
    init              which process was the scope's init; None: it was never known, or there is none (macOS)
    alive_at_request  processes alive at the request; a lower bound where there is no cgroup
    requested_at_ms   real time of the request, ms since 1970
    last_death_us, confirmed_us   from the request to the last death, and to its confirmation
    survivors         who lived at the deadline
    works             what the host did for the scope (Scope.add_work()), and how that ended
    text              the certificate for people
    """
    verdict: Verdict
    verdict_name: str
    mechanism: str
    proof: str
    reason: str
    limit: Limit
    scope: str
    pidns_inode: int
    boot_id: str
    init: Optional[InitProcess]
    alive_at_request: int
    requested_at_ms: int
    last_death_us: int
    confirmed_us: int
    survivors: Tuple[Survivor, ...]
    works: Tuple[HostWork, ...]
    text: str = field(repr=False)

    def __str__(self) -> str:
        return self.text


def _survivor(pointer: int, index: int) -> Survivor:
    pid, start = ctypes.c_int32(), ctypes.c_uint64()
    state, wchan = ctypes.c_char_p(), ctypes.c_char_p()
    checked(lib.orch_death_survivor(pointer, index, ctypes.byref(pid), ctypes.byref(start), ctypes.byref(state),
                                    ctypes.byref(wchan)), "Death.survivors")
    return Survivor(pid.value, start.value, text(state.value), text(wchan.value))


def _work(pointer: int, index: int) -> HostWork:
    what, settled, outcome = ctypes.c_char_p(), ctypes.c_uint32(), ctypes.c_char_p()
    checked(lib.orch_death_work(pointer, index, ctypes.byref(what), ctypes.byref(settled), ctypes.byref(outcome)),
            "Death.works")
    return HostWork(text(what.value), text(outcome.value) if settled.value else None)


def _init(pointer: int) -> Optional[InitProcess]:
    pid, start, inode = ctypes.c_int32(), ctypes.c_uint64(), ctypes.c_uint64()
    code = lib.orch_death_init(pointer, ctypes.byref(pid), ctypes.byref(start), ctypes.byref(inode))
    if code == Code.ESTATE:
        return None
    checked(code, "Death.init")
    return InitProcess(pid.value, start.value, inode.value)


def read(pointer: int) -> Death:
    """The values of an orch_death, which stays the owner's."""
    return Death(
        verdict=choice(Verdict, lib.orch_death_verdict(pointer)),
        verdict_name=text(lib.orch_death_verdict_name(pointer)),
        mechanism=text(lib.orch_death_mechanism(pointer)),
        proof=text(lib.orch_death_proof(pointer)),
        reason=text(lib.orch_death_reason(pointer)),
        limit=Limit(lib.orch_death_limit(pointer)),
        scope=text(lib.orch_death_scope(pointer)),
        pidns_inode=lib.orch_death_pidns_inode(pointer),
        boot_id=text(lib.orch_death_boot_id(pointer)),
        init=_init(pointer),
        alive_at_request=lib.orch_death_alive_at_request(pointer),
        requested_at_ms=lib.orch_death_requested_at_ms(pointer),
        last_death_us=lib.orch_death_last_death_us(pointer),
        confirmed_us=lib.orch_death_confirmed_us(pointer),
        survivors=tuple(_survivor(pointer, index) for index in range(lib.orch_death_survivor_count(pointer))),
        works=tuple(_work(pointer, index) for index in range(lib.orch_death_work_count(pointer))),
        text=text(lib.orch_death_text(pointer)))


def take(pointer: ctypes.c_void_p) -> Death:
    """The same of one that is ours, which is given back."""
    try:
        return read(pointer.value or 0)
    finally:
        lib.orch_death_unref(pointer)
