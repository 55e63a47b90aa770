"""Ten thousand callbacks, and what is left after each round of them. Prints JSON, a line a round; test-leaks judges it.

    leak-work.py ROUNDS [--leak KIND] [--helper PATH] [--library PATH] [--all-nouns]

--leak makes a mistake on purpose: unref, registration, object (each leaks), twice (gives a reference back twice).
"""
import argparse
import collections
import ctypes
import gc
import json
import pathlib
import shutil
import socket
import sys
import tempfile
import tracemalloc

import kit
from kit import orch
from orch import _callbacks, _handle

calls = collections.Counter()
kept = []


class Heap(ctypes.Structure):
    """struct mallinfo2 of glibc."""
    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]


def heap_in_use():
    """Bytes that malloc has given out: what fragmentation and arenas do not blur."""
    function = ctypes.CDLL(None).mallinfo2
    function.restype, function.argtypes = Heap, []
    info = function()
    return info.uordblks + info.hblkhd


def resident():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0


def log(_level, _line):
    calls["log"] += 1


def on_event(_proc, _event):
    calls["proc event"] += 1


def on_record(_number):
    calls["record"] += 1


def on_stop(_completion):
    calls["stop"] += 1


def on_action(_action):
    calls["each"] += 1


def on_probe(_action, reply):
    calls["probe"] += 1
    if calls["probe"] % 2:
        reply.answer(orch.Outcome.UNKNOWN)


def on_hand_over(_action):
    calls["hand over"] += 1


def on_decide(_action, _outcome, proposed):
    calls["decide"] += 1
    return proposed if calls["decide"] % 2 else None


def on_done(_completion):
    calls["async"] += 1


def on_watched(_record):
    calls["watch"] += 1


def on_due(timer):
    calls["due"] += 1
    timer.done()


def on_line(_line):
    calls["line"] += 1


FUNCTIONS = (log, on_event, on_record, on_stop, on_action, on_probe, on_hand_over, on_decide, on_done, on_watched,
             on_due, on_line)


def scopes(context):
    for _number in range(20):
        with orch.Scope(context) as scope:
            scope.start_wait(30000)
    with orch.Scope(context) as scope:
        for _number in range(100):
            proc = scope.spawn(["/bin/true"], on_event=on_event)
            proc.exit_wait(30000)
        scope.stop_wait()
        for _number in range(6):
            ends = [scope.stop() for _one in range(50)]
            for end in ends:
                end.add_done_callback(on_stop)
            for end in ends:
                end.result(30000)


def journal(folder):
    with orch.Journal(folder / "journal.db", on_record=on_record) as made:
        for number in range(20):
            policy = orch.Policy.PROBE_FIRST if number % 2 else orch.Policy.NEVER_REPEAT
            action = made.begin("work.do", f"key-{number}", b"request " * 8, policy=policy).action
            action.dispatch()
            if number % 2:
                action.unknown(b"nobody knows")
            else:
                action.observe(b"result " * 8)
        for _number in range(20):
            made.each(on_action)
        for _number in range(10):
            made.recover(on_probe, decide=on_decide, hand_over=on_hand_over)


def journal_async(context, folder):
    with orch.Journal(folder / "async.db", on_record=on_record) as made:
        watch, again = made.watch(context, on_watched), made.watch(context, lambda _record: 1)
        for number in range(10):
            begun = made.begin_async(context, "work.do", f"key-{number}", b"request " * 8)
            begun.add_done_callback(on_done)
            action = begun.result(30000).action
            for state in (orch.ActionState.DISPATCHED, orch.ActionState.HANDED_OVER):
                moved = action.move_async(context, state)
                moved.add_done_callback(on_done)
                moved.result(30000)
            if number % 2:
                action.decide(orch.Decision.NOT_APPLIED, "Ada", b"she looked")
            action.close()
            orch.Permit.issue(made, f"permit-{number}", "work.do", note=b"why")
            orch.Timer.set(made, f"timer-{number}", due_at_ms=1, value=b"what")
        ends = [made.record_async(context, "a.b", f"key-a-{number}") for number in range(50)]
        for end in ends:
            end.add_done_callback(on_done)
            end.result(30000)
        due = orch.TimerWatch(made, context, on_due)
        context.drive(lambda: context.process() or orch.Timer.next(made) is None, 30000, "the timers")
        assert len(orch.Permit.all(made)) == len(orch.Timer.all(made)) == 10
        for _record in made.records(), made.query():
            assert sum(1 for _one in _record) > 50
        made.recover(hand_over=on_hand_over)
        made.export(on_line, records=True)
        made.prune(2**42)
        made.backup(folder / "backup.db")
        try:
            made.begin_async(context, "Not A Kind", "k")
        except orch.Error as error:
            assert error.code == orch.Code.EINVAL
        for handle in (watch, again, due):
            handle.close()
        made.record_async(context, "a.b", "closed before it was done")
    for replaced in (False, True):
        done = orch.Journal.restore(folder / "backup.db", folder / "restored.db", replace=replaced)
        assert (done.replaced is not None) == replaced


def other_nouns(context, folder, mini):
    """One of everything, for the checks of memory errors."""
    with orch.Sandbox(context) as sandbox:
        assert sandbox.run_wait(["/bin/echo", "hello"]).stdout == b"hello\n"
    taken = folder / "taken"
    taken.mkdir()
    with orch.Sandbox(context) as pattern:
        pattern.read_policy(f"<policy xmlns='urn:orch:policy:1'><workspace host='{folder}' kind='overlay'/></policy>")
        pattern.deny_path("/work/closed")
        assert pattern.why("/work/closed").rule
        with orch.SandboxPool(pattern, 2) as pool, pool.take_wait(30000) as sandbox:
            assert sandbox.run_wait(["/bin/sh", "-c", "echo new >new"]).reason == orch.Reason.EXITED
            with sandbox.changes() as changes:
                assert [change.path for change in changes] == ["new"]
                changes.export(taken)
    orch.SandboxReport.run_wait(context)
    door = socket.create_server(("127.0.0.1", 0))
    with orch.Broker(context, journal_path=folder / "broker.db") as broker, door:
        broker.on_operation(on_event)
        broker.set_upstream("ai.anthropic", "http://127.0.0.1:9", secret="secret")
        principal = orch.Principal(broker, "p", max_requests=5)
        principal.grant("ai.anthropic")
        broker.add_listener(door, principal)
        principal.revoke().result(10000)
    work = folder / "work"
    work.mkdir()
    with orch.Sandbox(context) as sandbox:
        sandbox.set_workspace(work)
        sandbox.start_wait(30000)
        for executor in (orch.Executor.command(context, ["/bin/sh", "-c", "cat; exit 3"]),
                         orch.Executor.callback(context, lambda job: job.finish(3, job.workspace or ""))):
            assert executor.run(sandbox, "packet").wait().result(30000).status == 3
        orch.Executor.mini(context, program=mini).close()
    with orch.Pipeline(context, folder / "state", idea="hello", schema_dir=kit.ROOT / "schemas",
                       on_record=on_record) as pipeline:
        pipeline.set_executor(orch.Role.ALL, orch.Executor.command(context, ["/bin/true"]))
        pipeline.on_event(print)
        pipeline.status()
        pipeline.accept_recommended()
    try:
        orch.Journal(folder / "no/journal.db")
    except orch.Error as error:
        assert error.message
    scope = orch.Scope(context)  # what is closed while it waits
    scope.spawn(["/bin/sleep", "1000"], on_event=on_event)
    scope.stop()


def one_round(given):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="orch-python-"))
    folder.chmod(0o755)
    try:
        with orch.Context(log=log, log_level=orch.LogLevel.DEBUG, helper_path=given.helper) as context:
            scopes(context)
            journal_async(context, folder)
            if given.all_nouns:
                other_nouns(context, folder, given.mini)
        journal(folder)
    finally:
        shutil.rmtree(folder)


def make_a_mistake(kind):
    if kind == "unref":
        orch.Action._release = lambda self, pointer: None
    elif kind == "twice":
        def release(self, pointer):
            _handle.Handle._release(self, pointer)
            _handle.Handle._release(self, pointer)
        orch.Action._release = release
    elif kind == "registration":
        class Full(dict):
            """Nothing is taken out."""

            def pop(self, key, *_default):
                return self.get(key)
        _callbacks._registry = Full()
    elif kind == "object":
        before = orch.Scope.spawn

        def spawn(self, *arguments, **options):
            kept.append(before(self, *arguments, **options))
            return kept[-1]
        orch.Scope.spawn = spawn


def measure():
    gc.collect()
    types = collections.Counter(type(one).__name__ for one in gc.get_objects())
    return {"registrations": _callbacks.count(), "strays": _callbacks.strays(), "handles": len(_handle._open),
            "objects": dict(types), "traced": tracemalloc.get_traced_memory()[0], "heap": heap_in_use(),
            "resident": resident(), "references": [sys.getrefcount(one) for one in FUNCTIONS]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rounds", type=int)
    parser.add_argument("--leak")
    parser.add_argument("--helper")
    parser.add_argument("--mini")
    parser.add_argument("--library")
    parser.add_argument("--all-nouns", action="store_true")
    given = parser.parse_args()
    if given.library:
        orch.use_library(given.library)
    make_a_mistake(given.leak)
    if not given.all_nouns:  # it loses some memory of its own at the end, which is not ours to tell
        tracemalloc.start(1)
    for _number in range(given.rounds):
        one_round(given)
        print(json.dumps(measure()), flush=True)  # at once: kept, it would be growth
    print(json.dumps(calls))


main()
