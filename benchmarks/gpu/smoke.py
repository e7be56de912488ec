"""One launch of each thing that the kernels stand on, so that what does not work on a device is known in seconds.

A child of ``make gpu-tests``: it answers as each check begins and ends, for one may lose the context, or never end.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.serving import Channel

Check = Callable[[Any], None]
CHECKS: dict[str, Check] = {}
"""By name, in order."""

_COUNT = 1 << 12

_VECTORS = """
#include "common.cuh"
extern "C" __global__ void vectors(const vec4<float>* x, vec4<float>* y, int64 n) {
    GRID_STRIDE(i, n) {
        vec4<float> v = x[i];
        y[i] = vec4<float>{v.w, v.z, v.y, v.x};
    }
}
"""

_ASYNC = """
#include "common.cuh"
#include "ptx.cuh"
extern "C" __global__ void staged(const float* x, float* y) {
    __shared__ __align__(16) float stage[1024];
    int first = 4 * threadIdx.x;
    cp_async16(stage + first, x + blockIdx.x * 1024 + first);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    for (int i = 0; i < 4; ++i) y[blockIdx.x * 1024 + first + i] = stage[1023 - first - i];
}
"""

_MMA = """
#include "common.cuh"
#include "ptx.cuh"
extern "C" __global__ void multiply(const float* a, const float* b, float* d) {
    int group = threadIdx.x / 4, member = threadIdx.x % 4;
    unsigned left[4], right[2];
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int i = 0; i < 4; ++i) left[i] = to_tf32(a[(group + 8 * (i % 2)) * 8 + member + 4 * (i / 2)]);
    for (int i = 0; i < 2; ++i) right[i] = to_tf32(b[(member + 4 * i) * 8 + group]);
    mma_tf32_m16n8k8(sums, left, right);
    for (int i = 0; i < 4; ++i) d[(group + 8 * (i / 2)) * 8 + 2 * member + i % 2] = sums[i];
}
"""

_SHARED = """
#include "common.cuh"
extern "C" __global__ void turned(const float* x, float* y, int64 n) {
    extern __shared__ float held[];
    for (int64 i = threadIdx.x; i < n; i += blockDim.x) held[i] = x[i];
    __syncthreads();
    for (int64 i = threadIdx.x; i < n; i += blockDim.x) y[i] = held[n - 1 - i];
}
"""

_LAST_BLOCK = """
#include "common.cuh"
extern "C" __global__ void last_block(const float* x, float* parts, int* counter, float* out) {
    __shared__ bool last;
    float sum = warp_sum(x[thread_index()]);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(counter, 1) == (int)gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    float total = 0.0f;
    for (int i = threadIdx.x; i < (int)gridDim.x; i += WARP) total += ((volatile float*)parts)[i];
    total = warp_sum(total);
    if (threadIdx.x == 0) *out = total;
}
"""


TEXTS = (_VECTORS, _ASYNC, _MMA, _SHARED, _LAST_BLOCK)
"""All that is compiled when the checks run."""


def check(function: Check) -> Check:
    """Enters a check under its name in words."""
    CHECKS[function.__name__.replace("_", " ")] = function
    return function


def _expect(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    if got.shape != expected.shape or not np.array_equal(got, expected):
        wrong = int((got != expected).sum()) if got.shape == expected.shape else got.size
        raise AssertionError(f"expected the exact result, got {wrong} of {expected.size} elements wrong")


def _numbers(*shape: int) -> np.ndarray[Any, Any]:
    """Small whole numbers: any order of their sums gives the same, and TF32 holds them."""
    return np.random.default_rng(7).integers(-8, 9, shape).astype(np.float32)


@check
def copies_both_ways(engine: Any) -> None:
    """To the device and back, through small and through large buffers."""
    for count in (3, _COUNT, 1 << 20):
        x = _numbers(count)
        _expect(engine.to_numpy(engine.from_numpy(x)), x)


@check
def vector_loads(engine: Any) -> None:
    """Sixteen bytes per instruction."""
    x = _numbers(_COUNT)
    y = engine.empty((_COUNT,))
    engine.kernel(_VECTORS, "vectors")(4, 128, engine.from_numpy(x), y, _COUNT // 4)
    _expect(engine.to_numpy(y), x.reshape(-1, 4)[:, ::-1].reshape(-1))


@check
def asynchronous_copies(engine: Any) -> None:
    """cp.async into shared memory."""
    x = _numbers(_COUNT)
    y = engine.empty((_COUNT,))
    engine.kernel(_ASYNC, "staged")(_COUNT // 1024, 256, engine.from_numpy(x), y)
    _expect(engine.to_numpy(y), x.reshape(-1, 1024)[:, ::-1].reshape(-1))


@check
def tensor_cores(engine: Any) -> None:
    """mma.sync in TF32."""
    a, b = _numbers(16, 8), _numbers(8, 8)
    d = engine.empty((16, 8))
    engine.kernel(_MMA, "multiply")(1, 32, engine.from_numpy(a), engine.from_numpy(b), d)
    _expect(engine.to_numpy(d), a @ b)


@check
def dynamic_shared_memory(engine: Any) -> None:
    """More than the 48 KiB that a kernel may have without asking: 60."""
    x = _numbers(60 << 8)
    y = engine.empty(x.shape)
    engine.kernel(_SHARED, "turned")(1, 256, engine.from_numpy(x), y, x.size, shared=x.nbytes)
    _expect(engine.to_numpy(y), x[::-1])


@check
def last_block_sum(engine: Any) -> None:
    """Blocks that find out which of them is the last, and sees what the others wrote."""
    x = _numbers(64 * 32)
    parts, counter, out = engine.empty((64,)), engine.from_numpy(np.zeros(1, np.int32)), engine.empty((1,))
    engine.kernel(_LAST_BLOCK, "last_block")(64, 32, engine.from_numpy(x), parts, counter, out)
    _expect(engine.to_numpy(out), x.sum(keepdims=True))


@check
def graph(engine: Any) -> None:
    """A CUDA graph, launched twice on other numbers."""
    import alpha

    step = alpha.graph(lambda x: x * 2 + 1, warmup=1)
    for scale in range(4):
        x = scale * _numbers(_COUNT)
        _expect(engine.to_numpy(step(engine.from_numpy(x))), x * 2 + 1)
    if step.captures != 1:
        raise AssertionError(f"expected one capture, got {step.captures}")


# -- what runs them ----------------------------------------------------------------------------------------------------


def _kernel_driver() -> str:
    """The version of NVIDIA's kernel module; empty where nobody tells."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        words = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            text = subprocess.run(words, capture_output=True, text=True, check=True, timeout=10).stdout
        except (OSError, subprocess.SubprocessError):
            return ""
    found = re.search(r"\b\d+\.\d+(\.\d+)?\b", text)
    return found.group() if found else ""


def _compiler() -> str:
    """The version of the CUDA compiler; why there is none, as kernels made ahead need none."""
    from alpha.cu32.compiler import compiler
    from alpha.errors import EngineError

    try:
        return compiler().version.splitlines()[-1]
    except EngineError as error:
        return f"none ({error})"


def versions() -> dict[str, Any]:
    """Device, driver, and the versions of all that stands between."""
    import pycuda
    from pycuda import driver as cuda

    from alpha.cu32 import driver

    device = driver.device(0)
    interface = cuda.get_driver_version()
    free, total = device.memory_info()
    return {
        "device": device.name,
        "driver": " ".join(filter(None, (_kernel_driver(), f"CUDA {interface // 1000}.{interface % 1000 // 10}"))),
        "versions": {
            "driver": _kernel_driver() or "none of NVIDIA's",
            "CUDA": f"{interface // 1000}.{interface % 1000 // 10}",
            "compiler": _compiler(),
            "PyCUDA": pycuda.VERSION_TEXT,
            "NumPy": np.__version__,
            "Python": sys.version.split()[0],
            "architecture": device.architecture,
            "free GiB": f"{free / (1 << 30):.1f} of {total / (1 << 30):.1f}",
        },
    }


def main() -> int:
    """Answers with the versions, or serves checks by name."""
    channel = Channel()
    if "--versions" in sys.argv:
        channel.answer(**versions())
        return 0
    import alpha

    engine = alpha.engine("cu32")
    channel.answer(checks=list(CHECKS))
    for request in channel.requests():
        try:
            CHECKS[request["check"]](engine)
            engine.synchronize()
            channel.answer(state="passed")
        except Exception as error:  # whatever it is, it is what the check found
            channel.answer(state="failed", note=f"{type(error).__name__}: {' '.join(str(error).split())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
