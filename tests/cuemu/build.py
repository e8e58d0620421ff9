"""Compiles the emulator once and kernel sources as they come; the results are kept in the user's cache directory."""

import contextlib
import ctypes
import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
#: The most dynamic shared memory that any architecture grants a block.
MOST_DYNAMIC = 227 * 1024
_WARN = ("-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-unused-parameter")
_COMMON = ("-std=c++17", "-fPIC", "-shared", f"-I{HERE / 'include'}")
# Without the first two, templates of different modules would share their function-local shared memory. GCC does
# not see that a thread reads only the vectors that it filled.
_KERNEL = ("-fno-gnu-unique", "-fvisibility=hidden", "-ffp-contract=off", "-fno-strict-aliasing")
_KERNEL += ("-Wno-uninitialized", "-Wno-maybe-uninitialized")
# addr2line of binutils 2.40 takes file names of DWARF 5 from the wrong place.
_KERNEL += ("-g1", "-gdwarf-4")
_PLAIN = ("-O1",)  # what -O2 saves in running it costs twice in compiling
# With SRA, GCC splits a 16-byte load into scalars, and nobody sees that it was misaligned. The instrumented
# object is linked without the flag: the hooks are the emulator's own.
_CHECKED = ("-O1", "-fno-tree-sra", "-fsanitize=thread")


class CompileError(Exception):
    """What the compiler said."""


@cache
def cache_folder() -> Path:
    """Return where compiled modules are kept; those that nobody used for a fortnight are removed."""
    base = os.environ.get("XDG_CACHE_HOME") or (Path.home() / ".cache")
    folder = Path(base) / "normlab" / "cuemu"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"normlab-cuemu-{os.getuid()}"
        folder.mkdir(exist_ok=True)
    for path in (*folder.glob("*.so"), *folder.glob("*.gch")):
        with contextlib.suppress(FileNotFoundError):  # another process may be cleaning up too
            if path.stat().st_mtime < time.time() - 14 * 86400:
                path.unlink()
    return folder


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


@cache
def _shim_text(pattern: str) -> str:
    return "\0".join(path.read_text() for path in sorted(HERE.glob(pattern)))


@cache
def _compiler_version() -> str:
    return subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def _run(command: Iterable[str]) -> None:
    done = subprocess.run(list(command), capture_output=True, text=True)
    if done.returncode:
        raise CompileError(done.stderr[:6000])


def _built(name: str, commands: Iterable[list[str]], text: str = "", suffix: str = ".so") -> Path:
    """Run ``commands``, in which @ is a path without suffix, on ``text`` in @.cpp; they leave @.so for the cache."""
    target = cache_folder() / f"{name}{suffix}"
    if target.exists():
        os.utime(target)
        return target
    with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        Path(folder, "module.cpp").write_text(text)
        for command in commands:
            _run(word.replace("@", f"{folder}/module") for word in command)
        os.replace(f"{folder}/module.so", target)
    return target


@cache
def engine() -> ctypes.CDLL:
    """Return the emulator. CUEMU_PORTABLE in the environment: as on machines other than x86-64."""
    flags = [*_WARN, *_COMMON, "-O2", *(["-DCUEMU_PORTABLE"] if "CUEMU_PORTABLE" in os.environ else [])]
    sources = [str(path) for path in sorted(HERE.glob("*.cpp"))]
    name = _digest(*flags, _shim_text("*.cpp"), _shim_text("*.h"), _shim_text("include/*"), _compiler_version())
    path = _built(f"engine-{name}", [["g++", *flags, *sources, "-o", "@.so"]])
    # Kernel modules find the emulator's functions in it by name.
    library = ctypes.CDLL(str(path), mode=os.RTLD_GLOBAL)
    library.cuemu_error.restype = ctypes.c_char_p
    return library


@cache
def module(source: str, symbols: tuple[str, ...], checked: bool) -> ctypes.CDLL:
    """Compile ``source``, which defines the kernels ``symbols``, for the emulator.

    Raises:
        CompileError: g++ refuses it.
    """
    engine()
    entries = "".join(f"CUEMU_ENTRY({symbol})\n" for symbol in symbols)
    text = f'#include "cuemu.h"\n{source}\n#define CUEMU_MOST_DYNAMIC {MOST_DYNAMIC}\n#include "tail.h"\n{entries}'
    flags = (*_WARN, *_COMMON[:2], f"-I{HERE / 'include'}", f"-I{HERE}", *_KERNEL, *(_CHECKED if checked else _PLAIN))
    name = _digest(text, *flags, _shim_text("include/*"), _shim_text("tail.h"), _compiler_version())
    commands = [["g++", *flags, *_parsed(flags), "-c", "@.cpp", "-o", "@.o"], ["g++", "-shared", "@.o", "-o", "@.so"]]
    library = ctypes.CDLL(str(_built(name, commands, text)))
    library.cuemu_dynamic.restype = ctypes.c_void_p
    return library


@cache
def _parsed(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Return the flags that include the emulator's header as g++ parsed it once for all modules."""
    text = "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n#include <cuemu.h>\n"
    name = _digest("header", *flags, _shim_text("include/*"), _compiler_version())
    path = _built(name, [["g++", *flags, "-x", "c++-header", "@.cpp", "-o", "@.so"]], text, ".h.gch")
    return "-include", str(path.with_suffix(""))


@cache
def line_of(place: str) -> str:
    """Return file and line of ``path+0xoffset``: the innermost one outside of the emulator's own headers."""
    path, _, offset = place.rpartition("+")
    command = ["addr2line", "-i", "-e", path, offset]
    found = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    outside = [line for line in found if "cuemu" not in Path(line.split(":")[0]).name] or found or [place]
    return Path(outside[0].split(" ")[0]).name
