"""PyCUDA beside the engine: its kernels take tensors, its arrays view them, in the order of the engine's work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cu32.base import DeviceEngine
from alpha.cu32.compiler import USER, Source, cubin
from alpha.errors import DtypeError, GraphError

SOURCE = Source(
    USER,
    text="""
extern "C" __global__ void twice(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 2 * x[i];
}
""",
)


@pytest.fixture
def twice(cu32: DeviceEngine) -> Any:
    """A kernel of PyCUDA's, as a program of its users has it."""
    with cu32.device.context() as driver:
        module = driver.module_from_buffer(cubin(SOURCE, cu32.device.architecture))
        function = module.get_function("twice")

        def call(x: Any, n: int) -> None:
            with cu32.device.context():
                function(x, np.int32(n), block=(32, 1, 1), grid=(-(-n // 32), 1), stream=cu32.stream)

        yield call


def test_a_tensor_is_an_argument_of_a_pycuda_kernel(cu32: DeviceEngine, twice: Any) -> None:
    x = cu32.from_numpy(np.arange(100, dtype=np.float32))
    y = x + 1  # which the kernel must find finished, and what follows must find the kernel's result
    twice(y, 100)
    np.testing.assert_array_equal((y * 3).numpy(), 6 * (np.arange(100) + 1))
    twice(y[50:], 50)
    np.testing.assert_array_equal(y.numpy()[49:51], [100, 204])


def test_a_gpu_array_views_a_tensor(cu32: DeviceEngine) -> None:
    x = cu32.from_numpy(np.arange(12, dtype=np.float32).reshape(3, 4))
    with cu32.device.context():
        from pycuda.gpuarray import GPUArray

        array = GPUArray(x.shape, x.dtype, gpudata=x.__cuda_array_interface__["data"][0], base=x)
        x += 1
        cu32.synchronize()
        np.testing.assert_array_equal(array.get(), np.arange(1, 13).reshape(3, 4))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "uint8", "bool", "float16"])
def test_the_interface_says_where_a_tensor_lies(cu32: DeviceEngine, dtype: str) -> None:
    x = cu32.from_numpy(np.zeros((3, 5), dtype))
    found = x.__cuda_array_interface__
    assert found["data"] == (x.address, False) and found["typestr"] == np.dtype(dtype).str and found["version"] == 3
    assert found["shape"] == (3, 5) and found["strides"] is None
    assert found["stream"] == int(cu32.stream.handle) > 2
    turned = x.T[1:].__cuda_array_interface__
    assert turned["strides"] == (x.itemsize, 5 * x.itemsize) and turned["data"][0] == x.address + x.itemsize
    assert cu32.empty((0, 3)).__cuda_array_interface__["data"] == (0, False)


def test_tensors_that_have_no_interface(cu32: DeviceEngine) -> None:
    with pytest.raises(AttributeError, match=r"expected a tensor on a GPU, got one on cpu"):
        alpha.ones(3, engine="cpu").__cuda_array_interface__  # noqa: B018
    assert not hasattr(alpha.ones(3, engine="cpu"), "__cuda_array_interface__")
    x = cu32.from_numpy(np.ones(3, np.float32))
    with pytest.raises(GraphError, match="requires no gradient"):
        x.requires_grad_().__cuda_array_interface__  # noqa: B018
    with pytest.raises(DtypeError, match="got bfloat16"):
        x.detach().to(alpha.bfloat16).__cuda_array_interface__  # noqa: B018


def test_a_pycuda_kernel_in_a_captured_step_is_replayed(cu32: DeviceEngine, twice: Any) -> None:
    def step(x: alpha.Tensor) -> alpha.Tensor:
        y = x + 1
        twice(y, 8)
        return y + 1

    graphed = alpha.graph(step)
    for value in range(5):
        x = cu32.from_numpy(np.full(8, value, np.float32))
        np.testing.assert_array_equal(graphed(x).numpy(), np.full(8, 2 * value + 3))
    assert graphed.captures == 1
