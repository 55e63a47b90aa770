# SPDX-License-Identifier: Apache-2.0
"""Builds the C library with meson and puts it, its helper programs and its schemas into the package, as orch/_lib.

Nothing is written into the source tree. With `--config-settings=--build-option=--system-library` the package holds
Python alone and uses the liborch that the system's loader finds.
"""
import atexit
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist
from setuptools.errors import SetupError

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = "liborch.0.dylib" if sys.platform == "darwin" else "liborch.so.0"
# Of the tree: what a build of the library alone needs.
SOURCES = ["meson.build", "meson_options.txt", "COPYING", "include", "lib", "man", "schemas", "scripts"]
NEEDED = ("scripts/deps in the source tree installs what it needs on Debian; "
          "--config-settings=--build-option=--system-library uses a liborch that is installed already")


def source_tree() -> pathlib.Path:
    """The tree around this folder, or its copy in a source distribution."""
    for folder in (HERE / "liborch", HERE.parent.parent):
        project = folder / "meson.build"
        if project.is_file() and re.match(r"project\('liborch'", project.read_text()):
            return folder
    raise SetupError(f"the sources of liborch are neither in {HERE / 'liborch'} nor in {HERE.parent.parent}")


def tool(name: str) -> str:
    found = shutil.which(name)
    if not found:
        raise SetupError(f"liborch is built with {name}, and there is none on PATH. {NEEDED}")
    return found


def run(what: str, *command: str) -> None:
    # What pip sets so that the build sees its isolated folder alone would hide meson's own modules from it.
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONNOUSERSITE")}
    print("+", *command, flush=True)
    code = subprocess.run(command, env=env, stdin=subprocess.DEVNULL).returncode
    if code != 0:
        raise SetupError(f"{what} failed with status {code}, its messages are above. {NEEDED}")


def build_library(target: pathlib.Path) -> None:
    meson, tree = tool("meson"), source_tree()
    tool("ninja")
    with tempfile.TemporaryDirectory(prefix="liborch-build-") as folder:
        build, root = os.path.join(folder, "build"), pathlib.Path(folder, "root")
        run("configuring liborch", meson, "setup", build, str(tree), "-Dexamples=disabled", "-Dtests=disabled",
            "-Dwerror=false", "--prefix=/usr", "--libdir=lib", "--libexecdir=libexec", "--datadir=share")
        run("compiling liborch", meson, "compile", "-C", build)
        run("installing liborch", meson, "install", "-C", build, "--no-rebuild", "--quiet", "--strip",
            "--destdir", str(root))
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        # Beside each other: there the library finds them. A wheel holds no symbolic links.
        shutil.copy(root / "usr/lib" / LIBRARY, target)
        for program in ("orch-reaper", "orch-mini"):
            shutil.copy(root / "usr/libexec/liborch" / program, target)
        shutil.copytree(root / "usr/share/liborch/schemas", target / "schemas")
        shutil.copy(tree / "COPYING", target)


class BuildPackage(build_py):
    """build_py, then the library. An editable installation uses the tree's own build folder instead."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode and not self.distribution.get_command_obj("bdist_wheel").system_library:
            build_library(pathlib.Path(self.build_lib).resolve() / "orch" / "_lib")


class BuildWheel(bdist_wheel):
    """A wheel for any Python 3, and for this platform if it holds the library."""

    user_options = bdist_wheel.user_options + [
        ("system-library", None, "leave the library out and use the system's")]
    boolean_options = bdist_wheel.boolean_options + ["system-library"]

    def initialize_options(self) -> None:
        super().initialize_options()
        self.system_library = False

    def finalize_options(self) -> None:
        # The library is no extension module, but as one it makes the wheel a platform's.
        self.distribution.has_ext_modules = lambda: not self.system_library
        super().finalize_options()

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class SourceDistribution(sdist):
    """With the sources of the library, so that it can be built from it alone."""

    def make_release_tree(self, base_dir, files) -> None:
        super().make_release_tree(base_dir, files)
        tree = source_tree()
        for name in SOURCES:
            source, target = tree / name, pathlib.Path(base_dir, "liborch", name)
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.parent.mkdir(exist_ok=True)
                shutil.copy(source, target)


scratch = tempfile.mkdtemp(prefix="liborch-python-")
atexit.register(shutil.rmtree, scratch, ignore_errors=True)
setup(
    license="Apache-2.0",
    cmdclass={"build_py": BuildPackage, "bdist_wheel": BuildWheel, "sdist": SourceDistribution},
    # Outside of the tree, which may be read-only.
    options={"build": {"build_base": scratch}, "egg_info": {"egg_base": scratch}},
)
