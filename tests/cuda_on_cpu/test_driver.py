"""The test driver itself: it computes what a GPU would, and finds faults that are planted."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cuda_on_cpu import preload

KERNELS = Path(__file__).resolve().parent / "kernels.cu"
INCLUDE = Path(__file__).resolve().parent.parent.parent / "cu32" / "kernels"
ORDERS = ("forward", "reverse", "seed:1", "seed:2")

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    """Our driver; the tests are skipped beside a real one."""
    reason = preload.load()
    found = preload.emulated()
    if found is None:
        pytest.skip(reason or "the driver is a real GPU's")
    return found


@pytest.fixture(scope="module")
def cuda(library: ctypes.CDLL) -> Any:
    """pycuda.driver with a context."""
    from pycuda import driver

    driver.init()
    context = driver.Device(0).retain_primary_context()
    context.push()
    yield driver
    context.pop()


def compile_kernels(folder: Path, check: str = "") -> bytes:
    """kernels.cu as the stand-in compiles it."""
    out = folder / f"kernels{check}.cubin"
    command = [os.environ["ALPHA_NVCC"], "-cubin", "-arch=sm_90", "-std=c++17", "-I", str(INCLUDE), "-DSCALE=2.0f"]
    environment = os.environ | {"ALPHA_EMULATOR_CHECK": check}
    done = subprocess.run(
        [*command, "-o", str(out), str(KERNELS)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return out.read_bytes()


Call = Callable[..., None]


def caller(cuda: Any, module: Any) -> Call:
    """call(kernel, format, *arguments, grid=, block=, shared=): a launch of a kernel of the module."""

    def call(name: str, kinds: str, *arguments: Any, grid: int = 1, block: int = 1, shared: int = 0) -> None:
        function = module.get_function(name)
        function.prepare(kinds)
        function.prepared_call((grid, 1), (block, 1, 1), *arguments, shared_size=shared)

    return call


@pytest.fixture(scope="module")
def call(cuda: Any, tmp_path_factory: pytest.TempPathFactory) -> Call:
    """Launches kernels of kernels.cu."""
    return caller(cuda, cuda.module_from_buffer(compile_kernels(tmp_path_factory.mktemp("kernels"))))


@pytest.fixture(scope="module")
def checked(cuda: Any, tmp_path_factory: pytest.TempPathFactory) -> Call:
    """The same compiled with every access checked."""
    return caller(cuda, cuda.module_from_buffer(compile_kernels(tmp_path_factory.mktemp("kernels"), "full")))


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest, library: ctypes.CDLL) -> Any:
    """Each order that threads may run in."""
    assert library.alpha_test_order(request.param.encode())
    yield request.param
    library.alpha_test_order(b"forward")


def upload(cuda: Any, array: Array) -> Any:
    memory = cuda.mem_alloc(array.nbytes)
    cuda.memcpy_htod(memory, array)
    return memory


def download(cuda: Any, memory: Any, count: int, dtype: Any = np.float32) -> Array:
    out = np.empty(count, dtype)
    cuda.memcpy_dtoh(out, memory)
    return out


# -- It computes what a GPU would --------------------------------------------------------------------------------------


def test_vector_add(cuda: Any, call: Call, order: str) -> None:
    a, b = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    out = cuda.mem_alloc(4000)
    call("add", "PPPq", upload(cuda, a), upload(cuda, b), out, 1000, grid=3, block=128)
    np.testing.assert_array_equal(download(cuda, out, 1000), a + 2 * b)


@pytest.mark.parametrize("block", [32, 96, 256, 1000])
def test_reduction_in_shared_memory(cuda: Any, call: Call, order: str, block: int) -> None:
    x = np.arange(5000, dtype=np.float32) % 7
    out = cuda.mem_alloc(4)
    call("total", "PPq", upload(cuda, x), out, 5000, block=block, shared=4 * block)
    assert download(cuda, out, 1)[0] == x.sum()


def test_warp_primitives(cuda: Any, call: Call, checked: Call, order: str) -> None:
    for launch in (call, checked):
        out = cuda.mem_alloc(9 * 32 * 4)
        launch("warp", "P", out, block=32)
        got = download(cuda, out, 9 * 32, np.int32).reshape(9, 32)
        lane = np.arange(32)
        np.testing.assert_array_equal(got[0], lane ^ 5)
        np.testing.assert_array_equal(got[1], np.where(lane + 3 < 32, lane + 3, lane))
        np.testing.assert_array_equal(got[2], np.where(lane >= 3, lane - 3, lane))
        np.testing.assert_array_equal(got[3], lane // 8 * 8 + 2)
        assert (got[4].view(np.uint32) == 0xAAAAAAAA).all()
        assert (got[5] == 31).all()
        assert (got[6] == lane.sum()).all()
        assert (got[7] == 16).all()  # of __syncthreads_count
        assert (got[8] == 1).all()


@pytest.mark.parametrize("with_ldmatrix", [0, 1])
def test_tensor_core_product_with_asynchronous_copies(cuda: Any, call: Call, order: str, with_ldmatrix: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((16, 64), np.float32), rng.standard_normal((64, 8), np.float32)
    out = cuda.mem_alloc(16 * 8 * 4)
    call("product", "PPPii", upload(cuda, a), upload(cuda, b), out, 64, with_ldmatrix, block=32)

    def tf32(x: Array) -> Array:
        bits = x.view(np.uint32)
        return ((bits + 0xFFF + (bits >> 13 & 1)) & 0xFFFFE000).view(np.float32).astype(np.float64)  # ties to even

    wanted = tf32(a) @ tf32(b)  # the rounding of the operands is exact here, so only float32's own errors remain
    np.testing.assert_allclose(download(cuda, out, 128).reshape(16, 8), wanted, atol=1e-5)


def test_rounded_products_are_not_fused(cuda: Any, call: Call) -> None:
    x = np.float32(1 + 2**-12)
    out = cuda.mem_alloc(8)
    call("rounded", "fP", x, out)
    exact, separate = download(cuda, out, 2)
    assert separate == np.float32(x * x) - np.float32(1)
    assert exact == np.float32(np.float64(x) * np.float64(x) - 1)
    assert exact != separate


def test_graph_capture_and_replay(cuda: Any, call: Call, library: ctypes.CDLL, tmp_path: Path) -> None:
    function = cuda.module_from_buffer(compile_kernels(tmp_path)).get_function("increment")
    function.prepare("Pq")
    stream, memory = cuda.Stream(1), cuda.mem_alloc(400)
    host = cuda.pagelocked_zeros(100, np.float32)
    handle, graph, executable = ctypes.c_void_p(stream.handle), ctypes.c_void_p(), ctypes.c_void_p()
    assert library.cuStreamBeginCapture_v2(handle, 1) == 0
    cuda.memset_d32_async(memory, 0, 100, stream)
    for _ in range(3):
        function.prepared_async_call((1, 1), (128, 1, 1), stream, memory, 100)
    cuda.memcpy_dtoh_async(host, memory, stream)
    assert library.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0
    assert library.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0)) == 0
    assert (host == 0).all()  # nothing has run
    for _ in range(2):
        assert library.cuGraphLaunch(executable, handle) == 0
    stream.synchronize()
    assert (host == 3).all()
    assert library.cuGraphExecDestroy(executable) == 0
    assert library.cuGraphDestroy(graph) == 0


def test_a_capture_is_spoiled_by_a_wait(cuda: Any, library: ctypes.CDLL) -> None:
    stream = cuda.Stream(1)
    handle, graph = ctypes.c_void_p(stream.handle), ctypes.c_void_p()
    assert library.cuStreamBeginCapture_v2(handle, 1) == 0
    with pytest.raises(cuda.Error, match="capturing"):
        stream.synchronize()
    assert library.cuStreamEndCapture(handle, ctypes.byref(graph)) == 901
    assert not graph


def test_events(cuda: Any) -> None:
    stream, first, second = cuda.Stream(), cuda.Event(), cuda.Event()
    first.record(stream)
    second.record(stream)
    second.synchronize()
    assert second.query()
    assert 0 <= second.time_since(first) < 1000


def test_counters(cuda: Any, call: Call, library: ctypes.CDLL) -> None:
    names = (b"allocations", b"launches", b"synchronisations")
    memory = cuda.mem_alloc(400)
    before = [library.alpha_test_counter(name) for name in names]
    call("increment", "Pq", memory, 100, block=32)
    assert [library.alpha_test_counter(name) - was for name, was in zip(names, before, strict=True)] == [0, 1, 0]


def test_fresh_memory_is_poison(cuda: Any) -> None:
    assert np.isnan(download(cuda, cuda.mem_alloc(40), 10)).all()


def test_deferred_streams_run_when_waited_for() -> None:
    """Work of a stream has not happened until somebody waits: a read before that sees the old."""
    program = """
from tests.cuda_on_cpu import preload
assert preload.load() is None
import numpy as np
from pycuda import driver
driver.init()
context = driver.Device(0).retain_primary_context()
context.push()
stream, memory, host = driver.Stream(1), driver.mem_alloc(4), driver.pagelocked_zeros(1, np.float32)
driver.memset_d32_async(memory, 0x3f800000, 1, stream)
driver.memcpy_dtoh_async(host, memory, stream)
before = float(host[0])
stream.synchronize()
print(before, host[0])
context.pop()
"""
    assert run(program, ALPHA_EMULATOR_STREAMS="deferred").split() == ["0.0", "1.0"]


def test_memory_is_limited_and_the_device_as_asked_for() -> None:
    program = """
from tests.cuda_on_cpu import preload
assert preload.load() is None
from pycuda import driver
driver.init()
context = driver.Device(1).retain_primary_context()
context.push()
try:
    driver.mem_alloc(2 << 20)
except driver.MemoryError:
    print(driver.Device.count(), driver.Device(1).compute_capability(), driver.mem_get_info())
context.pop()
"""
    wanted = f"2 (8, 0) ({1 << 20}, {1 << 20})"
    settings = {"MEMORY": "1M", "DEVICES": "2", "CAPABILITY": "8.0"}
    assert run(program, **{f"ALPHA_EMULATOR_{key}": value for key, value in settings.items()}).strip() == wanted


def run(program: str, **environment: str) -> str:
    """The output of a Python program with the test driver and these settings."""
    if preload.emulated() is None:
        pytest.skip(preload.load() or "the driver is a real GPU's")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parent.parent.parent,
        env=os.environ | {"ALPHA_TEST_DRIVER": "emulated"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- It finds faults that are planted ----------------------------------------------------------------------------------


def test_a_missing_barrier_shows_in_the_result(cuda: Any, call: Call, library: ctypes.CDLL) -> None:
    x = np.arange(256, dtype=np.float32)
    out, source = cuda.mem_alloc(1024), upload(cuda, x)
    for direction in (-1, 1):  # threads read what a later or an earlier one writes: either order hides one of them
        wrong = []
        for order in (b"forward", b"reverse"):
            library.alpha_test_order(order)
            call("no_barrier", "PPi", source, out, direction, block=256)
            wrong.append(not np.array_equal(download(cuda, out, 256), np.roll(x, direction)))
        library.alpha_test_order(b"forward")
        assert any(wrong)


@pytest.mark.parametrize("direction", [-1, 1])
def test_a_missing_barrier_is_a_race(cuda: Any, checked: Call, order: str, direction: int) -> None:
    source, out = upload(cuda, np.zeros(256, np.float32)), cuda.mem_alloc(1024)
    with pytest.raises(cuda.Error, match=r"kernel no_barrier.*kernels.cu:\d+: a race on shared memory.*kernels.cu:\d+"):
        checked("no_barrier", "PPi", source, out, direction, block=256)


def test_a_missing_warp_barrier_is_a_race(cuda: Any, checked: Call, order: str) -> None:
    checked("exchange", "Pi", cuda.mem_alloc(128), 1, block=32)
    with pytest.raises(cuda.Error, match="a race on shared memory"):
        checked("exchange", "Pi", cuda.mem_alloc(128), 0, block=32)


def test_blocks_that_write_the_same_race(cuda: Any, checked: Call, order: str) -> None:
    checked("same", "Pi", cuda.mem_alloc(128), 1, grid=2, block=32)  # atomically
    with pytest.raises(cuda.Error, match=r"a race on global memory.*another block"):
        checked("same", "Pi", cuda.mem_alloc(128), 0, grid=2, block=32)


def test_the_last_block_may_read_what_others_left_behind_a_fence(cuda: Any, checked: Call, order: str) -> None:
    parts, count, out = cuda.mem_alloc(16), cuda.mem_alloc(4), cuda.mem_alloc(4)
    cuda.memset_d32(count, 0, 1)
    checked("last_block", "PPP", parts, count, out, grid=4, block=32)
    assert download(cuda, out, 1)[0] == 0 + 1 + 2 + 3


@pytest.mark.parametrize("kernel", ["different_barriers", "warp_against_barrier"])
def test_a_divergent_barrier(cuda: Any, call: Call, order: str, kernel: str) -> None:
    with pytest.raises(cuda.Error, match=rf"kernel {kernel}, block \(0,0,0\).*kernels.cu:\d+"):
        call(kernel, "P", cuda.mem_alloc(256), block=64)


def test_lanes_in_different_primitives(cuda: Any, call: Call) -> None:
    with pytest.raises(cuda.Error, match="lanes of a warp meet in different places"):
        call("different_shuffles", "P", cuda.mem_alloc(128), block=32)


def test_a_write_past_the_end_is_found_without_checks(cuda: Any, call: Call) -> None:
    with pytest.raises(cuda.Error, match="a write 0 bytes past the end of the allocation of 400 bytes"):
        call("increment", "Pq", cuda.mem_alloc(400), 101, block=128)


def test_an_access_far_past_the_end_faults(cuda: Any, call: Call) -> None:
    with pytest.raises(
        cuda.Error, match=r"kernel read_at, block \(0,0,0\), thread \(0,0,0\), kernels.cu:\d+: an illegal access"
    ):
        call("read_at", "PPq", cuda.mem_alloc(400), cuda.mem_alloc(4), 1500)


@pytest.mark.parametrize("kernel, word", [("read_at", "read"), ("write_at", "write")])
def test_out_of_bounds_by_one_is_found_with_checks(cuda: Any, checked: Call, kernel: str, word: str) -> None:
    memory, other = upload(cuda, np.zeros(100, np.float32)), cuda.mem_alloc(4)
    checked(kernel, "PPq", memory, other, 99)
    with pytest.raises(cuda.Error, match=rf"kernels.cu:\d+: a {word} of 4 bytes out of bounds.*0 bytes past the end"):
        checked(kernel, "PPq", memory, other, 100)


def test_freed_memory(cuda: Any, call: Call) -> None:
    memory = cuda.mem_alloc(400)
    address = int(memory)
    memory.free()
    with pytest.raises(cuda.Error, match="of freed memory, once 400 bytes"):
        call("increment", "Pq", address, 100, block=128)


def test_host_memory_is_no_device_memory(cuda: Any, call: Call) -> None:
    with pytest.raises(cuda.Error, match="a null pointer"):
        call("increment", "Pq", 0, 100, block=128)


@pytest.mark.parametrize("index, good", [(15, True), (16, False)])
def test_an_index_past_a_shared_array(cuda: Any, call: Call, index: int, good: bool) -> None:
    if good:
        call("shared_index", "Pi", cuda.mem_alloc(64), index, block=16)
        return
    with pytest.raises(cuda.Error, match=r"kernels.cu:\d+: index 16 out of bounds of 'float \[16\]'"):
        call("shared_index", "Pi", cuda.mem_alloc(64), index, block=16)


def test_dynamic_shared_memory_that_is_too_small(cuda: Any, call: Call) -> None:
    with pytest.raises(cuda.Error, match="past the end of the 124 bytes of dynamic shared memory"):
        call("total", "PPq", upload(cuda, np.ones(32, np.float32)), cuda.mem_alloc(4), 32, block=32, shared=124)


def test_a_misaligned_vector(cuda: Any, call: Call) -> None:
    memory = upload(cuda, np.zeros(8, np.float32))
    call("vector", "PP", int(memory), int(memory) + 16)
    with pytest.raises(cuda.Error, match=r"kernels.cu:\d+: a (load|reference) of .*float4.* not aligned to 16 bytes"):
        call("vector", "PP", int(memory) + 4, int(memory) + 16)


def test_an_asynchronous_copy_read_before_the_wait(cuda: Any, call: Call) -> None:
    x = np.arange(128, dtype=np.float32)
    source, out = upload(cuda, x), cuda.mem_alloc(512)
    call("copied", "PPi", source, out, 1, block=32)
    np.testing.assert_array_equal(download(cuda, out, 128), x)
    call("copied", "PPi", source, out, 0, block=32)
    assert np.isnan(download(cuda, out, 128)).all()


def test_an_asynchronous_copy_from_a_misaligned_address(cuda: Any, call: Call) -> None:
    source = upload(cuda, np.zeros(132, np.float32))
    with pytest.raises(cuda.Error, match=r"kernels.cu:\d+: cp.async of 16 bytes.*not aligned"):
        call("copied", "PPi", int(source) + 4, cuda.mem_alloc(512), 1, block=32)


@pytest.mark.parametrize("kinds, arguments", [("Pi", (0, 100)), ("Pqi", (0, 100, 1))])
def test_arguments_of_the_wrong_size(cuda: Any, call: Call, kinds: str, arguments: tuple[int, ...]) -> None:
    with pytest.raises(cuda.Error, match="its parameters take 16 bytes, the launch gives"):
        call("increment", kinds, *arguments)


def test_launches_beyond_the_limits(cuda: Any, call: Call) -> None:
    memory = cuda.mem_alloc(400)
    for limits in ({"grid": 0}, {"block": 1025}, {"shared": (48 << 10) + 4}):
        with pytest.raises(cuda.Error, match="kernel increment, grid"):
            call("increment", "Pq", memory, 100, **limits)
    with pytest.raises(cuda.Error, match="__launch_bounds__"):
        call("bounded", "P", memory, block=65)


def test_a_division_by_zero_and_a_trap(cuda: Any, call: Call) -> None:
    memory = upload(cuda, np.zeros(4, np.int32))
    with pytest.raises(cuda.Error, match="an integer division by zero"):
        call("divide", "P", memory)
    with pytest.raises(cuda.Error, match=r"__trap\(\)"):
        call("trap", "P", memory)


def test_copies_out_of_bounds(cuda: Any) -> None:
    memory = cuda.mem_alloc(400)
    with pytest.raises(cuda.Error, match=r"404 bytes at .* run 4 bytes past the end of the allocation of 400 bytes"):
        cuda.memcpy_htod(memory, np.zeros(101, np.float32))
    with pytest.raises(cuda.Error, match="cuMemset"):
        cuda.memset_d32(int(memory) + 4, 0, 100)


def test_the_driver_works_after_a_failure(cuda: Any, call: Call) -> None:
    with pytest.raises(cuda.Error):
        call("read_at", "PPq", cuda.mem_alloc(400), cuda.mem_alloc(4), 1500)
    out = cuda.mem_alloc(4)
    call("total", "PPq", upload(cuda, np.ones(1000, np.float32)), out, 1000, block=256, shared=1024)
    assert download(cuda, out, 1)[0] == 1000


def test_a_module_of_another_architecture(cuda: Any, tmp_path: Path) -> None:
    (tmp_path / "empty.cu").write_text('extern "C" __global__ void nothing() {}')
    command = [
        os.environ["ALPHA_NVCC"],
        "-cubin",
        "-arch=sm_80",
        "-o",
        str(tmp_path / "out"),
        str(tmp_path / "empty.cu"),
    ]
    subprocess.run(command, check=True)
    with pytest.raises(cuda.Error, match="the module is for sm_80"):
        cuda.module_from_buffer((tmp_path / "out").read_bytes())
