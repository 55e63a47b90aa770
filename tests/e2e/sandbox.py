#!/usr/bin/env python3
"""The one-page sandbox programs as their reader would run them: as root and as an ordinary user, with an emptied
environment, as the child of a shell; and the text of one in the man page. Nothing is left afterwards."""
import glob
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from orchtest import BUILD, ROOT, expect, finish

USER = 1000


def pid_namespaces():
    """Those that have a process, as far as we may look."""
    found = set()
    for link in glob.glob("/proc/[0-9]*/ns/pid"):
        try:
            found.add(os.readlink(link))
        except OSError:
            pass
    return found


def as_user(uid):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"] if uid != os.geteuid() else []


def run_hello(area, uid):
    done = subprocess.run(as_user(uid) + ["env", "-i", area / "examples/hello-sandbox"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60)
    lines = done.stdout.splitlines()
    who = f"uid {uid}: "
    expect(done.returncode == 0 and not done.stderr, f"{who}ends well: {done.returncode} {done.stderr.strip()}")
    expect("uid=1000(agent) gid=1000(agent) groups=1000(agent)" in lines, who + "the load is nobody outside")
    expect(any(line.split() == "bin dev etc lib lib64 proc sbin tmp usr".split() for line in lines),
           who + "the root holds the tools and nothing else")
    expect("exit status 7" in lines, who + "the exit status is the program's own")
    expect(any(line.startswith("DEAD ") for line in lines), who + "the certificate says DEAD")
    inode = re.search(r"PID namespace (\d+)", done.stdout)
    expect(inode is not None and f"pid:[{inode.group(1)}]" not in pid_namespaces(),
           who + "its PID namespace is gone")
    scope = re.search(r"orch-[0-9a-f]{16}", done.stdout)
    expect(scope is not None and not glob.glob(f"/sys/fs/cgroup/**/{scope.group(0)}*", recursive=True),
           who + "its cgroup is gone")


def run_overlay(area, uid):
    who = f"uid {uid}: "
    with tempfile.TemporaryDirectory(prefix="orch-e2e-") as name:
        folder = pathlib.Path(name)
        (folder / "kept").write_text("kept\n")
        (folder / "edited").write_text("before\n")
        for path in [folder, *folder.iterdir()]:
            os.chown(path, uid, uid)
        command = "echo after > edited; echo new > new; rm kept; exit 3"
        done = subprocess.run(as_user(uid) + ["env", "-i", area / "examples/hello-overlay", folder, command],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        expect(done.returncode == 0 and not done.stderr, f"{who}ends well: {done.returncode} {done.stderr.strip()}")
        expect(done.stdout == "M edited\nD kept\nA new\nexit status 3\n", f"{who}the changes are told: {done.stdout}")
        expect({path.name: path.read_text() for path in folder.iterdir()} == {"kept": "kept\n", "edited": "before\n"},
               who + "the folder is as it was")


def man_page_quotes_it():
    page = subprocess.run(["mandoc", "-Tascii", ROOT / "man/orch_sandbox.3"], capture_output=True, text=True).stdout
    page = re.sub(r".\x08", "", page)
    words = " ".join((ROOT / "examples/hello-sandbox.c").read_text().split())
    expect(words in " ".join(page.split()), "the man page quotes the program")
    for name in ("hello-sandbox", "hello-overlay"):
        expect(len((ROOT / f"examples/{name}.c").read_text().splitlines()) <= 40, "it is one page")


def main():
    with tempfile.TemporaryDirectory(prefix="orch-e2e-") as name:
        area = pathlib.Path(name)
        area.chmod(0o755)
        mounts = pathlib.Path("/proc/self/mountinfo").read_text()
        for part in ("examples/hello-sandbox", "examples/hello-overlay", "lib/helper/orch-reaper", "lib/liborch.so.0"):
            (area / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy((BUILD / part).resolve(), area / part)
        for uid in [os.geteuid()] + ([USER] if os.geteuid() == 0 else []):
            run_hello(area, uid)
            run_overlay(area, uid)
        expect(pathlib.Path("/proc/self/mountinfo").read_text() == mounts, "the host's mounts are as before")
    man_page_quotes_it()
    finish()


main()
