"""alpha.engine("cu32"): names, options, and errors that say what is missing."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import alpha
from alpha.cu32 import compiler, driver
from alpha.cu32.base import DeviceEngine
from alpha.errors import ArgumentError, EngineError


def test_names_of_one_engine(cu32: DeviceEngine) -> None:
    assert alpha.engine("cu32") is cu32 and alpha.engine("cu32:0") is cu32 and cu32.name == "cu32:0"
    assert alpha.ones(2, engine="cu32").to("cu32:0").engine is cu32
    assert alpha.ones(2, engine="cpu").cuda().engine is cu32


def test_options(cu32: DeviceEngine) -> None:
    with pytest.raises(ArgumentError, match=r"^\[engine\] expected no threads= for cu32:0, got 2"):
        alpha.engine("cu32", threads=2)
    cap = cu32.memory.cap
    try:
        assert alpha.engine("cu32", memory=cu32.memory.held + (64 << 20)).memory.cap == cu32.memory.held + (64 << 20)
    finally:
        cu32.configure(memory=cap)
    free, total = cu32.device.memory_info()
    assert 0 < free <= total and cap <= total


@pytest.mark.parametrize("name", ["cu32:", "cu32:x", "cu32:-1", "cu32:01", "cu33", "cuda:x", ""])
def test_other_names(name: str) -> None:
    with pytest.raises(
        EngineError, match=r'^\[engine\] expected "cpu", "cu32" or "cu32:" and a device\'s number, "numpy"'
    ):
        alpha.engine(name)


def test_a_device_that_is_not_there(cu32: DeviceEngine) -> None:
    with pytest.raises(EngineError, match=r"^\[cu32\] expected a device of 0\.\.\d+, got cu32:999$"):
        alpha.engine("cu32:999")


class _Error(Exception):
    """Stands for PyCUDA's."""


def pycuda(**driver_parts: Any) -> dict[str, Any]:
    """Modules that stand for PyCUDA in sys.modules."""
    part = SimpleNamespace(Error=_Error, init=lambda: None, **driver_parts)
    return {"pycuda": SimpleNamespace(driver=part), "pycuda.driver": part}


def _no_driver() -> None:
    raise _Error("cuInit failed: unknown error")


MISSING: dict[str, tuple[dict[str, Any], str]] = {
    "package": ({"pycuda": None}, r"expected the package pycuda, got: .*: pip install 'dragon-alpha\[cuda\]'"),
    "start": (pycuda(Device=None) | {"init": _no_driver}, "expected the driver to start, got: cuInit failed"),
    "device": (pycuda(Device=SimpleNamespace(count=lambda: 0)), "expected a CUDA device, got none"),
}


@pytest.mark.parametrize("case", MISSING)
def test_what_is_missing_is_said(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    modules, message = MISSING[case]
    if "init" in modules:
        modules["pycuda"].driver.init = modules["init"]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(EngineError, match=rf"^\[cu32\] {message}"):
        driver._pycuda.__wrapped__()


def test_no_driver_is_said() -> None:
    """In a process of its own, where none has been loaded."""
    program = (
        "import sys, types\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.startswith('pycuda'): raise ImportError('libcuda.so.1: cannot open shared object file')\n"
        "sys.meta_path.insert(0, Finder())\n"
        "import alpha\n"
        "assert 'alpha.cu32.driver' not in sys.modules and 'pycuda' not in sys.modules\n"
        "try: alpha.engine('cu32')\n"
        "except alpha.errors.EngineError as error: print(error)\n"
        "print(alpha.ones(2).sum().item())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "[cu32] expected NVIDIA's driver, got none" in done.stdout and "install the driver" in done.stdout
    assert done.stdout.endswith("2.0\n")  # the CPU engine needs none of it


def test_no_compiler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALPHA_NVCC", raising=False)
    monkeypatch.setattr(compiler, "_load_nvrtc", lambda: None)
    monkeypatch.setattr(compiler, "_find_nvcc", lambda: None)
    with pytest.raises(EngineError, match=r"^\[cu32\] expected a CUDA compiler, got neither NVRTC nor nvcc: pip"):
        compiler.compiler.__wrapped__()
