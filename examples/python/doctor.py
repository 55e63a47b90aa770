#!/usr/bin/env python3
"""What this host really enforces: each row is an attempt from inside a sandbox, beside the same attempt outside."""
import sys

import orch


def main() -> int:
    with orch.Context() as context:
        report = orch.SandboxReport.run_wait(context, timeout_ms=30000)
    print("liborch", orch.version(), "from", orch.library_path())
    open_ones = 0
    for row in report:
        proved = row.probe == orch.Probe.PASSED and row.control == orch.Probe.PASSED
        open_ones += row.probe == orch.Probe.FAILED
        print(f"{row.channel:<16} {row.state.name.lower():<9} {'proved' if proved else '-':<7} {row.mechanism}")
        if not proved:
            print(f"{'':<16} {row.detail}")
        if row.remedy:
            print(f"{'':<16} {row.remedy}")
    return 3 if open_ones else 0


sys.exit(main())
