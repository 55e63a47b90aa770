# SPDX-License-Identifier: Apache-2.0
"""What all handles have in common: one reference to a C object, given back exactly once."""
import atexit
import ctypes
import itertools
import sys
import weakref
from typing import TYPE_CHECKING, Any, List, Optional, Type, TypeVar

from . import _callbacks
from ._errors import ClosedError, Code
from ._native import call, plain

if TYPE_CHECKING:
    from .context import Context

Self = TypeVar("Self", bound="Handle")

_serials = itertools.count(1)
_open: "weakref.WeakValueDictionary[int, Handle]" = weakref.WeakValueDictionary()
_finished = False


class Handle:
    """A handle of the library. It ends with close(), with a `with` block, or when nobody refers to it any more.

    Closing gives this reference back; what that means for the object behind it, the class says. Closing twice is fine;
    any other use after it raises ClosedError. Two handles are equal when they are of the same object.
    """

    #: Of the C functions: orch_NAME_ref, orch_NAME_unref.
    _noun = ""

    def __init__(self, pointer: int, context: "Optional[Context]") -> None:
        self._held: List[int] = [pointer]  # emptied by the one that gives it back: list.pop() is atomic
        self._address = pointer
        self._context = context
        self._serial = next(_serials)
        _open[self._serial] = self

    @classmethod
    def _make(cls, function: str, *arguments: Any) -> int:
        """Calls a C function whose last output is a new handle. It is given back if a callback raised meanwhile."""
        pointer = ctypes.c_void_p()
        try:
            call(function, *arguments, ctypes.byref(pointer))
        except BaseException:
            plain(f"orch_{cls._noun}_unref", pointer)
            raise
        return pointer.value or 0

    @classmethod
    def _borrow(cls: Type[Self], pointer: int, context: "Optional[Context]") -> Self:
        """A handle of its own for an object that C only lends."""
        plain(f"orch_{cls._noun}_ref", pointer)
        made = cls.__new__(cls)
        made._init_borrowed()
        Handle.__init__(made, pointer, context)
        return made

    def _init_borrowed(self) -> None:
        """Sets what __init__ would have set besides."""

    @property
    def _pointer(self) -> int:
        try:
            return self._held[0]
        except (IndexError, AttributeError):
            raise ClosedError(Code.ECLOSED, f"this {type(self).__name__} is closed") from None

    def _check_open(self) -> None:
        self._pointer  # pylint: disable=pointless-statement

    @property
    def closed(self) -> bool:
        """True after close()."""
        return not self._held

    @property
    def context(self) -> "Context":
        """The context that it lives in."""
        if self._context is None:
            raise AttributeError(f"a {type(self).__name__} needs no context")
        return self._context

    def close(self) -> None:
        """Gives the reference back. Any thread."""
        try:
            pointer = self._held.pop()
        except (IndexError, AttributeError):
            return
        _open.pop(self._serial, None)
        self._release(pointer)

    def _release(self, pointer: int) -> None:
        plain(f"orch_{self._noun}_unref", pointer)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_raised: Any) -> None:
        self.close()

    def __del__(self) -> None:
        # The collector may come while the library is in a callback that must not call it.
        if _finished or not getattr(self, "_held", None):
            return
        pointer, release = self._held.pop(), type(self)._release
        if not _callbacks.defer(lambda: release(self, pointer)):
            release(self, pointer)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Handle):
            return NotImplemented
        return self is other or (type(self) is type(other) and not self.closed and self._held == other._held)

    def __hash__(self) -> int:
        return hash(self._address)

    def __repr__(self) -> str:
        return f"<orch.{type(self).__name__}{' (closed)' if self.closed else self._describe()}>"

    def _describe(self) -> str:
        return ""


def close_children(context: "Context") -> None:
    """Closes every handle that lives in the context, the newest first."""
    for _serial, handle in sorted(_open.items(), reverse=True):
        if handle is not context and handle._context is context:
            handle.close()


def _close_all() -> None:
    """At the end of the process, while Python still works: the newest first."""
    global _finished
    for _serial, handle in sorted(_open.items(), reverse=True):
        try:
            handle.close()
        except BaseException as error:  # pylint: disable=broad-except
            sys.excepthook(type(error), error, error.__traceback__)  # and on with the others
    _finished = True


atexit.register(_close_all)
