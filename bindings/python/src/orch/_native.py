# SPDX-License-Identifier: Apache-2.0
"""The C functions, bound from the table when they are first used, and the conversions that every noun needs."""
import ctypes
import os
from typing import Any, Iterable, List, Mapping, Optional, Tuple, Type, TypeVar, Union

from . import _callbacks, _library, _table
from ._errors import Code, Error, error_of, make_error

#: What is taken as a path: the library's paths are byte strings.
Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Text = Union[str, bytes]
Options = TypeVar("Options", bound=ctypes.Structure)


class _Functions:
    """lib.orch_x is the C function, with its types. A build without that noun answers ORCH_ENOTSUP."""

    def __getattr__(self, name: str) -> Any:
        try:
            result, arguments = _table.FUNCTIONS[name]
        except KeyError:
            raise AttributeError(name) from None
        try:
            function = getattr(_library.load(), name)
        except AttributeError:
            raise make_error(Code.ENOTSUP, f"{_library.path()} was built without {name}()") from None
        function.restype, function.argtypes = result, arguments
        setattr(self, name, function)
        return function


lib = _Functions()


def try_call(name: str, *arguments: Any) -> Tuple[int, Optional[Error]]:
    """Calls a function whose last parameter is `reterr`: its code, and below 0 the error.

    What a callback raised meanwhile is raised here.
    """
    function = getattr(lib, name)
    pointer = ctypes.c_void_p()
    failure: Optional[Error] = None
    code: int = 0
    frame = _callbacks.enter()
    try:
        code = function(*arguments, ctypes.byref(pointer))
    finally:
        _callbacks.leave(frame)
        if code < 0:
            failure = error_of(pointer.value, code)
        lib.orch_error_free(pointer)
    frame.raise_first(None if code == Code.ETIMEDOUT else failure)  # that its time was over explains nothing
    return code, failure


def call(name: str, *arguments: Any, allow: Tuple[int, ...] = ()) -> int:
    """The same; raises the error.

    Codes in `allow` are returned too, unless they name a step: then the code is the end of what was waited for (a
    set-up that was not done in its own time), and not that of the waiting.
    """
    code, failure = try_call(name, *arguments)
    if failure is not None and (code not in allow or failure.step):
        raise failure
    return code


def plain(name: str, *arguments: Any) -> Any:
    """Calls a function without `reterr` that may run callbacks; raises what they raised."""
    function = getattr(lib, name)
    frame = _callbacks.enter()
    try:
        value = function(*arguments)
    finally:
        _callbacks.leave(frame)
    frame.raise_first(None)
    return value


def checked(code: int, what: str) -> int:
    """For functions without `reterr`: the code, or an Error with its general text."""
    if code < 0:
        raise make_error(code, f"{what}: {text(lib.orch_code_text(code))}")
    return code


# --- conversions ---------------------------------------------------------------------------------------------------


def text(value: Optional[bytes]) -> str:
    """A C string as str; bytes that are no UTF-8 survive a way back through encode()."""
    return os.fsdecode(value) if value is not None else ""


def encode(value: Optional[Text]) -> Optional[bytes]:
    """A str or bytes for a C string."""
    return None if value is None else encode_path(value)


def encode_path(value: Path) -> bytes:
    """A path for a C string."""
    path = os.fsencode(value)
    if b"\0" in path:
        raise ValueError("embedded null byte")
    return path


def optional_path(value: Optional[Path]) -> Optional[bytes]:
    """The same; None stays None."""
    return None if value is None else encode_path(value)


def strings(values: Iterable[Path]) -> Any:
    """A NULL-terminated array of C strings."""
    if isinstance(values, (str, bytes)):
        raise TypeError("a list of strings is needed, not one string")
    encoded: List[Optional[bytes]] = [encode_path(value) for value in values]
    return (ctypes.c_char_p * (len(encoded) + 1))(*encoded, None)


def environment(values: Optional[Mapping[str, str]]) -> Any:
    """NAME=value strings, or None."""
    return None if values is None else strings(f"{name}={value}" for name, value in values.items())


def payload(value: Union[bytes, bytearray, memoryview, str, None]) -> Optional[bytes]:
    """Bytes for a pointer with a length. A str is taken as UTF-8."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else bytes(value)


def address(value: Optional[bytes]) -> Optional[int]:
    """Where the bytes lie, for a `const void *` member. The caller keeps them alive."""
    return None if value is None else ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p).value


def buffer(pointer: Optional[int], size: int) -> Optional[bytes]:
    """A copy of `size` bytes; None for NULL."""
    return ctypes.string_at(pointer, size) if pointer else None


def length(value: Optional[bytes]) -> int:
    """Their number; 0 for None."""
    return 0 if value is None else len(value)


def taken_string(pointer: ctypes.c_void_p) -> str:
    """The text of a `char *` that is ours, which is freed."""
    try:
        return text(ctypes.string_at(pointer.value)) if pointer.value else ""
    finally:
        lib.orch_string_free(pointer)


def options(structure: Type[Options], /, **values: Any) -> Options:
    """An options structure with the library's defaults; values that are None leave them."""
    made = structure()
    getattr(lib, f"{structure.__name__}_init")(ctypes.byref(made), ctypes.sizeof(made))
    for name, value in values.items():
        if value is not None:
            setattr(made, name, value)
    return made


def descriptor(value: Any) -> int:
    """A file descriptor from a number or from what has fileno(); None is -1."""
    if value is None:
        return -1
    return value if isinstance(value, int) else int(value.fileno())
