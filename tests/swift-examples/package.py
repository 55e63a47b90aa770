# SPDX-License-Identifier: Apache-2.0
"""Builds examples/swift with the library of this build tree, for the tests of this folder."""
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(os.environ["ORCH_SOURCE_ROOT"])
BUILD = pathlib.Path(os.environ["ORCH_BUILD_ROOT"])
SOURCES = ROOT / "examples/swift/factory"
WORK = BUILD / "swift-examples"
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
        seen.append(f"{path}: {said.stdout.splitlines()[:1] or said.stderr.splitlines()[-1:]}")
    print(f"skip: no Swift >= {OLDEST[0]}.{OLDEST[1]} on PATH or in /opt/swift {' '.join(seen)}")
    sys.exit(77)


class Package:
    """The package, built in the build tree: `programs` is where its programs are."""

    def __init__(self):
        self.swift = find_swift()
        for folder in ("home", "tmp"):
            (WORK / folder).mkdir(parents=True, exist_ok=True)
        self.env = {"PATH": f"{self.swift.parent}:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(WORK / "home"),
                    "ORCH_SOURCE_ROOT": str(ROOT), "ORCH_BUILD_ROOT": str(BUILD)}
        self.programs = WORK / "scratch/debug"

    def call(self, *command, timeout):
        return subprocess.run([*map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, env=self.env, cwd=WORK, timeout=timeout)

    def run(self, verb, *more, timeout):
        return self.call(self.swift, verb, *more, "--package-path", SOURCES, "--scratch-path", WORK / "scratch", "--cache-path",
                         WORK / "cache", "--config-path", WORK / "config", "--security-path", WORK / "security", "-j", "2",
                         "-Xswiftc", "-warnings-as-errors", "-Xlinker", "-rpath", "-Xlinker", self.library, timeout=timeout)

    def build(self):
        """What failed, or "". The tests of this folder may do it at the same time: one does the work."""
        with open(WORK / "lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = self.call("meson", "install", "--no-rebuild", "--only-changed", "--quiet", "-C", BUILD, "--destdir", WORK / "root",
                             timeout=120)
            if done.returncode:
                return done.stdout
            found = next((WORK / "root").rglob("liborch.pc"))
            self.library = found.parent.parent
            self.env["PKG_CONFIG_PATH"] = str(found.parent)
            done = self.run("build", "--build-tests", timeout=800)
            return "" if done.returncode == 0 else done.stdout[-6000:]
