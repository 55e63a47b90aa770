"""Reads what the tests need to know of a 64-bit Mach-O file (Apple's mach-o/loader.h and mach-o/nlist.h)."""
import pathlib
import struct
from dataclasses import dataclass, field

MAGIC_64 = 0xFEEDFACF
CPUS = {0x01000007: "x86_64", 0x0100000C: "arm64"}
KINDS = {1: "object", 2: "program", 6: "dylib"}
LC_SYMTAB, LC_ID_DYLIB, LC_BUILD_VERSION = 0x2, 0xD, 0x32
LC_DYLD_INFO = {0x22, 0x80000022}
LC_DYLD_EXPORTS_TRIE = 0x80000033
LC_LOADS = {0xC, 0x80000018, 0x8000001F}  # LC_LOAD_DYLIB, LC_LOAD_WEAK_DYLIB, LC_REEXPORT_DYLIB
N_STAB, N_TYPE, N_EXT = 0xE0, 0x0E, 0x01
PLATFORM_MACOS = 1
# Ordinals of nlist.h that name no library.
UNNAMED = {0xFD: "(main program)", 0xFE: "(dynamic look-up)", 0xFF: "(flat look-up)", 0: "(itself)"}


class Damaged(Exception):
    pass


@dataclass
class MachO:
    cpu: str = ""
    kind: str = ""
    platform: int = 0
    oldest: str = ""
    install_name: str = ""
    loads: list[str] = field(default_factory=list)
    exported: set[str] = field(default_factory=set)
    imported: dict[str, str] = field(default_factory=dict)  # symbol -> install name of the library it is bound to


def text(image: bytes, offset: int) -> str:
    return image[offset:image.index(b"\0", offset)].decode()


def uleb(image: bytes, at: int) -> tuple[int, int]:
    """A number of DWARF's variable length, and where it ends."""
    value, shift = 0, 0
    while True:
        byte = image[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def read_exports(trie: bytes, at: int = 0, prefix: str = "") -> set[str]:
    """What dlsym() and the linker find: a trie of names (mach-o/loader.h, dyld_info_command)."""
    size, at = uleb(trie, at)
    names = {prefix} if size else set()
    at += size
    children, at = trie[at], at + 1
    for _ in range(children):
        part = text(trie, at)
        child, at = uleb(trie, at + len(part) + 1)
        names |= read_exports(trie, child, prefix + part)
    return names


def read_imports(image: bytes, at: int, found: MachO) -> None:
    first, count, strings = struct.unpack_from("<3I", image, at + 8)
    for number in range(count):
        where, kind, _, description, _ = struct.unpack_from("<IBBHQ", image, first + 16 * number)
        if kind & N_STAB or not kind & N_EXT:
            continue
        name = text(image, strings + where)
        if not kind & N_TYPE:
            ordinal = description >> 8
            found.imported[name] = UNNAMED.get(ordinal) or found.loads[ordinal - 1]


def read(path: pathlib.Path) -> MachO:
    image = path.read_bytes()
    if len(image) < 32 or struct.unpack_from("<I", image)[0] != MAGIC_64:
        raise Damaged(f"{path} is no 64-bit Mach-O file")
    _, cpu, _, kind, commands = struct.unpack_from("<5I", image)
    found = MachO(cpu=CPUS.get(cpu, hex(cpu)), kind=KINDS.get(kind, hex(kind)))
    at, symbols = 32, 0
    for _ in range(commands):
        command, size = struct.unpack_from("<2I", image, at)
        if command == LC_ID_DYLIB or command in LC_LOADS:
            name = text(image, at + struct.unpack_from("<I", image, at + 8)[0])
            if command == LC_ID_DYLIB:
                found.install_name = name
            else:
                found.loads.append(name)
        elif command == LC_BUILD_VERSION:
            found.platform, oldest = struct.unpack_from("<2I", image, at + 8)
            found.oldest = f"{oldest >> 16}.{oldest >> 8 & 255}"
        elif command == LC_SYMTAB:
            symbols = at
        elif command in LC_DYLD_INFO or command == LC_DYLD_EXPORTS_TRIE:
            start, length = struct.unpack_from("<2I", image, at + (8 if command == LC_DYLD_EXPORTS_TRIE else 40))
            if length:
                found.exported |= read_exports(image[start:start + length])
        at += size
    if symbols:
        read_imports(image, symbols, found)
    return found
