# SPDX-License-Identifier: Apache-2.0
"""Builds examples/swift with the library of this build tree, for the tests of this folder."""
import fcntl
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

ROOT = pathlib.Path(os.environ["ORCH_SOURCE_ROOT"])
BUILD = pathlib.Path(os.environ["ORCH_BUILD_ROOT"])
SOURCES = ROOT / "examples/swift/factory"
# Of each user: what root made, others can not write. The library is installed where tests/swift does it too.
PLACE = BUILD / f"swift-{os.getuid()}"
OLDEST = (6, 1)


def find_swift():
    """Of a toolchain that is new enough; without one the test is skipped."""
    seen = []
    for path in (shutil.which("swift"), "/opt/swift/usr/bin/swift"):
        if not path or not os.access(path, os.X_OK):
            continue
        said = subprocess.run([path, "--version"], stdin=subprocess.DEVNULL, text=True, capture_output=True, timeout=60)
        version = re.search(r"Swift version (\d+)\.(\d+)", said.stdout)
        if version and tuple(map(int, version.groups())) >= OLDEST:
            return pathlib.Path(path)
        seen.append(f"{path}: {(said.stdout + said.stderr).splitlines()[:1]}")
    found = "; ".join(seen) or "neither on PATH nor in /opt/swift"
    print(f"skip: Swift {OLDEST[0]}.{OLDEST[1]} or newer is needed: {found}")
    sys.exit(77)


class Package:
    """The package, built in the build tree: `programs` is where its programs are."""

    def __init__(self):
        self.swift = find_swift()
        (PLACE / "home").mkdir(parents=True, exist_ok=True)
        self.env = {"PATH": f"{self.swift.parent}:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(PLACE / "home"),
                    "ORCH_SOURCE_ROOT": str(ROOT), "ORCH_BUILD_ROOT": str(BUILD)}
        self.programs = PLACE / "examples/debug"

    def call(self, *command, timeout):
        with subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, env=self.env, cwd=PLACE,
                              start_new_session=True) as process:
            try:
                said = process.communicate(timeout=timeout)[0]
            except BaseException:
                # What `swift` started would outlive it.
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(command, process.returncode, said)

    def run(self, verb, *more, timeout):
        return self.call(self.swift, verb, *more, "--package-path", SOURCES, "--scratch-path", PLACE / "examples",
                         "--cache-path", PLACE / "cache", "-j", "2", "-Xswiftc", "-warnings-as-errors", "-Xlinker",
                         "-rpath", "-Xlinker", self.library, timeout=timeout)

    def build(self):
        """What failed, or "". The tests of this folder may do it at the same time: one does the work."""
        with open(PLACE / "lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = self.call("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--only-changed", "--destdir",
                             PLACE / "installed", timeout=300)
        if done.returncode:
            return done.stdout
        found = next((PLACE / "installed").rglob("liborch.pc"))
        self.library = found.parent.parent
        self.env["PKG_CONFIG_PATH"] = str(found.parent)
        with open(PLACE / "examples.lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = self.run("build", "--build-tests", timeout=800)
        return "" if done.returncode == 0 else done.stdout[-6000:]
