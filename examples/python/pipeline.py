#!/usr/bin/env python3
"""From an idea to a verified product: what orch-demo does, in Python. Options and exit codes are as in orch-demo(1).

    pipeline.py "A command line tool that ..." --state ./run --max-usd 5 --key-file ~/key
"""
import argparse
import contextlib
import json
import os
import pathlib
import sys
import time
from typing import Any, Dict

import orch

EXITS = {"EUNENFORCEABLE": 3, "ELOCKED": 4, "EBUSY": 4, "ENOENT": 5, "EINVAL": 2, "EPARSE": 2, "EEXIST": 2,
         "EUPSTREAM": 6, "ENEEDHUMAN": 12}
PRICES = pathlib.Path(__file__).resolve().parent.parent / "orch-demo/prices.json"
PROVIDERS = {"anthropic": ("https://api.anthropic.com", "ANTHROPIC_API_KEY"),
             "openai": ("https://api.openai.com", "OPENAI_API_KEY")}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="from an idea to a verified product")
    add = parser.add_argument
    add("idea", nargs="?")
    add("--state", type=pathlib.Path, required=True, help="the run's folder")
    add("--resume", action="store_true", help="go on with the run in it")
    add("--provider", choices=[*PROVIDERS, "none"], default="anthropic")
    add("--base-url")
    add("--model")
    add("--key-file", type=pathlib.Path, help="mode 0600; else ANTHROPIC_API_KEY or OPENAI_API_KEY")
    add("--executor", choices=["mini", "command"], default="mini")
    add("--executor-cmd", default="false", help="for command: gets the packet on its standard input")
    add("--max-usd", type=float, default=0)
    add("--max-tokens", type=int, default=0)
    add("--jobs", type=int, default=2)
    add("--grant", action="append", default=[], metavar="OPERATION=URL")
    add("--answers", type=pathlib.Path, help="a JSON file; STATE/questions.json is the template")
    add("--yes", action="store_true", help="take what is recommended")
    add("--json", action="store_true", help="events as they come, one JSON object a line")
    given = parser.parse_args()
    if not given.idea and not given.resume:
        parser.error("an idea is needed")
    if given.provider != "none" and not (given.max_usd or given.max_tokens):
        parser.error("a real provider without a cap: give --max-usd or --max-tokens")
    return given


def secret(given: argparse.Namespace) -> str:
    key = os.environ.get(PROVIDERS[given.provider][1], "")
    if given.key_file:
        key = "" if given.key_file.stat().st_mode & 0o77 else given.key_file.read_text().strip()
    if not key:
        print("pipeline.py: no key:", PROVIDERS[given.provider][1], "or --key-file F (mode 0600)", file=sys.stderr)
        sys.exit(2)
    return key


def set_up(given: argparse.Namespace, pipeline: orch.Pipeline, context: orch.Context) -> None:
    """Provider, executor, grants, answers."""
    if given.provider != "none":
        price = json.loads(PRICES.read_text())["models"].get(given.model, {"input": 0, "output": 0})
        pipeline.broker.set_upstream(
            f"ai.{given.provider}", given.base_url or PROVIDERS[given.provider][0], secret=secret(given),
            credential=orch.Credential.API_KEY, input_price_micro_usd_per_mtok=int(price["input"] * 1e6),
            output_price_micro_usd_per_mtok=int(price["output"] * 1e6))
    if given.executor == "mini":
        api = orch.Api.OPENAI if given.provider == "openai" else orch.Api.ANTHROPIC
        executor = orch.Executor.mini(context, api=api, model=given.model)
    else:
        executor = orch.Executor.command(context, ["/bin/sh", "-c", given.executor_cmd])
    pipeline.set_executor(orch.Role.ALL, executor)
    for grant in given.grant:
        operation, _, url = grant.partition("=")
        pipeline.allow(operation, url=url, probe_url=url + "/{key}")
    if given.answers:
        pipeline.answer(given.answers.read_bytes())
    if given.yes:  # a run that is resumed may have its answers already
        with contextlib.suppress(orch.Error) if given.resume else contextlib.nullcontext():
            pipeline.accept_recommended()


def line_for(event: Dict[str, Any]) -> str:
    """What a person wants to know of an event, or ""."""
    name, task, state = event["event"], event.get("task", "-"), event.get("state", "")
    reason = f": {event['reason']}" if event.get("reason") else ""
    error = f": {event['error']}" if event.get("error") else ""
    subject = f"{'run' if name == 'run' else task if task != '-' else event.get('stage', 'all'):<8}"
    if name in ("run", "task"):
        return f"{subject} {state}{reason}"
    if name == "attempt" and state == "ENDED":
        return f"{subject} attempt {event['attempt']} {event['end']}, certificate {event.get('verdict') or 'none'}"
    if name == "verify":
        passed, failed = event.get("passed", 0), event.get("failed", 0)
        return f"{subject} {event['purpose']}: {passed} checks pass, {failed} fail{error}"
    if name == "question":
        return f"question {event['id']}: {event['text']} [{event['recommended']}]"
    if name == "overlay":
        return f"run      {event['overlay']} {'on' if event['on'] else 'over'}{reason}"
    return f"{state}{reason}\n  report   {event['report']}\n  product  {event['product']}" if name == "end" else ""


def drive(given: argparse.Namespace, pipeline: orch.Pipeline) -> orch.RunState:
    """To the end; a person at the terminal is asked what the run waits for."""
    while True:
        try:
            return pipeline.run_wait()
        except orch.NeedsHuman:
            if given.json or not sys.stdin.isatty():
                raise
            asked = [question for question in pipeline.status()["questions"] if "answer" not in question]
            pipeline.answer({q["id"]: input(f"? {q['text']} [{q['recommended']}] ") for q in asked})


def main() -> int:
    given, begun, reasons = arguments(), time.monotonic(), [""]
    state = given.state.absolute()
    cap = f"{given.max_usd:.2f} USD" if given.max_usd else f"{given.max_tokens} tokens" if given.max_tokens else "none"
    what = f"executor {given.executor}, provider {given.provider}, model {given.model or 'default'}"

    def show(event: Dict[str, Any]) -> None:
        line = json.dumps(event) if given.json else line_for(event)
        if line:
            print(line if given.json else f"{time.monotonic() - begun:6.1f}s  {line}", flush=True)
        reasons.append(event.get("reason") or "")

    try:
        with orch.Context(log=lambda _level, line: print(line, file=sys.stderr),
                          log_level=orch.LogLevel.WARNING) as context, \
                orch.Pipeline(context, state, idea=given.idea, resume=given.resume, anchor_path=f"{state}.anchor",
                              jobs=given.jobs, max_tokens=given.max_tokens, max_micro_usd=int(given.max_usd * 1e6),
                              answer_timeout_ms=-1, description=f"{what}, isolation process, cap {cap}") as pipeline:
            pipeline.on_event(show)
            set_up(given, pipeline, context)
            end = drive(given, pipeline)
    except KeyboardInterrupt:
        print(f"pipeline.py: all that ran is ended; go on with --resume --state {state}", file=sys.stderr)
        return 130
    except orch.Error as error:
        print(f"pipeline.py: {error}", file=sys.stderr)
        return EXITS.get(error.name[5:], 1)
    if end == orch.RunState.PARTIAL and "upstream_unreachable" in reasons[-1]:
        return 6
    return {orch.RunState.DELIVERED: 0, orch.RunState.PARTIAL: 10}.get(end, 11)


sys.exit(main())
