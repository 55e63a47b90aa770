#!/usr/bin/env python3
"""A shell leaves two detached programs behind. Stopping the scope ends them, and the certificate proves it."""
import sys

import orch


def main() -> int:
    with orch.Context() as context, orch.Scope(context, label="hello") as scope:
        shell = scope.spawn(["/bin/sh", "-c", "setsid sleep 1000 & setsid sleep 1000 & exit 3"])
        print("the shell exited with", shell.exit_wait(10000))
        death = scope.stop_wait(deadline_ms=5000)
    print(death)
    for survivor in death.survivors:
        print("still there:", survivor.pid, survivor.state, survivor.wchan)
    return 0 if death.verdict == orch.Verdict.DEAD else 1


sys.exit(main())
