"""``view`` of images with PyTorch's layout, whose memory has channels last: a copy that mirrors them."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, optim
from alpha.engine import Engine
from alpha.errors import GraphError, ShapeError
from alpha.nn import functional as F
from alpha.tensor import Storage


@pytest.fixture(autouse=True)
def pytorchs_layout() -> Iterator[None]:
    with alpha.set_image_layout("NCHW"):
        yield


def images(engine: Engine, *shape: int) -> alpha.Tensor:
    """Images (N, C, H, W) in memory (N, H, W, C), as convolutions make them."""
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    last = engine.from_numpy(np.ascontiguousarray(np.moveaxis(values, 1, -1)))
    return last.movedim(-1, 1)


def array(x: Any) -> Any:
    return np.asarray(x.detach())


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (1, 3, 2, 1), (2, 3, 2, 2, 2)], ids=str)
def test_elements_come_in_the_order_of_the_axes(engine: Engine, shape: tuple[int, ...]) -> None:
    x = images(engine, *shape)
    for wanted in ((shape[0], -1), (-1,), (shape[0] * shape[1], *shape[2:]), (-1, shape[-1])):
        assert array(x.view(*wanted)).tolist() == array(x).reshape(wanted).tolist()
    assert x.view(shape[0], 3, -1).storage is x.storage, "no copy where strides give it"
    assert x.view_as(alpha.zeros(x.numel(), engine=engine)).shape == (x.numel(),)


WRITES: dict[str, Callable[[alpha.Tensor], Any]] = {
    "fill_": lambda x: x.fill_(7),
    "mul_": lambda x: x.mul_(2),
    "+=": lambda x: x.__iadd__(1),
    "relu_": lambda x: F.relu_(x.sub_(20)),
    "exp_": lambda x: x.clamp_(max=3).exp_(),
    "an element": lambda x: x.__setitem__((0, 1), -1.0),
    "a mask": lambda x: x.__setitem__(x > 5, 0.0),
    "a view": lambda x: x[1:].zero_(),
    "copy_": lambda x: x.copy_(x + 3),
    "neg_": lambda x: x.neg_(),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("to_the_view", [False, True])
def test_writes_to_one_are_writes_to_both(engine: Engine, write: str, to_the_view: bool) -> None:
    """As with NumPy's view of an array in row-major order."""
    x = images(engine, 2, 3, 4, 5)
    y, z = x.view(2, -1), x[:, 1:].view(2, -1)
    before = x.version, y.version
    WRITES[write](y if to_the_view else x)
    assert np.array_equal(array(y), array(x).reshape(2, -1))
    assert np.array_equal(array(z), array(x)[:, 1:].reshape(2, -1))
    assert x.version > before[0] and y.version > before[1]
    expected = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    plain = engine.from_numpy(expected.reshape(2, 60) if to_the_view else expected)
    WRITES[write](plain)
    assert np.array_equal(array(x), array(plain).reshape(2, 3, 4, 5))


def test_only_what_lies_in_the_view_is_repeated(engine: Engine) -> None:
    x = images(engine, 2, 4, 3, 3)
    y = x[:1].view(-1)
    x[1:].fill_(-1)
    assert array(y).tolist() == list(range(36))
    y.fill_(-2)
    assert (array(x)[:1] == -2).all() and (array(x)[1:] == -1).all()


def test_an_optimizer_writes_to_views_of_filters_too(engine: Engine) -> None:
    with alpha.device(engine.name):
        layer = nn.Conv2d(3, 4, 3)
    flat = layer.weight.data.view(4, -1)
    layer(images(engine, 1, 3, 5, 5)).sum().backward()
    optim.SGD(layer.parameters(), lr=0.1).step()
    assert np.array_equal(array(flat), array(layer.weight).reshape(4, -1))
    flat.zero_()
    assert not array(layer.weight).any()
    layer.load_state_dict({"weight": np.ones((4, 3, 3, 3), np.float32), "bias": np.zeros(4, np.float32)})
    assert array(flat).all()


def test_gradients_pass(engine: Engine, rng: np.random.Generator) -> None:
    x = images(engine, 2, 3, 4, 5).requires_grad_()
    weights = engine.from_numpy(rng.normal(size=(2, 60)).astype(np.float32))
    (x.view(2, -1) * weights).sum().backward()
    assert x.grad is not None and np.array_equal(array(x.grad), array(weights).reshape(2, 3, 4, 5))


def test_a_write_in_the_graph_is_refused_while_both_are_in_use(engine: Engine) -> None:
    x = images(engine, 2, 3, 4, 5).requires_grad_() * 2
    y = x.view(2, -1)
    for tensor in (x, y):
        with pytest.raises(GraphError, match=r"\[mul_\] expected a tensor with memory of its own"):
            tensor.mul_(2)
    del tensor, x
    gc.collect()
    y.mul_(2)
    assert array(y)[0, :3].tolist() == [0, 4, 8]


def test_memory_that_is_no_longer_in_use_is_no_mirror(engine: Engine) -> None:
    x = images(engine, 2, 3, 4, 5)
    in_use = engine.memory.in_use
    for _ in range(3):
        y = x.view(2, -1)
        assert engine.memory.in_use > in_use
        del y
        gc.collect()
        assert engine.memory.in_use == in_use
    x.fill_(1)
    assert isinstance(x.storage, Storage) and array(x).all()


def test_it_is_for_images_alone(engine: Engine) -> None:
    x = images(engine, 2, 3, 4, 5)
    with pytest.raises(ShapeError, match=r"\[view\] expected a shape that fits the strides"):
        x.permute(2, 3, 0, 1).view(-1)
    with pytest.raises(ShapeError, match=r"\[view\] expected a shape that fits the strides"):
        x.flatten(1).t().view(-1)
    for shared in (x[:, :1].expand(2, 3, 4, 5), x[:, :1].expand(2, 3, 4, 5).permute(0, 1, 3, 2)):
        with pytest.raises(ShapeError, match=r"\[view\] expected a shape that fits the strides"):
            shared.view(2, -1)
    with alpha.set_image_layout("NHWC"):
        with pytest.raises(ShapeError, match=r"\[view\] expected a shape that fits"):
            x.view(2, -1)
        with pytest.raises(ShapeError, match=r"\[view\] expected a shape that fits"):
            alpha.zeros(3, 2, 4, engine=engine).transpose(0, 1).view(2, -1)


def test_images_with_channels_last_lie_in_an_order_of_their_own(engine: Engine) -> None:
    values = np.arange(120, dtype=np.float32).reshape(2, 4, 5, 3)
    x = engine.from_numpy(np.ascontiguousarray(values.transpose(1, 2, 0, 3))).permute(2, 0, 1, 3)
    with alpha.set_image_layout("NHWC"):
        y = x.view(2, -1)
    assert np.array_equal(array(y), values.reshape(2, -1))
    y.mul_(2)
    assert np.array_equal(array(x), values * 2)


def test_networks_as_they_are_written_for_pytorch(engine: Engine, rng: np.random.Generator) -> None:
    """``x.view(x.size(0), -1)`` behind convolutions."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(4 * 2 * 3, 5)

        def forward(self, x: alpha.Tensor) -> Any:
            x = F.max_pool2d(F.relu(self.conv(x)), 2)
            return self.fc(x.view(x.size(0), -1))

    with alpha.device(engine.name):
        net = Net()
    same = nn.Sequential(net.conv, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), net.fc)
    x = images(engine, 2, 3, 6, 8)
    results = []
    for model in (net, same):
        net.zero_grad()
        model(x).square().sum().backward()
        results.append([array(p.grad).copy() for p in net.parameters()])
    for mine, other in zip(*results, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5)


def test_an_interrupt_finds_both_written(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    x = images(engine, 2, 3, 4, 5)
    y, calls, copied = x.view(2, -1), [0], type(engine).copy

    def interrupted(self: Engine, source: alpha.Tensor, out: alpha.Tensor) -> None:
        calls[0] += 1
        if calls[0] == 1:
            raise KeyboardInterrupt
        copied(self, source, out)

    x.add_(0)  # the first call of a function may copy for other reasons
    monkeypatch.setattr(type(engine), "copy", interrupted)
    calls[0] = 0
    with pytest.raises(KeyboardInterrupt):
        x.storage.touch()
    monkeypatch.undo()
    assert calls[0] == 2 and np.array_equal(array(y), array(x).reshape(2, -1))


def test_copies_and_pickles_are_of_their_own() -> None:
    x = images(alpha.engine("cpu"), 2, 3, 4, 5)
    y = x.view(2, -1)
    for make in (copy.deepcopy, lambda tensor: pickle.loads(pickle.dumps(tensor))):
        apart, view = make(x), make(y)
        apart.fill_(1)
        view.fill_(2)
        assert array(x)[0, 0, 0, 1] == 1 == array(y)[0, 1] and array(x)[1, 2, 3, 4] == 119
    together = copy.deepcopy([x, y])
    together[0].zero_()
    assert np.array_equal(array(together[1]), array(x).reshape(2, -1)), "a copy of both has no mirrors"
