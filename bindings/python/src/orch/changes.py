# SPDX-License-Identifier: Apache-2.0
"""Changes: what programs changed in a sandbox's overlay."""
import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Iterator

from . import _handle
from ._enums import ChangeKind, choice
from ._native import Path, call, checked, encode_path, lib, text

if TYPE_CHECKING:
    from .sandbox import Sandbox


@dataclass(frozen=True)
class Change:
    """One path.

    path   relative to the workspace; bytes that are no UTF-8 survive os.fsencode()
    kind   ADDED, MODIFIED or DELETED
    mode   as os.stat() has it, with the type; 0: deleted
    size   bytes of a file
    """
    path: str
    kind: ChangeKind
    mode: int
    size: int


class Changes(_handle.Handle):
    """What Sandbox.changes() found: iterable by row, sorted by path. str(changes) is a line for each: "M path".

    It keeps its sandbox, whose private file system export() reads.
    """

    _noun = "changes"

    def __init__(self, sandbox: "Sandbox") -> None:
        pointer = self._make("orch_sandbox_changes", sandbox._pointer)
        self._sandbox = sandbox
        super().__init__(pointer, sandbox.context)

    def export(self, folder: Path) -> None:
        """Writes the added and modified files, folders and links below `folder`, which has to be there and empty.

        Devices, sockets, pipes and set-id bits are left out; links are written as they are and never followed.
        Error EEXIST: the folder is not empty; ESTATE: the sandbox is gone; ESYS with the path: what was written stays.
        """
        call("orch_changes_export", self._pointer, encode_path(folder))

    def __len__(self) -> int:
        return int(lib.orch_changes_count(self._pointer))

    def __iter__(self) -> Iterator[Change]:
        return (self._row(index) for index in range(len(self)))

    def __str__(self) -> str:
        return text(lib.orch_changes_text(self._pointer))

    def _row(self, index: int) -> Change:
        path, kind, mode, size = ctypes.c_char_p(), ctypes.c_uint32(), ctypes.c_uint32(), ctypes.c_uint64()
        checked(lib.orch_changes_row(self._pointer, index, ctypes.byref(path), ctypes.byref(kind), ctypes.byref(mode),
                                     ctypes.byref(size)), "Changes")
        return Change(text(path.value), choice(ChangeKind, kind.value), mode.value, size.value)

    def _describe(self) -> str:
        return f" of {len(self)} paths"
