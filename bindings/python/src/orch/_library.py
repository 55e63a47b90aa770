# SPDX-License-Identifier: Apache-2.0
"""Which liborch this process uses, and loading it.

In this order: what use_library() named; the one inside the installed package; the build folder of the source
tree that this file lies in; the one that the system's loader knows. No environment variable is read. The first
that is there is taken: if it can not be used, that is an error, and no other one is tried instead.
"""
import ctypes
import os
import pathlib
import re
import sys
import threading
from typing import List, Optional, Union

#: Of the package. A library of the same major and minor version fits.
VERSION = "0.1.0"

#: The file's name for the system's loader, which carries the number of the binary interface.
FILE_NAME = "liborch.0.dylib" if sys.platform == "darwin" else "liborch.so.0"

_lock = threading.RLock()
_chosen: Optional[str] = None
_loaded: Optional[ctypes.CDLL] = None


class LibraryError(ImportError):
    """No liborch was found, it can not be loaded, or its version does not fit this package."""


class _Origin(ctypes.Structure):
    """Dl_info of dladdr(3)."""
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p),
                ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)]


def use_library(path: Union[str, bytes, "os.PathLike[str]"]) -> None:
    """Uses the liborch at `path`. For before the first use: once another one is loaded this is a RuntimeError."""
    global _chosen
    wanted = os.path.abspath(os.fsdecode(path))
    with _lock:
        if _loaded is not None and os.path.realpath(wanted) != os.path.realpath(_file_of(_loaded)):
            raise RuntimeError(f"liborch is loaded already, from {_file_of(_loaded)}: call use_library() earlier")
        _chosen = wanted


def load() -> ctypes.CDLL:
    """The library; the first call loads it. LibraryError says where it was sought, or what does not fit."""
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = _open(_chosen or _own() or _of_source_tree() or FILE_NAME)
        return _loaded


def path() -> str:
    """The file that the library was loaded from. Loads it if need be."""
    return _file_of(load())


def _package() -> pathlib.Path:
    return pathlib.Path(__file__).resolve().parent


def _own() -> Optional[str]:
    file = _package() / "_lib" / FILE_NAME
    return str(file) if file.exists() else None


def _source_tree() -> Optional[pathlib.Path]:
    for folder in _package().parents:
        project = folder / "meson.build"
        if project.is_file() and re.match(r"project\('liborch'", project.read_text(errors="replace")):
            return folder
    return None


def _of_source_tree() -> Optional[str]:
    tree = _source_tree()
    file = tree / "build" / "lib" / FILE_NAME if tree else None
    return str(file) if file and file.exists() else None


def _open(file: str) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(file)
    except OSError as error:
        if file != FILE_NAME:
            raise LibraryError(f"liborch can not be loaded from {file}: {error}", path=file) from error
        raise LibraryError(f"liborch was not found: {error}. Sought: " + "; ".join(_places())) from error
    _check_version(library)
    return library


def _places() -> List[str]:
    tree = _source_tree()
    return [f"{_package() / '_lib' / FILE_NAME} (not in this package)",
            f"{tree / 'build' / 'lib' / FILE_NAME} (not built)" if tree else "no source tree around the package",
            f"{FILE_NAME} (the system's loader)"]


def _check_version(library: ctypes.CDLL) -> None:
    file = _file_of(library)
    try:
        function = library.orch_version
    except AttributeError:
        raise LibraryError(f"{file} is no liborch: it has no orch_version()", path=file) from None
    function.restype, function.argtypes = ctypes.c_char_p, []
    version = function().decode()
    if version.split(".")[:2] != VERSION.split(".")[:2]:
        raise LibraryError(f"the package orch {VERSION} does not fit liborch {version} in {file}: both must have the "
                           "same major and minor version", path=file)


def _file_of(library: ctypes.CDLL) -> str:
    dladdr = ctypes.CDLL(None).dladdr
    dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Origin)]
    origin = _Origin()
    try:
        address = ctypes.cast(library.orch_version, ctypes.c_void_p)
    except AttributeError:
        return library._name
    if not dladdr(address, ctypes.byref(origin)) or not origin.file:
        return library._name
    return os.fsdecode(origin.file)
