"""From CUDA source to cubin: NVRTC or nvcc for the device's architecture, kept on disk by content.

The key of a cubin covers the source with every header it includes, its macros, the options, the architecture and the
compiler's version, so that a changed kernel is a new file and an old one is never wrong. Files are written whole or not
at all, and carry a checksum; any number of processes may share the folder.

``$ALPHA_CUBINS`` names a folder of cubins made ahead, on any machine, by ``python -m alpha.cu32.build sm_90 --out
DIR``. They are taken before any other where they are made from exactly these sources, options and architecture: by
this machine's version of the compiler if there is one, else by any, so that no compiler is needed; but by that of
``$ALPHA_NVCC`` alone where that names a compiler. Nothing is written into that folder.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import glob
import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from alpha import cache as disk
from alpha.errors import EngineError

_log = logging.getLogger(__name__)

KIND = "cu32"
"""The folder in the cache."""

KERNELS = Path(__file__).parent / "kernels"
OPTIONS = ("-std=c++17", "-lineinfo")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
OLDEST = (7, 5)
"""The oldest compute capability that CUDA 13 compiles for; an older toolkit takes older ones."""


USER = "user"
"""The name of sources that are not the engine's own."""


class Source:
    """A file of ``kernels/`` with the macros it is compiled with, or a text: the user's, or that of a program's kernel.

    ``Source("losses", T="float")`` is ``kernels/losses.cu`` compiled with ``-DT=float``; asked for again it is the same
    object, so that the launches, which look kernels up by it, compare no texts.
    """

    __slots__ = ("defines", "name", "text")
    name: str
    defines: tuple[tuple[str, str], ...]
    text: str | None

    def __new__(cls, name: str, text: str | None = None, **defines: str | int) -> Source:
        given = (name, text, *defines.items())
        found = _sources.get(given)
        if found is None:
            macros = tuple(sorted((key, _macro(value)) for key, value in defines.items()))
            made = super().__new__(cls)
            made.name, made.text, made.defines = name, text, macros
            found = _sources[given] = _sources.setdefault((name, text, macros), made)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return _source_of, (self.name, self.text, self.defines)

    def __str__(self) -> str:
        macros = ", ".join(f"{key}={value}" for key, value in self.defines)
        return f"{self.name}.cu{f' ({macros})' if macros else ''}"

    @property
    def code(self) -> str:
        """The source text, before its includes."""
        return self.text if self.text is not None else (KERNELS / f"{self.name}.cu").read_text("utf-8")

    @property
    def file(self) -> str:
        """The name that the compiler's messages and debuggers show."""
        return f"{self.name}.cu" if self.text is not None else str(KERNELS / f"{self.name}.cu")

    @property
    def flags(self) -> list[str]:
        """Macros as options."""
        return [f"-D{key}={value}" for key, value in self.defines]


_sources: dict[tuple[Any, ...], Source] = {}


def _macro(value: str | int) -> str:
    return str(int(value)) if isinstance(value, int) else value  # True is 1, and found under the same key


def _source_of(name: str, text: str | None, defines: tuple[tuple[str, str], ...]) -> Source:
    return Source(name, text, **dict(defines))


class Compiler(ABC):
    """Something that makes cubins."""

    version: str

    @abstractmethod
    def compile(self, source: Source, architecture: str) -> bytes:
        """The cubin; EngineError with the compiler's messages where the source is wrong."""


class Nvcc(Compiler):
    """The toolkit's command."""

    def __init__(self, command: str) -> None:
        self.command = command
        try:
            asked = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            raise EngineError(
                f"[cu32] expected nvcc to tell its version, got: {error}: set ALPHA_NVCC or CUDA_HOME to one that works"
            ) from error
        self.version = f"nvcc {asked.stdout.strip()}"

    def compile(self, source: Source, architecture: str) -> bytes:
        return self.run(source, architecture)[0]

    def run(self, source: Source, architecture: str, *more: str) -> tuple[bytes, str]:
        """The cubin, made with more options, and what the command printed."""
        try:
            with tempfile.TemporaryDirectory() as folder:
                return self._run_in(Path(folder), source, architecture, *more)
        except OSError as error:
            raise EngineError(
                f"[cu32] expected {self.command} and a temporary folder for what it makes, got: {error}: set TMPDIR to "
                "a folder that can be written, or install NVRTC, which needs none (pip install nvidia-cuda-nvrtc)"
            ) from error

    def _run_in(self, folder: Path, source: Source, architecture: str, *more: str) -> tuple[bytes, str]:
        file = Path(source.file)
        if source.text is not None:
            file = folder / source.file
            file.write_text(source.text, "utf-8")
        out = folder / "kernel.cubin"
        options = [*OPTIONS, f"-arch={architecture}", f"-I{KERNELS}", *source.flags, *more]
        command = [self.command, "-cubin", *options, "-o", str(out), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode != 0:
            raise _compile_error(source, architecture, done.stdout + done.stderr)
        return out.read_bytes(), done.stdout + done.stderr


class Nvrtc(Compiler):
    """The run-time compiler's library: no process, no temporary file, three times faster than nvcc."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        major, minor = ctypes.c_int(), ctypes.c_int()
        library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = f"nvrtc {major.value}.{minor.value}"

    def compile(self, source: Source, architecture: str) -> bytes:
        program = ctypes.c_void_p()
        self._check(
            self.library.nvrtcCreateProgram(
                ctypes.byref(program), source.code.encode(), source.file.encode(), 0, None, None
            )
        )
        try:
            options = [*OPTIONS, f"-arch={architecture}", f"-I{KERNELS}", *source.flags]
            array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            if self.library.nvrtcCompileProgram(program, len(options), array) != 0:
                messages = self._output(program, "ProgramLog").decode(errors="replace")
                raise _compile_error(source, architecture, messages)
            return self._output(program, "CUBIN")
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))

    def _output(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self.library, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw.rstrip(b"\0") if what == "ProgramLog" else buffer.raw

    def _check(self, result: int) -> None:
        if result != 0:
            self.library.nvrtcGetErrorString.restype = ctypes.c_char_p
            text = self.library.nvrtcGetErrorString(result).decode()
            raise EngineError(f"[cu32] expected NVRTC to answer, got {text} from {self.version}")


def _compile_error(source: Source, architecture: str, messages: str) -> EngineError:
    return EngineError(f"[cu32] expected {source} to compile for {architecture}, got:\n{messages.strip()}")


def toolkits() -> list[Path]:
    """Folders that hold a toolkit, the best first: named by the environment, from PyPI, installed."""
    named = [Path(os.environ[key]) for key in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(key)]
    packaged = [
        Path(found)
        for path in sys.path
        for pattern in ("cu[0-9]*", "cuda_nvrtc")
        for found in sorted(glob.glob(f"{path}/nvidia/{pattern}"), reverse=True)
    ]
    return [*named, *packaged, Path("/usr/local/cuda"), *sorted(Path("/usr/local").glob("cuda-*"), reverse=True)]


def _nvrtc_files() -> Iterator[str]:
    for root in toolkits():
        for folder in ("lib64", "lib", "bin", "lib/x64"):
            for pattern in ("libnvrtc.so*", "nvrtc64_*.dll"):
                found = sorted(glob.glob(str(root / folder / pattern)), reverse=True)
                yield from (file for file in found if "builtins" not in file and ".alt." not in file)
    known = ctypes.util.find_library("nvrtc")  # last: it runs a process
    if known:
        yield known


def _load_nvrtc() -> ctypes.CDLL | None:
    for file in _nvrtc_files():
        try:
            # NVRTC opens its builtins by bare name, which is found only where it is loaded already.
            for builtins in glob.glob(str(Path(file).parent / "libnvrtc-builtins.so.*")):
                ctypes.CDLL(builtins)
            return ctypes.CDLL(file)
        except OSError:
            continue
    return None


def nvccs() -> list[str]:
    """The toolkits' commands, the best first."""
    in_toolkits = [str(root / "bin" / "nvcc") for root in toolkits()]
    return [found for found in [*map(shutil.which, in_toolkits), shutil.which("nvcc")] if found]


def _find_nvcc() -> str | None:
    return next(iter(nvccs()), None)


@cache
def compiler() -> Compiler:
    """This process's compiler: ``$ALPHA_NVCC``, else NVRTC, else nvcc; EngineError where there is none."""
    chosen = os.environ.get("ALPHA_NVCC")
    if chosen:
        return Nvcc(chosen)
    library = _load_nvrtc()
    if library is not None:
        return Nvrtc(library)
    command = _find_nvcc()
    if command is not None:
        return Nvcc(command)
    raise EngineError(
        "[cu32] expected a CUDA compiler, got neither NVRTC nor nvcc: pip install nvidia-cuda-nvrtc, or install the "
        "CUDA toolkit and set CUDA_HOME to its folder"
    )


@cache
def _headers(code: str) -> bytes:
    """A digest of the headers beside the kernels that a text includes, and of those that they include."""
    digest, found, left = hashlib.sha256(), set[str](), INCLUDE.findall(code)
    while left:
        name = left.pop(0)
        header = KERNELS / name
        if name not in found and header.is_file():
            found.add(name)
            text = header.read_text("utf-8")
            digest.update(f"{name}\0{text}\0".encode())
            left += INCLUDE.findall(text)
    return digest.digest()


def content_key(source: Source, architecture: str, version: str) -> str:
    """A file name that covers all that decides what a compiler of this version makes of the source."""
    return f"{_source_key(source, architecture)}-{hashlib.sha256(version.encode()).hexdigest()[:12]}"


def _source_key(source: Source, architecture: str) -> str:
    """The part of a file's name that is the same for every compiler."""
    digest = hashlib.sha256(_headers(source.code))
    for part in (architecture, *OPTIONS, *source.flags, source.code):
        digest.update(part.encode() + b"\0")
    return f"{source.name}-{architecture}-{digest.hexdigest()[:20]}"


def cubin_name(source: Source, architecture: str) -> str:
    """The file name of a cubin that this process's compiler makes."""
    return f"{content_key(source, architecture, compiler().version)}.cubin"


def cubin_path(source: Source, architecture: str) -> Path:
    """Where a cubin is, or will be, kept."""
    return disk.directory(KIND) / cubin_name(source, architecture)


def cubin(source: Source, architecture: str) -> bytes:
    """What this process's compiler makes of the source, from disk where it was made before.

    EngineError where there is no compiler, or the source is wrong.
    """
    try:
        name = cubin_name(source, architecture)
    except EngineError as error:
        if not os.environ.get("ALPHA_CUBINS"):
            raise
        folder = os.environ["ALPHA_CUBINS"]
        raise EngineError(
            f"[cu32] expected a cubin of {source} for {architecture} in {folder} (ALPHA_CUBINS), or a CUDA compiler, "
            f"got neither: python -m alpha.cu32.build {architecture} --out DIR makes it from these sources where there "
            "is a compiler"
        ) from error
    content = disk.load(KIND, name)
    if content is None:
        content = compiler().compile(source, architecture)
        _headers.cache_clear()
        if cubin_name(source, architecture) == name:  # no file was changed since this process first read it
            disk.keep(KIND, name, content)
    return content


# -- made ahead ------------------------------------------------------------------------------------------------------


def made_ahead(source: Source, architecture: str) -> bytes | None:
    """A cubin of exactly this source from ``$ALPHA_CUBINS``; None where there is none that is whole."""
    folder = os.environ.get("ALPHA_CUBINS")
    if not folder:
        return None
    for path in _ahead_paths(Path(folder), source, architecture):
        try:
            return disk.read(path)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                _log.warning("[cu32] expected to read %s (ALPHA_CUBINS), got: %s", path, error)
        except disk.DamagedFile as error:
            _log.warning("[cu32] expected a cubin as it was made ahead (ALPHA_CUBINS), got: %s", error)
    return None


def _ahead_paths(folder: Path, source: Source, architecture: str) -> Iterator[Path]:
    """Where a cubin made ahead may be, the best first."""
    version = _version()
    if version is not None:
        yield folder / f"{content_key(source, architecture, version)}.cubin"
    if not os.environ.get("ALPHA_NVCC"):
        with suppress(OSError):
            yield from sorted(folder.glob(f"{glob.escape(_source_key(source, architecture))}-*.cubin"))


_without_compiler = False


def _version() -> str | None:
    """The version of this process's compiler, None where there is none; EngineError where one is named and fails."""
    global _without_compiler
    if _without_compiler and not os.environ.get("ALPHA_NVCC"):  # to look for one again takes a process each time
        return None
    try:
        return compiler().version
    except EngineError:
        if os.environ.get("ALPHA_NVCC"):
            raise
        _without_compiler = True
        return None


def can_compile() -> bool:
    """Whether this process has a compiler."""
    return _version() is not None


def check_compiler() -> None:
    """EngineError where kernels can neither be compiled nor be looked for among those made ahead."""
    folder = os.environ.get("ALPHA_CUBINS")
    if folder and not Path(folder).is_dir():
        _log.warning("[cu32] expected ALPHA_CUBINS to name a folder of cubins, got %s, which is none", folder)
    elif folder and not can_compile():
        return
    compiler()


@cache
def note_refused(reason: str) -> None:
    """Says, once, that the driver does not take what was made ahead, and so all is compiled here."""
    _log.warning("[cu32] expected the driver to take the cubins in ALPHA_CUBINS, got: %s: compiling here", reason)


def makers() -> str:
    """Where this process's cubins are from, for messages."""
    version, folder = _version(), os.environ.get("ALPHA_CUBINS")
    made = [f"compiled by {version.splitlines()[-1]}"] if version else []
    return " or ".join([*([f"made ahead in {folder} (ALPHA_CUBINS)"] if folder else []), *made])
