# SPDX-License-Identifier: Apache-2.0
"""Restoration: what became of a journal that was made of a backup."""
import ctypes
from dataclasses import dataclass, field
from typing import Optional

from . import _table
from ._native import Path, call, encode_path, lib, optional_path, options, text


@dataclass(frozen=True)
class Restoration:
    """What Journal.restore() did. `text` is for people.

    epoch     the one that it started
    records   of the backup
    lost      records known to have been written after the backup; 0: none, or nothing knows
    unknown   actions that became UNKNOWN
    void      permits that became void
    replaced  where the journal that was there is now; None: there was none
    """
    epoch: int
    records: int
    lost: int
    unknown: int
    void: int
    replaced: Optional[str]
    text: str = field(repr=False)

    def __str__(self) -> str:
        return self.text


def make(backup_path: Path, path: Path, anchor_path: Optional[Path], replace: bool) -> Restoration:
    """For Journal."""
    opts = options(_table.orch_restore_opts, flags=_table.ORCH_RESTORE_REPLACE if replace else 0,
                   backup_path=encode_path(backup_path), path=encode_path(path), anchor_path=optional_path(anchor_path))
    pointer = ctypes.c_void_p()
    try:
        call("orch_journal_restore", ctypes.byref(opts), ctypes.byref(pointer))
        return Restoration(
            epoch=int(lib.orch_restoration_epoch(pointer)), records=int(lib.orch_restoration_records(pointer)),
            lost=int(lib.orch_restoration_lost(pointer)), unknown=int(lib.orch_restoration_unknown(pointer)),
            void=int(lib.orch_restoration_void(pointer)),
            replaced=text(lib.orch_restoration_replaced(pointer)) or None, text=text(lib.orch_restoration_text(pointer)))
    finally:
        lib.orch_restoration_unref(pointer)
