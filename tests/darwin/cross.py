"""
Configures and builds liborch for macOS on Linux with the project's own meson.build.

What stands in for a Mac: zig's clang, Apple's headers and list of libSystem's symbols; of the libraries that liborch
uses, the Linux headers (through a folder of links, so that glibc's own headers stay out of sight) and a .tbd file each
with the names that the Linux library exports. So a name that neither libSystem nor one of those libraries has does
not link.
"""
import os
import pathlib
import shutil
import subprocess

# name in pkg-config: (library, headers)
LIBRARIES = {
    "libev": ("ev", ["ev.h"]),
    "sqlite3": ("sqlite3", ["sqlite3.h"]),
    "jansson": ("jansson", ["jansson.h", "jansson_config.h"]),
    "libcurl": ("curl", ["curl"]),
    "libmicrohttpd": ("microhttpd", ["microhttpd.h"]),
    "libxml-2.0": ("xml2", ["libxml", "unicode"]),  # Debian's is built with ICU
    "libsodium": ("sodium", ["sodium.h", "sodium"]),
}
TARGETS = {"aarch64-macos": "arm64", "x86_64-macos": "x86_64"}
OLDEST = "13.0"  # of macOS: a call of anything younger does not compile
OTHER_PLACE = "/opt/orch-cross/lib"  # in the install names of the libraries that are only stood in for

WRAPPER = """#!/bin/sh
# "zig cc" for {target}. Meson knows Apple's linker by its banner.
export ZIG_GLOBAL_CACHE_DIR={cache} ZIG_LOCAL_CACHE_DIR={cache}
case " $* " in
*" -Wl,--version "*) echo "ld: unknown option: --version" >&2; exit 1 ;;
*" -Wl,-v "*) echo "@(#)PROGRAM:ld PROJECT:ld64-1000.0" >&2; exit 1 ;;
esac
# Neither zig's checks nor, when it links, its own runtime library belong to a build by Apple's compiler.
case " $* " in
*" -c "* | *" -E "*) set -- -fno-sanitize=undefined "$@" ;;
*) set -- -fno-sanitize=undefined -rtlib=none "$@" ;;
esac
exec {zig} cc -target {target}.{oldest} "$@"
"""

CROSS_FILE = """[binaries]
c = '{place}/cc'
ar = '{place}/ar'
pkgconfig = 'pkg-config'

[properties]
pkg_config_libdir = '{place}/pkgconfig'
needs_exe_wrapper = true

[built-in options]
c_args = ['-I{place}/include']
c_link_args = ['-L{place}/lib']

[host_machine]
system = 'darwin'
cpu_family = '{family}'
cpu = '{family}'
endian = 'little'
"""

TBD = """--- !tapi-tbd
tbd-version: 4
targets: [ x86_64-macos, arm64-macos ]
install-name: '{place}/lib{library}.dylib'
current-version: 1
exports:
  - targets: [ x86_64-macos, arm64-macos ]
    symbols: [ {symbols} ]
...
"""


class Failed(Exception):
    pass


def output_of(*command: str | pathlib.Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout.strip()


def write_script(path: pathlib.Path, content: str) -> None:
    path.write_text(content)
    path.chmod(0o755)


def library_symbols(library: str) -> list[str]:
    file = output_of("cc", f"-print-file-name=lib{library}.so")
    if "/" not in file:
        raise Failed(f"lib{library}.so is not installed")
    lines = output_of("nm", "-D", "--defined-only", file).splitlines()
    names = {line.split()[-1].split("@")[0] for line in lines if line.split()[-2] in "TDBRVWi"}
    if not names:
        raise Failed(f"{file} exports nothing")
    return sorted(names)


def header_place(header: str) -> pathlib.Path:
    multiarch = output_of("cc", "-print-multiarch")
    for folder in ("/usr/include", f"/usr/include/{multiarch}", "/usr/include/libxml2"):
        if (pathlib.Path(folder) / header).exists():
            return pathlib.Path(folder) / header
    raise Failed(f"the header {header} is not installed")


def stand_in(place: pathlib.Path, package: str, library: str, headers: list[str]) -> None:
    for header in headers:
        (place / "include" / header).symlink_to(header_place(header))
    symbols = ", ".join("_" + name for name in library_symbols(library))
    (place / "lib" / f"lib{library}.tbd").write_text(TBD.format(place=OTHER_PLACE, library=library, symbols=symbols))
    # libev has no .pc file, neither here nor there.
    if package != "libev":
        version = output_of("pkg-config", "--modversion", package)
        (place / "pkgconfig" / f"{package}.pc").write_text(
            f"Name: {package}\nDescription: {package}\nVersion: {version}\n"
            f"Libs: -L{place}/lib -l{library}\nCflags: -I{place}/include\n")


def prepare(place: pathlib.Path, zig: str, target: str) -> None:
    """The folder `place` with compiler, headers, libraries and cross file, made anew."""
    shutil.rmtree(place, ignore_errors=True)
    for folder in ("include", "lib", "pkgconfig"):
        (place / folder).mkdir(parents=True)
    cache = place.parent / "zig-cache"
    write_script(place / "cc", WRAPPER.format(zig=zig, target=target, oldest=OLDEST, cache=cache))
    write_script(place / "ar", f'#!/bin/sh\nexec {zig} ar "$@"\n')
    for package, (library, headers) in LIBRARIES.items():
        stand_in(place, package, library, headers)
    family = target.split("-", maxsplit=1)[0]
    (place / "cross.ini").write_text(CROSS_FILE.format(place=place, family=family))


def build(source: pathlib.Path, place: pathlib.Path, folder: pathlib.Path, keep_going: bool = False) -> None:
    """Every target of the project, tests left out."""
    unwanted = ("CFLAGS", "LDFLAGS", "CC", "DESTDIR")
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    if not (folder / "build.ninja").exists():
        shutil.rmtree(folder, ignore_errors=True)
        command = ["meson", "setup", folder, source, "--cross-file", place / "cross.ini", "-Dtests=disabled",
                   "-Dexamples=disabled"]
        # In `place`: zig leaves an empty file where meson asks for its version.
        done = subprocess.run(command, cwd=place, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True)
        if done.returncode:
            raise Failed(f"meson setup for {place.name}:\n{done.stdout}{done.stderr}")
    done = subprocess.run(["ninja", "-C", folder, "-j2", *(["-k0"] if keep_going else [])], env=environment,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{folder.name} does not build:\n{done.stdout}{done.stderr}")
