# SPDX-License-Identifier: Apache-2.0
"""Errors: one exception class with the library's code, and subclasses where a caller tells one case apart."""
import enum
from typing import Dict, Optional, Type, Union


class Code(enum.IntEnum):
    """The library's error codes. `code.text()` says in a few words what one means."""
    OK = 0
    EINVAL = -1
    ENOMEM = -2
    ESYS = -3
    E2BIG = -4
    ETIMEDOUT = -5
    EDEADLK = -6
    EFORKED = -7
    EBUSY = -8
    ECLOSED = -9
    ENOENT = -10
    EEXIST = -11
    EUNENFORCEABLE = -12
    EVERSION = -13
    EHELPER = -14
    EPROTO = -15
    ECANCELED = -16
    ESTATE = -17
    ECONFLICT = -18
    EAMBIGUOUS = -19
    EPERMIT = -20
    ELOCKED = -21
    ESCHEMA = -22
    ENETFS = -23
    EPOISONED = -24
    ECORRUPT = -25
    ENOSPC = -26
    EDENIED = -27
    EBUDGET = -28
    EUPSTREAM = -29
    EPARSE = -30
    ETOOBIG = -31
    ENOTSUP = -32
    ESPAWN = -33
    ENEEDHUMAN = -34

    def text(self) -> str:
        """A short English text, as the library has it."""
        from ._native import lib, text
        return text(lib.orch_code_text(int(self)))


class Error(Exception):
    """What the library answers when a call fails.

    code     Code, or the bare number when the library is newer than this package
    name     "ORCH_EINVAL"
    errno    the operating system's errno behind it, or 0
    message  what happened, to what, and what to do
    step     the channel or step that failed ("unix.path", "mount.proc"), or ""
    """

    def __init__(self, code: int, message: str, errno: int = 0, step: str = "") -> None:
        super().__init__(code, message, errno, step)
        self.code: Union[Code, int] = _code(code)
        self.errno = errno
        self.message = message
        self.step = step

    @property
    def name(self) -> str:
        """The code's stable name."""
        if isinstance(self.code, Code):
            return f"ORCH_{self.code.name}"
        from ._native import lib, text
        return text(lib.orch_code_name(self.code))

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" + (f" [{self.step}]" if self.step else "")


class TimedOut(Error, TimeoutError):  # type: ignore[misc]  # errno is an int in both
    """ORCH_ETIMEDOUT. Also a TimeoutError."""


class ClosedError(Error):
    """ORCH_ECLOSED: the scope, the principal or this handle is closed."""


class Canceled(Error):
    """ORCH_ECANCELED: it was closed or stopped before it was done."""


class Deadlock(Error):
    """ORCH_EDEADLK: a waiting call where waiting would stop the loop that it waits for."""


class Forked(Error):
    """ORCH_EFORKED: the handle belongs to the parent of this process."""


class Locked(Error):
    """ORCH_ELOCKED: another coordinator owns the journal."""


class Unenforceable(Error):
    """ORCH_EUNENFORCEABLE: the host can not give the protection that was asked for."""


class NeedsHuman(Error):
    """ORCH_ENEEDHUMAN: a person has to decide."""


_CLASSES: Dict[int, Type[Error]] = {
    Code.ETIMEDOUT: TimedOut, Code.ECLOSED: ClosedError, Code.ECANCELED: Canceled, Code.EDEADLK: Deadlock,
    Code.EFORKED: Forked, Code.ELOCKED: Locked, Code.EUNENFORCEABLE: Unenforceable, Code.ENEEDHUMAN: NeedsHuman}


def _code(value: int) -> Union[Code, int]:
    try:
        return Code(value)
    except ValueError:
        return value


def make_error(code: int, message: str, errno: int = 0, step: str = "") -> Error:
    """The exception for a code, of the class that fits it."""
    return _CLASSES.get(code, Error)(code, message, errno, step)


def error_of(pointer: Optional[int], code: int = 0) -> Error:
    """The exception for an orch_error, which stays the owner's. NULL: for the bare code."""
    from ._native import lib, text
    if not pointer:
        return make_error(code, text(lib.orch_code_text(code)))
    return make_error(lib.orch_error_code(pointer), text(lib.orch_error_message(pointer)),
                      lib.orch_error_errno(pointer), text(lib.orch_error_step(pointer)))
