"""Reads what the tests need to know of a 64-bit Mach-O file (Apple's mach-o/loader.h and mach-o/nlist.h)."""
import pathlib
import struct
from dataclasses import dataclass, field

MAGIC_64 = 0xFEEDFACF
CPUS = {0x01000007: "x86_64", 0x0100000C: "arm64"}
KINDS = {1: "object", 2: "program", 6: "dylib"}
LC_SYMTAB, LC_ID_DYLIB, LC_BUILD_VERSION = 0x2, 0xD, 0x32
LC_LOADS = {0xC, 0x80000018, 0x8000001F}  # LC_LOAD_DYLIB, LC_LOAD_WEAK_DYLIB, LC_REEXPORT_DYLIB
N_STAB, N_PEXT, N_TYPE, N_EXT = 0xE0, 0x10, 0x0E, 0x01
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


def read_symbols(image: bytes, at: int, found: MachO) -> None:
    first, count, strings = struct.unpack_from("<3I", image, at + 8)
    for number in range(count):
        where, kind, _, description, _ = struct.unpack_from("<IBBHQ", image, first + 16 * number)
        if kind & N_STAB or not kind & N_EXT:
            continue
        name = text(image, strings + where)
        if kind & N_TYPE:
            if not kind & N_PEXT:
                found.exported.add(name)
            continue
        ordinal = description >> 8
        bound = UNNAMED.get(ordinal) or found.loads[ordinal - 1]
        found.imported[name] = bound


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
        at += size
    if symbols:
        read_symbols(image, symbols, found)
    return found
