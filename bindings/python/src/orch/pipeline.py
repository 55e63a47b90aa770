# SPDX-License-Identifier: Apache-2.0
"""Pipeline: from an idea to a verified product."""
import ctypes
import json
from typing import Any, Callable, Dict, Mapping, Optional, Union

from . import _callbacks, _handle, _table
from ._completion import Completion, Source, Stream
from ._enums import Overlay, Role, RunState, choice
from ._errors import Code
from ._native import (Path, Text, call, encode, encode_path, lib, optional_path, options, taken_string, text)
from .broker import Broker, grant_options
from .context import Context
from .executor import Executor
from .journal import Journal

#: One thing that happened, as the members of its JSON object: {"event": NAME, ...}; see EVENTS in orch-demo(1).
Event = Dict[str, Any]


class Pipeline(_handle.Handle):
    """A run: from an idea to a verified product. Roles do the work in sandboxes; every transition is a record of the
    run's journal, from which a new instance resumes.

    state_dir          made if missing, mode 0700
    idea               text, for a new run
    resume             take up the run in state_dir; its idea, options and answers are in its journal
    review             False: no reviewer role
    anchor_path        of the journal, outside state_dir; None: none
    repo_dir           existing git repository, never touched; None: a new product
    base_rev           revision in it; None: HEAD
    schema_dir         None: the library's own
    jobs               tasks at once; by default 2
    max_attempts       per task, and per answer of a role; by default 3
    max_requests, max_tokens, max_micro_usd, max_seconds   budgets of the whole run; 0: none
    answer_timeout_ms  after it the recommended answers are taken; -1: wait for ever; 0: at once
    description        lets a person see in the report what did the work
    on_record          called with the sequence number after each durable record; must not call the library

    Error EEXIST: state_dir holds a run; ENOENT: nothing to resume, or repo_dir is missing; errors of Journal().
    """

    _noun = "pipeline"

    def __init__(self, context: Context, state_dir: Path, *, idea: Optional[Text] = None, resume: bool = False,
                 review: bool = True, anchor_path: Optional[Path] = None, repo_dir: Optional[Path] = None,
                 base_rev: Optional[Text] = None, schema_dir: Optional[Path] = None, jobs: Optional[int] = None,
                 max_attempts: Optional[int] = None, max_requests: int = 0, max_tokens: int = 0, max_micro_usd: int = 0,
                 max_seconds: int = 0, answer_timeout_ms: Optional[int] = None, description: Optional[Text] = None,
                 on_record: Optional[Callable[[int], Any]] = None) -> None:
        owner = context._pointer
        flags = (_table.ORCH_PIPELINE_RESUME if resume else 0) | (0 if review else _table.ORCH_PIPELINE_NO_REVIEW)
        opts = options(_table.orch_pipeline_opts, flags=flags, state_dir=encode_path(state_dir), idea=encode(idea),
                       anchor_path=optional_path(anchor_path), repo_dir=optional_path(repo_dir),
                       base_rev=encode(base_rev), schema_dir=optional_path(schema_dir), jobs=jobs,
                       max_attempts=max_attempts, max_requests=max_requests, max_tokens=max_tokens,
                       max_micro_usd=max_micro_usd, max_seconds=max_seconds, answer_timeout_ms=answer_timeout_ms,
                       description=encode(description))
        if on_record is not None:
            opts.on_record, opts.on_record_destroy = _callbacks.RECORD, _callbacks.DESTROY
            opts.on_record_userdata = _callbacks.add(on_record)
        super().__init__(self._make("orch_pipeline_new", owner, ctypes.byref(opts)), context)
        self._broker: Optional[Broker] = None
        self._journal: Optional[Journal] = None
        self._source: Source[Event] = Source("Pipeline.events()")
        source = self._source
        key = _callbacks.add(lambda line: _event(source, line), source.end)
        call("orch_pipeline_on_event", self._pointer, _callbacks.PIPELINE_EVENT, key, _callbacks.DESTROY)

    def _init_borrowed(self) -> None:
        raise TypeError("a Pipeline is made by its constructor")

    # --- before the start ------------------------------------------------------------------------------------------

    @property
    def broker(self) -> Broker:
        """The broker of the run: set its upstreams before the start."""
        if self._broker is None or self._broker.closed:
            self._broker = Broker._borrow(lib.orch_pipeline_broker(self._pointer), self.context)
        return self._broker

    @property
    def journal(self) -> Journal:
        """The journal of the run."""
        if self._journal is None or self._journal.closed:
            self._journal = Journal._borrow(lib.orch_pipeline_journal(self._pointer), None)
        return self._journal

    def set_executor(self, role: Role, executor: Executor) -> None:
        """Who does a role; Role.ALL: all that have none of their own."""
        call("orch_pipeline_set_executor", self._pointer, int(role), executor._pointer)

    def allow(self, operation: Text, *, url: Optional[Text] = None, probe_url: Optional[Text] = None,
              expires_at_ms: int = 0) -> None:
        """Allows an operation to tasks whose plan asks for it: see Principal.grant(). Else such a plan is refused."""
        opts = grant_options(operation, url, probe_url, 0, expires_at_ms, None, False)
        call("orch_pipeline_allow", self._pointer, ctypes.byref(opts))

    # --- the run ---------------------------------------------------------------------------------------------------

    def on_event(self, function: Optional[Callable[[Event], Any]]) -> None:
        """Has each event given to `function`. It replaces the one before."""
        self._check_open()
        self._source.listener = function

    def events(self) -> Stream[Event]:
        """What happens from now on, for `async for`; ends after {"event": "end", ...}."""
        self._check_open()
        return self._source.stream(self.context)

    def start(self) -> None:
        """Starts or resumes: probes what is enforced on this host, which takes seconds and **blocks**, in asyncio too;
        then it goes on inside the context's loop.

        Error ESTATE: started already, or a role has no executor; Unenforceable; ECORRUPT: a sealed document was
        changed; Deadlock: called inside a callback.
        """
        self.context.dispatch("orch_pipeline_start", self._pointer)

    def run(self) -> "Completion[RunState]":
        """Starts if need be (see start()); the end: DELIVERED, PARTIAL or ABORTED.

        NeedsHuman: it waits for answers that nobody will give. Error ENOSPC, EPOISONED and others: this instance can
        not go on; the run can be resumed.
        """
        self._check_open()
        completion: "Completion[RunState]" = Completion(self.context, "Pipeline.run()")
        state = ctypes.c_uint32()
        return self.context.watch(completion, self, "orch_pipeline_run", 0, ctypes.byref(state),
                                  value=lambda: choice(RunState, state.value))

    def run_wait(self, timeout_ms: int = -1) -> RunState:
        """The waiting form of run(). Also TimedOut, Deadlock."""
        state = ctypes.c_uint32()
        self.context.drive(
            lambda: self.context.dispatch("orch_pipeline_run", self._pointer, 0, ctypes.byref(state),
                                          allow=(Code.ETIMEDOUT,)) == 0, timeout_ms, "Pipeline.run_wait()")
        return choice(RunState, state.value)

    def answer(self, answers: Union[Mapping[str, str], str, bytes]) -> None:
        """The user's answers: {id: text}, or JSON {"answers": {...}}; "" or a missing id takes the recommendation.

        Error EPARSE; ENOENT: no such question; ESTATE: too late."""
        if isinstance(answers, (str, bytes)):
            given = answers.encode() if isinstance(answers, str) else answers
        else:
            given = json.dumps({"answers": dict(answers)}).encode()
        call("orch_pipeline_answer", self._pointer, given, len(given))

    def accept_recommended(self) -> None:
        """Takes the recommendation for each question that is still open."""
        call("orch_pipeline_accept_recommended", self._pointer)

    def stop(self, reason: Text) -> None:
        """Kills the running attempts; the run ends ABORTED after its report is written."""
        call("orch_pipeline_stop", self._pointer, encode(reason))

    # --- looking ---------------------------------------------------------------------------------------------------

    @property
    def state(self) -> RunState:
        """Where it is; INTAKE before the start."""
        return choice(RunState, lib.orch_pipeline_state(self._pointer))

    @property
    def state_name(self) -> str:
        """The same in words."""
        return text(lib.orch_run_state_name(int(self.state)))

    @property
    def overlays(self) -> Overlay:
        """What it waits for."""
        return Overlay(lib.orch_pipeline_overlays(self._pointer))

    def status(self) -> Dict[str, Any]:
        """The living state: stages, tasks, spending, questions."""
        made = ctypes.c_void_p()
        call("orch_pipeline_status", self._pointer, ctypes.byref(made))
        return _object(taken_string(made))

    @staticmethod
    def status_of(state_dir: Path) -> Dict[str, Any]:
        """The same from the journal of a run that no instance has in hand. Locked: it runs; Error ENOENT."""
        made = ctypes.c_void_p()
        call("orch_pipeline_status_of", encode_path(state_dir), ctypes.byref(made))
        return _object(taken_string(made))

    @property
    def report_path(self) -> str:
        """Path of report.html; "" until there is one."""
        return text(lib.orch_pipeline_report_path(self._pointer))

    @property
    def product_path(self) -> str:
        """Path of the product; "" until there is one."""
        return text(lib.orch_pipeline_product_path(self._pointer))

    def close(self) -> None:
        """Gives the reference back, and those on its broker and journal: what runs is killed; it can be resumed."""
        for lent in (getattr(self, "_broker", None), getattr(self, "_journal", None)):
            if lent is not None:
                lent.close()
        super().close()


def _object(line: str) -> Dict[str, Any]:
    made: Dict[str, Any] = json.loads(line)
    return made


def _event(source: "Source[Event]", line: bytes) -> None:
    event = _object(text(line))
    try:
        source.put(event)
    finally:
        if event.get("event") == "end":
            source.end_streams()
