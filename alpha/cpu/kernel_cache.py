"""Compiled kernels on disk, in place of Numba's own cache: one file per kernel and set of argument types.

Numba's cache knows a kernel by its source file's path, falls back to ``__pycache__`` and to a folder of the user's
where it may not write, and loads what it finds unchecked. Here a file's name covers all that decides the machine code,
its checksum is verified before anything is loaded from it, and there is one place: ``alpha.cache.directory("cpu")``.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import platform
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache as once
from pathlib import Path
from types import FunctionType
from typing import Any

import llvmlite
import numba
import numpy as np
from numba import config
from numba.core.compiler import CompileResult
from numba.core.registry import cpu_target
from numba.core.serialize import dumps

from alpha import cache
from alpha.cpu import ahead, compilations
from alpha.cpu.isa import ISA
from alpha.cpu.signatures import kernel_of

_log = logging.getLogger(__name__)

KIND = "cpu"
"""The folder in the cache."""

_FORMAT = "1"
"""Version of the files' format: raised when this module, which is not in the sources' digest, changes the format."""

_CPU = Path(__file__).parent
_SHARED = _CPU / "compile.py"
"""A source that every kernel's digest covers, whether the kernel imports it or not: it decides how all are compiled."""

_SETTINGS = (
    "BOUNDSCHECK",
    "DEBUGINFO_DEFAULT",
    "DEBUG_NRT",
    "DISABLE_INTEL_SVML",
    "ENABLE_PROFILING",
    "EXTEND_VARIABLE_LIFETIMES",
    "JIT_COVERAGE",
    "LLVM_REFPRUNE_FLAGS",
    "LLVM_REFPRUNE_PASS",
    "LOOP_VECTORIZE",
    "NRT_STATS",
    "OPT",
    "SLP_VECTORIZE",
    "USE_LLVMLITE_MEMORY_MANAGER",
    "USING_SVML",
)
"""Numba's settings that change the code it makes, most of them from the environment. The processor's name and features
are part of what its code generator tells of itself."""


class KernelCache:
    """The cache that Numba asks for the compiled code of one function, and hands new code to."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function: Any = function
        sources_digest(Path(self._function.__code__.co_filename))  # now: the file may change before the first use
        self._flushed = False

    @property
    def cache_path(self) -> str | None:
        """The folder, for Numba's statistics; None where there is none."""
        try:
            return str(cache.directory(KIND))
        except OSError:
            return None

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The compiled function for argument types, or None."""
        target.refresh()
        kernel = kernel_of(self._function, signature)
        if kernel is not None:
            ahead.need(kernel)
        name = None if self._flushed else self._file(signature, target.codegen())
        content = cache.load(KIND, name) if name else None
        if content is None:
            compilations.begin(self._function.__name__, kernel, name)
            content = cache.load(KIND, name) if name else None  # another process may have compiled it
        if content is None:
            return None
        try:
            return CompileResult._rebuild(target, *pickle.loads(content))
        except Exception as error:  # written by a Numba of the same version number that differs
            _log.info("%s cannot be loaded (%r): made anew", name, error)
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keeps a compiled function, where it can be."""
        name = self._file(signature, result.codegen)
        if name is None:
            path = self._function.__code__.co_filename
            cache.warn_once(f"the kernel {self._function.__name__}", f"no source that can be read in {path}")
        elif any(not lifted.can_cache for lifted in result.lifted) or result.library.has_dynamic_globals:
            _log.info("%s holds addresses of this process: not kept", self._function.__name__)
        else:
            cache.keep(KIND, name, dumps(result._reduce()))

    def flush(self) -> None:
        """Ignores what is cached, as Numba's ``recompile`` asks."""
        self._flushed = True

    def _file(self, signature: Any, codegen: Any) -> str | None:
        """The file's name, a digest of all that decides the code; None where a source cannot be read."""
        parts = [*_process(), repr(codegen.magic_tuple()), repr(signature)]
        try:
            parts += _values(self._function, set())
        except _UnknownSource:
            return None
        digest = hashlib.sha256("\0".join(parts).encode(errors="backslashreplace"))
        return f"{re.sub(r'[^0-9A-Za-z_]', '_', self._function.__name__)}-{digest.hexdigest()[:32]}.kernel"


class _UnknownSource(Exception):
    """The source of a function cannot be read."""


# -- what decides the machine code -----------------------------------------------------------------------------------


def machine() -> str:
    """A digest of what decides the code of all kernels of this process alike."""
    parts = [*_process(), repr(cpu_target.target_context.codegen().magic_tuple())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _process() -> list[str]:
    """What decides the code of all kernels of this process alike."""
    versions = (numba.__version__, llvmlite.__version__, np.__version__, sys.version, sys.implementation.cache_tag)
    system = (platform.system(), platform.machine(), getattr(sys, "abiflags", ""), sys.flags.optimize)
    settings = (f"{name}={getattr(config, name, None)!s}" for name in _SETTINGS)
    return [_FORMAT, ISA.name, *map(str, versions), *map(str, system), *settings]


def _values(function: FunctionType, seen: set[FunctionType]) -> Iterator[str]:
    """A function's code, sources and constants, and the same for each compiled function that it calls."""
    if function in seen:
        return
    seen.add(function)
    code = function.__code__
    sources = sources_digest(Path(code.co_filename))
    if sources is None:
        raise _UnknownSource
    yield f"{function.__module__}.{function.__qualname__} {function.__name__}:{code.co_firstlineno} {sources}"
    yield code.co_code.hex()
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        yield from _value(name, cell.cell_contents, seen)
    for name in code.co_names:
        if name in function.__globals__:
            yield from _value(name, function.__globals__[name], seen)


def _value(name: str, value: Any, seen: set[FunctionType]) -> Iterator[str]:
    """A global that a function uses, if it is a constant or a compiled function; anything else its source covers."""
    compiled = getattr(value, "py_func", None)
    if isinstance(compiled, FunctionType):
        yield name
        yield from _values(compiled, seen)
    elif isinstance(value, (bool, int, float, complex, str, bytes, type(None), np.generic)):
        yield f"{name}={value!r}"
    elif isinstance(value, tuple):
        for index, element in enumerate(value):
            yield from _value(f"{name}[{index}]", element, seen)


@once
def sources_digest(path: Path) -> str | None:
    """A digest of a source file and of the CPU engine's files that it imports, directly or not; None where one cannot
    be read. Files count by content and by path within the package: not by where the package lies, nor by time."""
    digest = hashlib.sha256()
    try:
        for name, source in sorted((_package_name(file), file) for file in sources(path)):
            content = _text(source)
            digest.update(f"{name}\0{len(content)}\0{content}".encode())
    except (OSError, ValueError):
        return None
    return digest.hexdigest()


def sources(path: Path) -> set[Path]:
    """A module's file and the CPU engine's files that it imports, directly or not, except this one."""
    found: set[Path] = set()
    waiting = {path, _SHARED}
    while waiting:
        source = waiting.pop()
        found.add(source)
        waiting.update(_imports(source) - found)
    return found


def _package_name(path: Path) -> str:
    return path.relative_to(_CPU).as_posix() if path.is_relative_to(_CPU) else path.name


@once
def _text(path: Path) -> str:
    return path.read_text("utf-8")


_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<module>[.\w]+)[ \t]+import[ \t]*|import[ \t]+)"
    r"(?P<names>\((?:[^()#]|\#[^\n]*)*\)|(?:[^\\\n(]|\\\r?\n)*)",
    re.MULTILINE,
)
_COMMENT = re.compile(r"#[^\n]*")


@once
def _imports(path: Path) -> frozenset[Path]:
    """The CPU engine's files that a file's import statements name, found by pattern: faster than by parsing."""
    found: set[Path] = set()
    for statement in _IMPORT.finditer(_text(path)):
        words = _COMMENT.sub("", statement["names"]).strip("()").replace("\\", " ").split(",")
        names = [word.split()[0] for word in words if word.strip()]
        if statement["module"] is None:
            found.update(file for name in names for file in _files(name, path))
            continue
        module = statement["module"] + ("" if statement["module"].endswith(".") else ".")
        for name in names:
            # A name that is no module of the package is defined in the package itself.
            found.update([*_files(module + name, path)] or _files(statement["module"], path))
    return frozenset(found - {Path(__file__)})


def _files(module: str, importer: Path) -> Iterator[Path]:
    """The file of a module or package of the CPU engine; nothing for any other."""
    name = module.lstrip(".")
    parts = name.split(".") if name else []
    if module != name:
        base = importer.parents[min(len(module) - len(name), len(importer.parents)) - 1]
    elif parts[:2] == ["alpha", "cpu"]:
        base, parts = _CPU, parts[2:]
    else:
        return
    file = base.joinpath(*parts)
    for candidate in (file.with_name(f"{file.name}.py"), file / "__init__.py"):
        if candidate.is_relative_to(_CPU) and candidate.is_file():
            yield candidate
