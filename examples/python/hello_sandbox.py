#!/usr/bin/env python3
"""A program sees its workspace and the host's tools, and nothing else. The same program outside is the control."""
import pathlib
import socket
import subprocess
import sys
import tempfile

import orch

TRY = """
cat "$SECRET"
exec 3<>/dev/tcp/127.0.0.1/$PORT && echo connected
echo left behind > note.txt
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as elsewhere, tempfile.TemporaryDirectory() as workspace, \
            socket.create_server(("127.0.0.1", 0)) as server:
        secret = pathlib.Path(elsewhere, "secret.txt")
        secret.write_text("what nobody shall read\n")
        env = {"SECRET": str(secret), "PORT": str(server.getsockname()[1])}
        outside = subprocess.run(["/bin/bash", "-c", TRY], env=env, cwd=elsewhere, capture_output=True, check=True)
        with orch.Context() as context, orch.Sandbox(context, label="hello", max_processes=32) as sandbox:
            sandbox.set_workspace(workspace)
            for name, value in env.items():
                sandbox.set_env(name, value)
            inside = sandbox.run_wait(["/bin/bash", "-c", TRY], timeout_ms=20000)
        left = pathlib.Path(workspace, "note.txt").read_text()
    print("outside:", outside.stdout.decode())
    print("inside:", inside.stdout.decode(), inside.stderr.decode())
    print("in the workspace:", left)
    print(inside.death)
    return 0 if outside.stdout and not inside.stdout and inside.death.verdict == orch.Verdict.DEAD else 1


sys.exit(main())
