# SPDX-License-Identifier: Apache-2.0
"""SandboxReport: what is really enforced on this host, per channel, with live probes and their controls."""
import asyncio
import ctypes
from dataclasses import dataclass, field
from typing import Any, Iterator, Optional, Tuple

from ._enums import Channel, Probe, choice
from ._native import checked, lib, text
from .context import Context
from .sandbox import sandbox_options


@dataclass(frozen=True)
class ReportRow:
    """One channel.

    channel    its name ("file.read")
    state      ENFORCED, PARTIAL or ABSENT
    mechanism  what enforces it
    probe      PASSED: the attempt from inside was denied
    control    PASSED: the same attempt worked outside
    detail     for people
    remedy     of one that is not ENFORCED: what is missing here, and what to do about it; else None
    """
    channel: str
    state: Channel
    mechanism: str
    probe: Probe
    control: Probe
    detail: str
    remedy: Optional[str]


@dataclass(frozen=True)
class SandboxReport:
    """What is really enforced on this host: a plain value, iterable by row. `text` is a table for people."""
    rows: Tuple[ReportRow, ...]
    text: str = field(repr=False)

    @classmethod
    def run_wait(cls, context: Context, *, timeout_ms: int = 0, **sandbox: Any) -> "SandboxReport":
        """Makes a throw-away sandbox with the given options (see Sandbox), runs one live probe per channel in it, and
        reports. At most `timeout_ms` (0: 20000). Errors of Sandbox.start_wait()."""
        context.may_wait("SandboxReport.run_wait()")
        opts = sandbox_options(**sandbox)
        pointer = ctypes.c_void_p()
        try:
            context.dispatch("orch_sandbox_report_run", context._pointer, ctypes.byref(opts), timeout_ms,
                             ctypes.byref(pointer))
            return _read(cls, pointer)
        finally:
            lib.orch_sandbox_report_unref(pointer)

    @classmethod
    async def run(cls, *, timeout_ms: int = 0, **sandbox: Any) -> "SandboxReport":
        """The same without blocking the asyncio loop: in a thread, with a context of its own."""
        def work() -> "SandboxReport":
            with Context() as context:
                return cls.run_wait(context, timeout_ms=timeout_ms, **sandbox)

        return await asyncio.to_thread(work)

    def row(self, channel: str) -> Optional[ReportRow]:
        """The row of a channel, or None."""
        return next((row for row in self.rows if row.channel == channel), None)

    def __iter__(self) -> Iterator[ReportRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        return self.text


def _row(pointer: ctypes.c_void_p, index: int) -> ReportRow:
    channel, mechanism, detail = ctypes.c_char_p(), ctypes.c_char_p(), ctypes.c_char_p()
    state, probe, control = ctypes.c_uint32(), ctypes.c_uint32(), ctypes.c_uint32()
    remedy = lib.orch_sandbox_report_remedy(pointer, index)
    checked(lib.orch_sandbox_report_row(pointer, index, ctypes.byref(channel), ctypes.byref(state),
                                        ctypes.byref(mechanism), ctypes.byref(probe), ctypes.byref(control),
                                        ctypes.byref(detail)), "SandboxReport.rows")
    return ReportRow(text(channel.value), choice(Channel, state.value), text(mechanism.value),
                     choice(Probe, probe.value), choice(Probe, control.value), text(detail.value), text(remedy) or None)


def _read(kind: type, pointer: ctypes.c_void_p) -> SandboxReport:
    rows = tuple(_row(pointer, index) for index in range(lib.orch_sandbox_report_count(pointer)))
    made: SandboxReport = kind(rows, text(lib.orch_sandbox_report_text(pointer)))
    return made
