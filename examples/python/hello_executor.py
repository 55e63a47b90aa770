#!/usr/bin/env python3
"""Two executors do the same work, each in a sandbox: a program, and a function of this one. What counts is what they
leave in the workspace."""
import pathlib
import sys
import tempfile

import orch

PACKET = "Write the number of words of this sentence to answer.txt."


def attempt(context: orch.Context, executor: orch.Executor) -> str:
    with tempfile.TemporaryDirectory() as workspace, orch.Sandbox(context) as sandbox:
        sandbox.set_workspace(workspace)
        executor.prepare(sandbox)
        sandbox.start_wait(20000)
        job = executor.run(sandbox, PACKET, timeout_ms=20000, on_event=lambda line: print(line.event.name, line.text))
        result = job.wait().result(30000)
        death = sandbox.stop_wait()
        answer = pathlib.Path(workspace, "answer.txt").read_text().strip()
    print(f"{executor.kind_name}: {result.end.name}, {result.message}, {death.verdict.name}, answer {answer}")
    return answer


def count_words(job: orch.Job) -> None:
    """The host's own executor: it may finish the job here, or keep it and finish it later."""
    assert job.workspace
    pathlib.Path(job.workspace, "answer.txt").write_text(str(len(job.packet.split())))
    job.finish(0, "counted by the host")


def main() -> int:
    with orch.Context() as context:
        program = orch.Executor.command(context, ["/bin/sh", "-c", "echo counting; wc -w > answer.txt"])
        function = orch.Executor.callback(context, count_words)
        answers = [attempt(context, executor) for executor in (program, function)]
    return 0 if answers == ["10", "10"] else 1


sys.exit(main())
