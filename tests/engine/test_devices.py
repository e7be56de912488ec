"""Devices by PyTorch's names, ``to`` with all its arguments, and ``alpha.cuda``."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import alpha
from alpha import nn
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError, EngineError


def test_a_device_is_a_name_and_a_number() -> None:
    assert str(alpha.device("cpu")) == "cpu" and alpha.device("cpu").index is None
    for given in (alpha.device("cuda:1"), alpha.device("cuda", 1), alpha.device(1), alpha.device("cu32:1")):
        assert (given.type, given.index, str(given)) == ("cuda", 1, "cuda:1")
        assert given == alpha.device("cuda:1") and hash(given) == hash(alpha.device(1))
    assert repr(alpha.device("cuda", 0)) == "device(type='cuda', index=0)" and repr(alpha.device("cpu")) == (
        "device(type='cpu')"
    )
    assert alpha.device("cuda") != alpha.device("cuda:0") and alpha.device("cpu") != "cpu"
    assert alpha.device(alpha.device("cuda:2")) == alpha.device("cuda:2")
    assert alpha.device(alpha.engine("cpu")) == alpha.device("cpu")
    assert pickle.loads(pickle.dumps(alpha.device(3))) == copy.deepcopy(alpha.device(3)) == alpha.device(3)
    assert alpha.device("cpu").engine is alpha.engine("cpu")


@pytest.mark.parametrize("given", ["gpu", "cuda:x", "cuda:01", "", None, 1.5, -1, True, ("cpu",)])
def test_what_is_no_device(given: Any) -> None:
    with pytest.raises(ArgumentError, match=r"\[device\] expected"):
        alpha.device(given)
    with pytest.raises(ArgumentError, match=r"\[device\] expected"):
        alpha.device("cuda:1", 2)


def test_tensors_tell_and_take_their_device(engine: Engine) -> None:
    place = alpha.device(engine)
    made = [
        alpha.tensor([1.0, 2.0], device=place),
        alpha.zeros(2, device=place),
        alpha.ones(2, device=str(place)),
        alpha.full((2,), 3.0, device=place),
        alpha.empty(2, device=place),
        alpha.arange(2.0, device=place),
        alpha.eye(2, device=place),
        alpha.rand(2, device=place, engine=engine),
        alpha.randn(2, device=place),
    ]
    for x in made:
        assert x.engine is engine and x.device == place
        assert x.is_cpu == (engine.name == "cpu") and x.is_cuda == (place.type == "cuda")
        assert x.itemsize == x.element_size() == 4 and x.nbytes == 4 * x.numel()
    with pytest.raises(ArgumentError, match=r"\[zeros\] expected one of engine and device, got .* and numpy"):
        alpha.zeros(2, engine=engine, device="numpy")


def test_to_takes_devices_dtypes_and_tensors(engine: Engine) -> None:
    x = alpha.ones(2, 3, engine=engine, requires_grad=True)
    other = alpha.zeros(1, dtype="float64", device="numpy")
    for moved in (
        x.to("numpy", alpha.float64),
        x.to(alpha.device("numpy"), "float64"),
        x.to(device="numpy", dtype=alpha.float64),
        x.to(other),
        x.to(other=other),
        x.to(alpha.float64).to("numpy", non_blocking=True),
    ):
        assert moved.engine.name == "numpy" and moved.dtype == alpha.float64
    (x.to("numpy", alpha.float64) * 2).sum().backward()
    assert x.grad is not None and x.grad.engine is engine and x.grad.tolist() == [[2, 2, 2]] * 2
    assert (
        x.to(engine) is x and x.to(alpha.float32) is x and x.to(x.device) is x and x.to(dtype=None, device=engine) is x
    )
    assert x.to(alpha.float32, copy=True) is not x and x.to(copy=True).storage is not x.storage
    for wrong, message in (
        (x.to, "expected a device, a dtype, both or a tensor, got none"),
        (lambda: x.to("cpu", "float32", "x"), "expected a device, a dtype, both or a tensor, got 3 arguments"),
        (lambda: x.to("cpu", place=1), "expected a device, a dtype, both or a tensor, got place"),
    ):
        with pytest.raises(ArgumentError, match=rf"\[to\] {message}"):
            wrong()
    with pytest.raises(DtypeError, match=r"\[to\] expected a dtype, got"):
        x.to("nowhere")


def test_modules_move_and_cast_as_tensors_do(engine: Engine) -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).to(engine)
    net.to("numpy", alpha.float64)
    assert all(p.engine.name == "numpy" and p.dtype == alpha.float64 for p in net.parameters())
    assert net.to(device=engine, dtype=alpha.float32) is net and net[0].weight.device == alpha.device(engine)
    assert net.double().float()[0].weight.dtype == alpha.float32 and net.to(alpha.device(engine)) is net
    assert net[1].num_batches_tracked.dtype == alpha.int64
    with pytest.raises(DtypeError, match=r"\[to\] expected float32 or float64 for a module, got int64"):
        net.to(alpha.int64)


def test_cuda_is_asked_for_as_in_pytorch() -> None:
    """``alpha.cuda`` answers where there is no GPU, and speaks of the engine cu32 where there is one."""
    place = alpha.device("cuda" if alpha.cuda.is_available() else "cpu")
    assert alpha.ones(2).to(place).device.type == place.type
    assert alpha.cuda.current_device() == 0
    if alpha.cuda.is_available():
        assert alpha.cuda.device_count() >= 1 and alpha.cuda.get_device_name() and place.engine is alpha.engine("cu32")
        x = alpha.ones(1000, device="cuda")
        alpha.cuda.synchronize()
        assert alpha.cuda.memory_allocated() >= x.nbytes <= alpha.cuda.max_memory_allocated()
        assert alpha.cuda.memory_reserved() >= alpha.cuda.memory_allocated() and alpha.cuda.mem_get_info()[1] > 0
        alpha.cuda.reset_peak_memory_stats()
        alpha.cuda.empty_cache()
    else:
        assert alpha.cuda.device_count() == 0
        with pytest.raises(EngineError):
            alpha.ones(2, device="cuda")
    for asked in (alpha.cuda.get_device_name, alpha.cuda.memory_allocated, alpha.cuda.synchronize):
        with pytest.raises(EngineError, match=r"\[cuda\] expected a GPU: .* got 'cpu'"):
            asked("cpu")
    alpha.cuda.manual_seed(3)
    first = alpha.rand(3).tolist()
    alpha.cuda.manual_seed_all(3)
    assert alpha.rand(3).tolist() == first


def test_the_name_cuda_is_taken() -> None:
    with pytest.raises(ArgumentError, match=r"\[register_engine\] expected a new name, got 'cuda', which is taken"):
        alpha.register_engine("cuda", lambda: None)  # type: ignore[arg-type, return-value]
