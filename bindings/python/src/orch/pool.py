# SPDX-License-Identifier: Apache-2.0
"""SandboxPool: sandboxes that stand already."""
import ctypes
from typing import Optional

from . import _handle
from ._completion import Completion
from ._errors import Code, Error
from ._native import call, lib, try_call
from .sandbox import Sandbox


def _goes_on(failure: Error) -> bool:
    """Whether it is the end of the call's own time, and not of a start."""
    return failure.code in (Code.ETIMEDOUT, Code.EDEADLK, Code.EBUSY) and not failure.step


class SandboxPool(_handle.Handle):
    """Keeps `ready` sandboxes started, copies of `pattern` as it is now, so that a program waits for no set-up.

    One that was taken is the caller's, and another one is started in the background. The pattern is not started.
    Closing the pool ends those that nobody took.

    Error EINVAL: `ready` is 0 or above 256, or a path of the pattern is Access.OWN (a folder has one owner; an overlay
    is fine); ESTATE: the pattern was started.
    """

    _noun = "sandbox_pool"

    def __init__(self, pattern: Sandbox, ready: int) -> None:
        pointer = self._make("orch_sandbox_pool_new", pattern._pointer, ready)
        super().__init__(pointer, pattern.context)

    def take(self) -> "Completion[Sandbox]":
        """Gives a started sandbox as soon as one is ready. Error: that of a start that failed meanwhile; the pool tries
        again at the next call."""
        sandbox = ctypes.c_void_p()
        completion: "Completion[Sandbox]" = Completion(self.context, "SandboxPool.take()")
        _code, failure = try_call("orch_sandbox_pool_take_wait", self._pointer, 0, ctypes.byref(sandbox))
        if failure is None:
            completion.finish(Sandbox._taken(sandbox, self.context))
        elif not _goes_on(failure):
            completion.fail(failure)
        else:
            self.context.watch(completion, self, "orch_sandbox_pool_take", ctypes.byref(sandbox),
                               value=lambda: Sandbox._taken(sandbox, self.context))
        return completion.keep(self)

    def take_wait(self, timeout_ms: int = -1) -> Sandbox:
        """The waiting form. Also TimedOut, Deadlock."""
        self.context.may_wait("SandboxPool.take_wait()")
        sandbox = ctypes.c_void_p()

        def taken() -> bool:
            self.context.process()
            return call("orch_sandbox_pool_take", self._pointer, ctypes.byref(sandbox), allow=(Code.EBUSY,)) == 0

        if self.context.dispatch("orch_sandbox_pool_take_wait", self._pointer, 0, ctypes.byref(sandbox),
                                 allow=(Code.ETIMEDOUT,)) < 0:
            self.context.drive(taken, timeout_ms, "SandboxPool.take_wait()")
        return Sandbox._taken(sandbox, self.context)

    def take_ready(self) -> Optional[Sandbox]:
        """One that is ready now, or None. Error: that of the last start, if that failed."""
        sandbox = ctypes.c_void_p()
        if call("orch_sandbox_pool_take", self._pointer, ctypes.byref(sandbox), allow=(Code.EBUSY,)) < 0:
            return None
        return Sandbox._taken(sandbox, self.context)

    @property
    def ready(self) -> int:
        """How many are ready now."""
        return int(lib.orch_sandbox_pool_ready(self._pointer))
