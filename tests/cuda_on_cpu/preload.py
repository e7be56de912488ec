"""Chooses the CUDA driver of a test run: a real GPU's where there is one, else ours, loaded before PyCUDA asks for it.

``$ALPHA_TEST_DRIVER`` is empty, ``emulated`` (ours even beside a GPU) or ``real`` (never ours).
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from functools import cache

from tests.cuda_on_cpu import build


def real_gpu() -> bool:
    """Whether NVIDIA's driver is here and has a device."""
    # In a process of its own: a driver without a device, once loaded, would be in the way of ours.
    ask = (
        "import ctypes, sys; cuda = ctypes.CDLL('libcuda.so.1'); count = ctypes.c_int(); "
        "sys.exit(cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0)"
    )
    return subprocess.run([sys.executable, "-c", ask], capture_output=True, check=False).returncode == 0


@cache
def load() -> str | None:
    """Makes ``import pycuda.driver`` work in this process; the reason where it cannot, for tests to skip with."""
    choice = os.environ.get("ALPHA_TEST_DRIVER", "")
    if choice not in ("", "emulated", "real"):
        return f'expected ALPHA_TEST_DRIVER to be empty, "emulated" or "real", got {choice!r}'
    if choice != "emulated" and real_gpu():
        return None if build.has_pycuda() else "no pycuda"
    if choice == "real":
        return "no GPU"
    if not build.has_pycuda():
        return "no pycuda: python -m tests.cuda_on_cpu.build"
    try:
        path = build.driver()
    except (build.NotBuilt, OSError) as error:
        return str(error)
    ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    os.environ["ALPHA_NVCC"] = str(build.HERE / "nvcc")
    return None


@cache
def emulated() -> ctypes.CDLL | None:
    """Our driver, for its ``alpha_test_*`` functions; None where the driver is real or there is none."""
    if load() is not None:
        return None
    library = ctypes.CDLL("libcuda.so.1")
    if not hasattr(library, "alpha_test_last_error"):
        return None
    library.alpha_test_last_error.restype = ctypes.c_char_p
    library.alpha_test_counter.restype = ctypes.c_longlong
    library.alpha_test_block_taken.argtypes = [ctypes.c_uint64, ctypes.c_size_t, ctypes.c_size_t]
    library.alpha_test_block_returned.argtypes = [ctypes.c_uint64]
    return library
