"""Machine code of LLVM IR: compiled by LLVM alone, kept in the kernel cache, loaded into this process.

A file of the cache is known by the IR and by all that decides what LLVM makes of it, and is checked before it is
loaded (``alpha.cache``). Where nothing can be kept, each process compiles for itself.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import weakref
from collections.abc import Callable
from functools import cache as once
from typing import Any, NamedTuple, TypeVar, cast

import llvmlite
import llvmlite.binding as llvm

from alpha import cache
from alpha.cpu.forks import compilation_lock
from alpha.cpu.kernel_cache import KIND

_log = logging.getLogger(__name__)

_FORMAT = "pointwise 1"
"""What a file holds: changes with this module."""

Code = TypeVar("Code", bound="Functions")

_LOCK = compilation_lock()

_loaded_now: weakref.WeakValueDictionary[str, Functions] = weakref.WeakValueDictionary()
"""What is loaded, by the file's name: of two threads that need a loop at once neither gets one that is soon freed."""

compiled = 0
"""How many loops this process has compiled: those that it found in the cache are not among them."""


class Functions:
    """The compiled functions of a module."""

    def __init__(self, code: bytes) -> None:
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())  # keeps the code
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        self._nbytes = len(code)

    def __sizeof__(self) -> int:
        return self._nbytes

    def address(self, name: str) -> int:
        """The address of a function."""
        found: int = self._engine.get_function_address(name)
        return found


class Entries(NamedTuple):
    """The addresses of what runs a job."""

    alone: int
    """``alone(job)``, which runs all of it; with ``takes_share`` it is ``alone(0, job)``."""
    shared: int
    """``shared(share, job)``, which draws tasks, by the thread's share, until none is left."""
    takes_share: bool = False


class Loop(Functions):
    """A compiled loop.

    Attributes:
        alone: runs all of a job, given its address: ``alone(job)``.
        shared: the address of ``shared(share, job)``, which draws tasks as kernels do (``alpha.cpu.sharing``).
        entries: the addresses of both.
    """

    def __init__(self, code: bytes) -> None:
        super().__init__(code)
        self.alone = self._alone()
        self.shared = self.address("shared")
        self.entries = Entries(self.address("alone"), self.shared)

    def _alone(self) -> Any:
        function: Any = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(self.address("alone"))
        function.code = self._engine  # so that ``found().alone(job)`` runs code that is still there
        return function


def loop(ir: str) -> Loop:
    """The functions of a module of LLVM IR, "alone" and "shared"."""
    return _loaded("loop", ir, lambda: ir, Loop)


def functions(key: str, write: Callable[[], str], promoted: bool = False) -> Functions:
    """The functions of a module of LLVM IR, which is written only where none is kept under its key.

    ``promoted``: whether it has variables in memory that are to be registers.
    """
    return _loaded("promoted" if promoted else "functions", key, write, Functions)


def _loaded(name: str, key: str, write: Callable[[], str], kind: Callable[[bytes], Code]) -> Code:
    promoted = name == "promoted"
    with _LOCK:
        name = f"{name}-{_digest(key)}.kernel"
        found = _loaded_now.get(name)
        if found is None:
            found = _loaded_now[name] = _load(name, write, promoted, kind)
        return cast(Code, found)


def _load(name: str, write: Callable[[], str], promoted: bool, kind: Callable[[bytes], Code]) -> Code:
    """The functions of a file of the cache, which is written if there is none."""
    global compiled
    code = cache.load(KIND, name)
    if code is not None:
        try:
            return kind(code)
        except RuntimeError as error:  # LLVM's word for what is no object file
            _log.info("%s cannot be loaded (%r): made anew", name, error)
    code = _compiled(write(), promoted)
    compiled += kind is Loop
    made = kind(code)
    cache.keep(KIND, name, code)
    return made


def _compiled(ir: str, promoted: bool) -> bytes:
    """The IR as an object file. It is written as it is to run: LLVM only chooses instructions and registers.

    ``promoted``: variables in memory become registers first.
    """
    module, target = llvm.parse_assembly(ir), _target_machine()
    if promoted:
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
        passes.run(module, llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options()))
    code: bytes = target.emit_object(module)
    return code


def _digest(ir: str) -> str:
    parts = (_FORMAT, ir, *_target(), llvmlite.__version__, str(llvm.llvm_version_info))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@once
def _target() -> tuple[str, str, str]:
    """This machine as LLVM names it: system, processor, features."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    return llvm.get_process_triple(), llvm.get_host_cpu_name(), features.flatten()


def _target_machine() -> Any:
    triple, processor, features = _target()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=processor, features=features, opt=3, reloc="pic", codemodel="jitdefault", jit=True
    )


def pointer_to(kind: str) -> str:
    """What the LLVM in use calls a pointer to a type."""
    return "ptr" if _are_opaque() else f"{kind}*"


@once
def _are_opaque() -> bool:
    """Whether LLVM's pointers have no types, as from its version 16 on."""
    return bool(llvm.llvm_version_info[0] >= 16)
