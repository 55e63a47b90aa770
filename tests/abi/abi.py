"""What the gates of this folder share. Each gate judges the tree at ORCH_SOURCE_ROOT, built at ORCH_BUILD_ROOT."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from typing import Any

root = pathlib.Path(os.environ.get("ORCH_SOURCE_ROOT", pathlib.Path(__file__).resolve().parents[2]))
build = pathlib.Path(os.environ.get("ORCH_BUILD_ROOT", root / "build"))
library = build / "lib" / "liborch.so"
# Meson's, for the library of this build: programs that are built here would take that one instead of their own.
os.environ.pop("LD_LIBRARY_PATH", None)


def interface() -> dict[str, Any]:
    """What scripts/api says of the headers; a header that it can not read fails the gate with its words."""
    done = subprocess.run([root / "scripts" / "api", root / "include"], text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"scripts/api can not read the headers:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def run(*command: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The program's end and all that it printed, in stdout."""
    return subprocess.run(
        [str(part) for part in command],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=options.pop("stdin", subprocess.DEVNULL if "input" not in options else None),
        **options,
    )


def must(*command: object, **options: Any) -> str:
    done = run(*command, **options)
    if done.returncode:
        sys.exit(f"{' '.join(str(part) for part in command)}: status {done.returncode}\n{done.stdout}")
    return done.stdout


def compilers() -> list[tuple[str, str]]:
    """Pairs of a C and a C++ compiler: the system's own, and clang when it is there."""
    found: dict[str, tuple[str, str]] = {}
    for c, cxx in (("cc", "c++"), ("gcc", "g++"), ("clang", "clang++")):
        path = shutil.which(c)
        if path and shutil.which(cxx):
            found.setdefault(os.path.realpath(path), (c, cxx))
    return list(found.values())


def loaded_library(program: pathlib.Path) -> str:
    """The liborch.so that it loads when it starts, or "" if none."""
    found = re.search(r"liborch\.so\S* => (\S+)", must("ldd", program))
    return os.path.realpath(found[1]) if found else ""


def scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="orch-abi-")


def verdict(problems: list[str], fine: str) -> None:
    print("\n".join(problems) or fine)
    sys.exit(1 if problems else 0)
