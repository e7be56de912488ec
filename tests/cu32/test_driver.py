"""Driver and base of the CUDA engine: launches, copies, memory, threads, graphs, and errors where one is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cu32 import driver
from alpha.cu32.base import Constants, DeviceEngine
from alpha.errors import ArgumentError, EngineError, OutOfMemoryError
from alpha.mempool import GRAIN

Array = np.ndarray[Any, Any]

SCALE = """
#include "common.cuh"
extern "C" __global__ void scale(float* a, int64 n, float by) { GRID_STRIDE(i, n) a[i] *= by; }
"""
SHARED = """
#include "common.cuh"
extern "C" __global__ void both_kinds(float* out, int64 last) {
    __shared__ float fixed[5 << 10];
    extern __shared__ float more[];
    fixed[(5 << 10) - 1] = 1;
    more[last - 1] = 2;
    out[0] = fixed[(5 << 10) - 1] + more[last - 1];
}
"""
ARGUMENTS = """
#include "common.cuh"
struct Mixed { int a; double b; };
extern "C" __global__ void arguments(double* out, int64 i, bool* none, float f, int flag, uint8 u, double d,
                                     Mixed mixed, uint64 last) {
    out[0] = i; out[1] = none == nullptr; out[2] = f; out[3] = flag; out[4] = u; out[5] = d;
    out[6] = mixed.a; out[7] = mixed.b; out[8] = last >> 32;
}
"""


def test_arguments_arrive_as_packed(cu32: DeviceEngine) -> None:
    out = cu32.from_numpy(np.zeros(9))
    mixed = np.array([(7, 0.125)], np.dtype([("a", np.int32), ("b", np.float64)], align=True)).tobytes()
    run = cu32.kernel(ARGUMENTS, "arguments")
    run(1, 1, out, -(1 << 40), None, 0.5, True, np.uint8(200), np.float64(0.1), mixed, np.uint64(3 << 32))
    np.testing.assert_array_equal(cu32.to_numpy(out), [-(2.0**40), 1, 0.5, 1, 200, 0.1, 7, 0.125, 3])


def test_arguments_that_cannot_be_packed_are_refused(cu32: DeviceEngine) -> None:
    with pytest.raises(EngineError, match="kernel arguments that can be packed"):
        cu32.kernel(SCALE, "scale")(1, 1, "text", 1, 1.0)


def test_a_users_kernel_runs_and_counts_as_a_write(cu32: DeviceEngine) -> None:
    x = alpha.tensor(np.arange(1000, dtype=np.float32), engine=cu32)
    before = x.version
    cu32.kernel(SCALE, "scale")(4, 64, x, 1000, 3.0)
    np.testing.assert_array_equal(x.numpy(), np.arange(1000) * 3)
    assert x.version == before + 1


def test_a_users_kernel_takes_tensors_of_its_engine_only(cu32: DeviceEngine) -> None:
    with pytest.raises(EngineError, match=r"\[scale\] expected tensors of one engine"):
        cu32.kernel(SCALE, "scale")(1, 1, alpha.tensor([1.0], engine="cpu"), 1, 1.0)


def test_errors_name_kernel_and_launch(cu32: DeviceEngine) -> None:
    x = cu32.from_numpy(np.ones(1, np.float32))
    with pytest.raises(
        EngineError, match=r"expected scale of user.cu to run with grid \(1, 1, 1\), block \(4096, 1, 1\)"
    ):
        cu32.kernel(SCALE, "scale")(1, 4096, x, 1, 1.0)
    with pytest.raises(EngineError, match=r"expected a kernel absent in user\.cu"):
        cu32.kernel(SCALE, "absent")
    with pytest.raises(EngineError, match="one to three extents >= 1"):
        cu32.kernel(SCALE, "scale")(0, 1, x, 1, 1.0)
    cu32.kernel(SCALE, "scale")(1, 1, x, 1, 2.0)  # none of it harmed the engine
    assert cu32.to_numpy(x)[0] == 2


@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 4), (2, 0, 3), (2, 3, 4, 5)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
def test_arrays_go_there_and_back(
    cu32: DeviceEngine, rng: np.random.Generator, shape: tuple[int, ...], dtype: str
) -> None:
    array = (rng.random(shape) * 100).astype(dtype)
    back = cu32.to_numpy(cu32.from_numpy(array))
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_memory_order_goes_there_and_back(cu32: DeviceEngine, rng: np.random.Generator) -> None:
    array = rng.random((2, 3, 4, 5)).transpose(1, 2, 0, 3)
    tensor = cu32.from_numpy(array)
    assert tensor.strides == tuple(s // 8 for s in array.strides)
    back = cu32.to_numpy(tensor)
    assert back.strides == array.strides
    np.testing.assert_array_equal(back, array)


def test_an_uploaded_array_is_free_at_once(cu32: DeviceEngine) -> None:
    for size in (100, 5_000_000):  # one pinned buffer, and several
        array = np.arange(size, dtype=np.float32)
        tensor = cu32.from_numpy(array)
        array[:] = -1
        np.testing.assert_array_equal(cu32.to_numpy(tensor), np.arange(size, dtype=np.float32))


def test_memory_of_one_thread_is_freed_on_another(cu32: DeviceEngine, recwarn: pytest.WarningsRecorder) -> None:
    """PyCUDA left it allocated, with a warning."""
    cu32.memory.release_cached()
    before = cu32.device.memory_info()[0]
    del_later = [cu32.empty((3 << 20,))]
    assert cu32.device.memory_info()[0] < before
    del_later.clear()
    thread = threading.Thread(target=cu32.memory.release_cached)
    thread.start()
    thread.join()
    assert cu32.device.memory_info()[0] == before
    assert not recwarn.list


def test_static_and_dynamic_shared_memory_beyond_48_kib_together(cu32: DeviceEngine) -> None:
    out = cu32.from_numpy(np.zeros(1, np.float32))
    run = cu32.kernel(SHARED, "both_kinds")
    for dynamic in (20 << 10, 40 << 10, 24 << 10, 64 << 10):
        run(1, 1, out, dynamic // 4, shared=dynamic)
        assert cu32.to_numpy(out)[0] == 3


def test_tables_are_kept_within_a_bound(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    table = 1000 * 8 + GRAIN
    monkeypatch.setattr(cu32, "constants", Constants(most=8 * table))
    made: list[int] = []

    def constant(key: int) -> Array:
        def make() -> Array:
            made.append(key)
            return np.full(1000, float(key))

        return cu32.to_numpy(cu32.constant(("test", key), make))

    for key in range(100):
        assert constant(key)[0] == key
        assert constant(0)[0] == 0  # used all the time: never dropped
        assert cu32.constants.held <= 8 * table
    assert made.count(0) == 1 and len(made) == 100
    assert constant(1)[-1] == 1 and made.count(1) == 2
    held = cu32.constants.held
    assert held == len(cu32.constants) * table


def test_threads_may_work_with_one_engine(cu32: DeviceEngine) -> None:
    results: list[float] = []

    def work(number: int) -> None:
        x = alpha.tensor(np.full(1000, number, np.float32), engine=cu32)
        cu32.kernel(SCALE, "scale")(4, 64, x, 1000, 2.0)
        results.append(float(x.numpy().sum()))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [0, 2000, 4000, 6000]


def test_exhaustion_says_the_figures_and_leaves_the_engine_usable(cu32: DeviceEngine) -> None:
    cap = cu32.memory.cap
    cu32.memory.release_cached()
    cu32.configure(memory=cu32.memory.held + (8 << 20))
    try:
        held = cu32.empty((1 << 20,))
        with pytest.raises(OutOfMemoryError, match=r"expected room for .* got in use .* cap"):
            cu32.empty((3 << 20,))
        del held
        assert cu32.empty((1 << 20,)).nbytes == 4 << 20
    finally:
        cu32.configure(memory=cap)


def test_threads_are_no_option_of_a_gpu(cu32: DeviceEngine) -> None:
    with pytest.raises(ArgumentError, match="expected no threads="):
        cu32.configure(threads=2)


def test_a_graph_replays_what_was_captured(cu32: DeviceEngine) -> None:
    x = cu32.from_numpy(np.ones(10, np.float32))
    run = cu32.kernel(SCALE, "scale")
    graph = driver.Graph(cu32.device)
    with graph:
        run(1, 32, x, 10, 2.0)
    assert cu32.to_numpy(x)[0] == 1  # captured, not run
    graph.launch()
    graph.launch()
    np.testing.assert_array_equal(cu32.to_numpy(x), np.full(10, 4))


def test_a_capture_given_up_leaves_the_stream_usable(cu32: DeviceEngine) -> None:
    x = cu32.from_numpy(np.ones(10, np.float32))
    run = cu32.kernel(SCALE, "scale")
    graph = driver.Graph(cu32.device)
    with pytest.raises(ZeroDivisionError), graph:
        run(1, 32, x, 10, 2.0)
        raise ZeroDivisionError
    with pytest.raises(EngineError, match="expected a captured graph"):
        graph.launch()
    run(1, 32, x, 10, 3.0)
    assert cu32.to_numpy(x)[0] == 3


def test_events_measure(cu32: DeviceEngine) -> None:
    first = cu32.device.event().record()
    second = cu32.device.event().record()
    assert second.seconds_since(first) >= 0
    assert first.done()


def python(code: str) -> str:
    """What a fresh process prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout


def test_importing_alpha_needs_no_cuda() -> None:
    assert python("import sys, alpha; print([n for n in sys.modules if n.startswith(('pycuda', 'cu32'))])") == "[]\n"


def test_without_the_package_the_error_names_it() -> None:
    said = python(
        "import sys; sys.modules['pycuda'] = None\n"
        "import alpha\n"
        "try: alpha.engine('cu32')\n"
        "except alpha.errors.EngineError as error: print(error)\n"
    )
    assert "expected the package pycuda" in said
    assert "pip install 'dragon-alpha[cuda]'" in said


def test_an_engine_of_another_thread_ends_in_silence(cu32: DeviceEngine) -> None:
    """PyCUDA frees on the thread that made a context, and at the end of the process that one may be gone."""
    code = (
        "import threading\n"
        "from tests.cuda_on_cpu import preload\n"
        "assert preload.load() is None\n"
        "import alpha\n"
        "kept = []\n"
        "def work():\n"
        "    kept.append(alpha.tensor([1.0, 2.0], engine='cu32') + 1)\n"
        "thread = threading.Thread(target=work)\n"
        "thread.start()\n"
        "thread.join()\n"
        "print(kept[0].tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert (done.stdout, done.stderr) == ("[2.0, 3.0]\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_told_that_cuda_does_not_work_there(cu32: DeviceEngine) -> None:
    """At once, instead of hanging in the driver; the parent goes on."""
    x = alpha.tensor(np.ones(5, np.float32), engine=cu32)
    child = os.fork()
    if child == 0:
        status = 2
        try:
            x + x
        except EngineError as error:
            status = 0 if "child that it made by a fork" in str(error) else 3
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert ((x + x).numpy() == 2).all()
