# SPDX-License-Identifier: Apache-2.0
"""Broker: the one door out of a sandbox. Principal: who asks it."""
import ctypes
import weakref
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, Optional

from . import _callbacks, _handle, _table
from ._completion import Completion
from ._enums import Credential, Operation, choice
from ._native import Path, Text, call, checked, descriptor, encode, lib, optional_path, options, plain, text
from .action import Action
from .context import Context
from .journal import Journal
from .recovery import ProbeReply
from .scope import Scope


class Spent(NamedTuple):
    """Settled spending; money in millionths of a US dollar."""
    requests: int
    tokens: int
    micro_usd: int


class Revoked(NamedTuple):
    """What became of the operations in flight."""
    settled: int
    unknown: int


@dataclass(frozen=True)
class OperationEvent:
    """A step of an operation.

    principal           who asked
    operation           "ai.anthropic", "ai.openai", "notify.send"
    event               REFUSED, DISPATCHED, OBSERVED, FAILED (known not applied) or UNKNOWN
    code                refusal code ("no_grant", "budget_tokens", ...) or ""
    http_status         or 0
    quota_resets_at_ms  from the provider's headers on 429, else 0
    """
    principal: "Principal"
    operation: str
    event: Operation
    code: str
    http_status: int
    quota_resets_at_ms: int


def grant_options(operation: Text, url: Optional[Text], probe_url: Optional[Text], max_uses: int, expires_at_ms: int,
                  key_prefix: Optional[Text], deny: bool) -> Any:
    """The C structure, for Principal.grant() and Pipeline.allow()."""
    return options(_table.orch_grant_opts, operation=encode(operation), url=encode(url), probe_url=encode(probe_url),
                   max_uses=max_uses, expires_at_ms=expires_at_ms, key_prefix=encode(key_prefix),
                   flags=_table.ORCH_GRANT_DENY if deny else 0)


def _spent(function: str, pointer: int) -> Spent:
    values = [ctypes.c_uint64() for _amount in Spent._fields]
    checked(getattr(lib, function)(pointer, *(ctypes.byref(value) for value in values)), function)
    return Spent(*(value.value for value in values))


class Broker(_handle.Handle):
    """The one door out of a sandbox: clients speak plain HTTP/1.1 to a listener, and the first path segment names the
    operation: /ai.anthropic/..., /ai.openai/..., /notify.send (POST, with an Idempotency-Key header).

    Closing the last handle closes listeners and connections; operations in flight become UNKNOWN.

    journal             each operation is recorded there
    journal_path        or in a journal of the broker's own
    connect_timeout_ms  upstream; by default 5000
    idle_timeout_ms     no byte from upstream; by default 300000

    Error EINVAL: neither journal nor journal_path; errors of Journal().
    """

    _noun = "broker"

    def __init__(self, context: Context, *, journal: Optional[Journal] = None, journal_path: Optional[Path] = None,
                 connect_timeout_ms: Optional[int] = None, idle_timeout_ms: Optional[int] = None) -> None:
        opts = options(_table.orch_broker_opts, journal=journal._pointer if journal is not None else None,
                       journal_path=optional_path(journal_path), connect_timeout_ms=connect_timeout_ms,
                       idle_timeout_ms=idle_timeout_ms)
        super().__init__(self._make("orch_broker_new", context._pointer, ctypes.byref(opts)), context)

    def set_upstream(self, operation: Text, base_url: Text, *, credential: Credential = Credential.NONE,
                     secret: Optional[Text] = None, input_price_micro_usd_per_mtok: int = 0,
                     output_price_micro_usd_per_mtok: int = 0, max_output_tokens: int = 0) -> None:
        """Sets where "ai.anthropic" or "ai.openai" goes.

        base_url           "https://api.anthropic.com": scheme, host, port, path prefix
        secret             kept here only; scrubbed from what is logged or sent back
        ..._price_...      for the money budget; both 0: no price is known, and a money budget is refused
        max_output_tokens  assumed where a request has no limit; 0: 32000

        Error EINVAL: malformed URL; ENOENT: unknown operation.
        """
        opts = options(_table.orch_upstream_opts, base_url=encode(base_url), credential=int(credential),
                       secret=encode(secret), input_price_micro_usd_per_mtok=input_price_micro_usd_per_mtok,
                       output_price_micro_usd_per_mtok=output_price_micro_usd_per_mtok,
                       max_output_tokens=max_output_tokens)
        call("orch_broker_set_upstream", self._pointer, encode(operation), ctypes.byref(opts))

    def set_budget(self, *, requests: int = 0, tokens: int = 0, micro_usd: int = 0) -> None:
        """One more shared budget over all principals. 0: no limit of that kind."""
        call("orch_broker_set_budget", self._pointer, requests, tokens, micro_usd)

    def add_spent(self, *, requests: int = 0, tokens: int = 0, micro_usd: int = 0) -> None:
        """Adds what was spent before, e.g. by an earlier instance."""
        call("orch_broker_add_spent", self._pointer, requests, tokens, micro_usd)

    def spent(self) -> Spent:
        """Settled spending so far."""
        return _spent("orch_broker_spent", self._pointer)

    def add_listener(self, listener: Any, principal: "Principal") -> None:
        """Serves clients of a listening stream socket (a descriptor, or what has fileno(); it is duplicated) as that
        principal. ClosedError: the principal is revoked; Error EINVAL: not such a socket."""
        call("orch_broker_add_listener", self._pointer, descriptor(listener), principal._pointer)

    def on_operation(self, function: Callable[[OperationEvent], Any]) -> None:
        """Has each step of each operation given to `function`. It replaces the one before."""
        pointer, context = self._pointer, weakref.ref(self.context)

        def step(principal: int, operation: bytes, event: int, code: bytes, status: int, resets_at_ms: int) -> None:
            function(OperationEvent(Principal._borrow(principal, context()), text(operation), choice(Operation, event),
                                    text(code), status, resets_at_ms))

        key = _callbacks.add(step)
        call("orch_broker_on_operation", pointer, _callbacks.OPERATION, key, _callbacks.DESTROY)

    def probe(self, action: Action, reply: ProbeReply) -> None:
        """Asks the destination what became of an action of the broker's; for Journal.recover(broker.probe). Blocks, at
        most connect_timeout_ms, in asyncio too."""
        plain("orch_broker_probe", self._pointer, action._pointer, reply._pointer)


class Principal(_handle.Handle):
    """Who asks the broker: one attempt of one task, with a generation. Without a grant everything is refused.

    name        "run-1/T2/1": in the journal and in refusals
    generation  rises with each instance, so that an old name never passes for a new thing
    max_...     its own budget; 0: no limit of its own
    """

    _noun = "principal"

    def __init__(self, broker: Broker, name: Text, *, generation: int = 0, max_requests: int = 0, max_tokens: int = 0,
                 max_micro_usd: int = 0) -> None:
        opts = options(_table.orch_principal_opts, name=encode(name), generation=generation, max_requests=max_requests,
                       max_tokens=max_tokens, max_micro_usd=max_micro_usd)
        super().__init__(self._make("orch_principal_new", broker._pointer, ctypes.byref(opts)), broker.context)

    def grant(self, operation: Text, *, url: Optional[Text] = None, probe_url: Optional[Text] = None, max_uses: int = 0,
              expires_at_ms: int = 0, key_prefix: Optional[Text] = None, deny: bool = False) -> None:
        """Allows an operation: "ai.anthropic", "ai.openai", "notify.send"; with `deny`, denies it whatever else stands.

        url            notify.send: where it is POSTed to
        probe_url      and asked (GET) whether a key was applied: "{key}" in it is replaced; 200: applied, 404: not
        max_uses       0: no limit
        expires_at_ms  ms since 1970; 0: never
        key_prefix     put before the client's Idempotency-Key
        """
        opts = grant_options(operation, url, probe_url, max_uses, expires_at_ms, key_prefix, deny)
        call("orch_principal_grant", self._pointer, ctypes.byref(opts))

    def revoke(self) -> "Completion[Revoked]":
        """Ends it: listener closed, connections cut, operations in flight settled or UNKNOWN; with both counts.

        ClosedError: it was revoked before."""
        pointer = self._pointer
        completion: "Completion[Revoked]" = Completion(self.context, "Principal.revoke()")
        key = _callbacks.add(lambda _principal, settled, unknown: completion.finish(Revoked(settled, unknown)),
                             completion.abandon)
        call("orch_principal_revoke", pointer, _callbacks.REVOKE, key, _callbacks.DESTROY)
        return completion

    def attach(self, scope: Scope) -> None:
        """Makes its end part of the scope's: it is revoked when that begins, and the certificate says what was cut.

        ClosedError: it is revoked, or the scope's end has begun."""
        call("orch_principal_attach", self._pointer, scope._pointer)

    def spent(self) -> Spent:
        """Settled spending so far."""
        return _spent("orch_principal_spent", self._pointer)

    @property
    def budget_hit(self) -> bool:
        """Whether an operation was refused for budget."""
        return checked(lib.orch_principal_budget_hit(self._pointer), "Principal.budget_hit") == 1
