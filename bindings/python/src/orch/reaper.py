# SPDX-License-Identifier: Apache-2.0
"""What outlives a host: leftovers of one that recorded its scopes (Context.record_scopes()) and was killed."""
import ctypes
from typing import Tuple

from . import _table, death
from ._native import Path, call, checked, encode_path, lib, options
from .death import Death


def _death(pointer: ctypes.c_void_p, index: int) -> Death:
    found = ctypes.c_void_p()
    checked(lib.orch_leftovers_death(pointer, index, ctypes.byref(found)), "recover_scopes()")
    return death.take(found)


def recover_scopes(path: Path, *, deadline_ms: int = 0) -> Tuple[Death, ...]:
    """Kills what a dead host left that recorded its scopes in `path`; the certificate of each that had no end.

    After another boot it is dead; else its processes are killed, by identity and never by number alone, and that is
    proved or said not to be. Who is not dead is told again the next time. It blocks, for `deadline_ms` at most (0: 10000).

    Errors ENOENT: there is no record; ECORRUPT. Locked: the host that records in it lives. Deadlock: inside a callback.
    """
    opts = options(_table.orch_reaper_recover_opts, path=encode_path(path), deadline_ms=deadline_ms)
    pointer = ctypes.c_void_p()
    call("orch_reaper_recover", ctypes.byref(opts), ctypes.byref(pointer))
    try:
        return tuple(_death(pointer, index) for index in range(lib.orch_leftovers_count(pointer)))
    finally:
        lib.orch_leftovers_unref(pointer)
