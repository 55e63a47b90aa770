#!/usr/bin/env python3
"""A coordinator falls after it has dispatched a message and before it knows the outcome. The next one asks the outside
instead of sending it again."""
import pathlib
import sys
import tempfile

import orch


def first(folder: pathlib.Path, outbox: pathlib.Path) -> None:
    with orch.Journal(folder / "journal.db") as journal:
        outcome, action = journal.begin("notify.send", "greeting-1", b"hello", policy=orch.Policy.NEVER_REPEAT)
        with action:
            print(f"generation {journal.generation}: {outcome.name}")
            action.dispatch()
            outbox.write_text("greeting-1 hello\n")
            # Here it falls: nothing of what happened is recorded.


def next_one(folder: pathlib.Path, outbox: pathlib.Path) -> orch.Begin:
    def probe(action: orch.Action, reply: orch.ProbeReply) -> None:
        sent = action.key in outbox.read_text()
        reply.answer(orch.Outcome.APPLIED if sent else orch.Outcome.NOT_APPLIED, b"found in the outbox")

    with orch.Journal(folder / "journal.db") as journal:
        print(f"generation {journal.generation}:")
        print(journal.recover(probe))
        outcome, action = journal.begin("notify.send", "greeting-1", b"hello")
        with action:
            print(f"asked to send it again: {outcome.name}, {action.state.name}, {action.result!r}")
        print("records:", journal.verify())
    return outcome


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        journal, outbox = pathlib.Path(folder), pathlib.Path(folder, "outbox.txt")
        first(journal, outbox)
        return 0 if next_one(journal, outbox) == orch.Begin.REPLAY else 1


sys.exit(main())
