"""What the tests of the Python package share: the package of this tree, with the library of this build."""
import ctypes
import gc
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(os.environ["ORCH_SOURCE_ROOT"])
BUILD = pathlib.Path(os.environ["ORCH_BUILD_ROOT"])
PACKAGE = ROOT / "bindings/python/src/orch"

sys.dont_write_bytecode = True
sys.path.insert(0, str(PACKAGE.parent))

import orch  # noqa: E402
from orch import _callbacks, _handle  # noqa: E402

orch.use_library(next(BUILD.glob("lib/liborch.[sd0]*")))


class Case(unittest.TestCase):
    """A folder of its own, and the promise that nothing is left: no registration, no open handle."""

    def setUp(self):
        gc.collect()
        self.registrations = _callbacks.count()
        self.handles = len(_handle._open)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="orch-python-"))
        self.folder.chmod(0o755)

    def tearDown(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        gc.collect()
        self.assertEqual(_callbacks.count(), self.registrations, "registrations that C did not give back")
        self.assertEqual(len(_handle._open), self.handles, f"handles left open: {list(_handle._open.values())}")
        self.assertEqual(_callbacks.strays(), 0, "destroy came twice, or a callback after it")

    def assert_code(self, code, function, *arguments, **options):
        """The call fails with that code; gives the error."""
        with self.assertRaises(orch.Error) as caught:
            function(*arguments, **options)
        self.assertEqual(caught.exception.code, code, caught.exception)
        return caught.exception


class SandboxCase(Case):
    """A context for sandboxes."""

    def setUp(self):
        super().setUp()
        self.context = orch.Context()

    def tearDown(self):
        self.context.close()
        del self.context
        super().tearDown()

    def run_in(self, script, prepare=None, **options):
        """The result of a shell script in a sandbox of its own, which `prepare` may change before."""
        with orch.Sandbox(self.context, **options) as sandbox:
            if prepare:
                prepare(sandbox)
            return sandbox.run_wait(["/bin/sh", "-c", script], timeout_ms=20000)


def until(condition, seconds=10.0):
    """Whether it becomes true; for what no event announces."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def alive(pid):
    """Whether a process is there and no zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def marked(mark):
    """Host pids of the processes whose command line holds the mark. A load can not hide from the host's /proc."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "cmdline").read_bytes() and int(folder.name) != os.getpid():
                found.append(int(folder.name))
        except (OSError, ValueError):
            pass
    return found


def main():
    unittest.main(verbosity=2)
