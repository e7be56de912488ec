"""Memory formats: the orders in which the elements of a tensor lie, by PyTorch's names."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.errors import ArgumentError, ShapeError

LAST = alpha.channels_last


def images(*shape: int) -> alpha.Tensor:
    return alpha.tensor(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))


CASES: dict[str, Callable[[alpha.Tensor, alpha.memory_format], alpha.Tensor]] = {
    "contiguous": lambda x, format: x.contiguous(memory_format=format),
    "clone": lambda x, format: x.clone(memory_format=format),
    "to": lambda x, format: x.to(memory_format=format),
    "to with a dtype": lambda x, format: x.to(alpha.float64, memory_format=format),
    "double": lambda x, format: x.double(memory_format=format),
    "float": lambda x, format: x.float(memory_format=format),
    "cpu": lambda x, format: x.cpu(memory_format=format),
    "empty": lambda x, format: alpha.empty(*x.shape, memory_format=format),
    "empty_like": lambda x, format: alpha.empty_like(x, memory_format=format),
    "full_like": lambda x, format: alpha.full_like(x, 3, memory_format=format),
    "zeros_like": lambda x, format: alpha.zeros_like(x, memory_format=format),
    "ones_like": lambda x, format: alpha.ones_like(x, memory_format=format),
    "rand_like": lambda x, format: alpha.rand_like(x, memory_format=format),
    "randn_like": lambda x, format: alpha.randn_like(x, memory_format=format),
    "randint_like": lambda x, format: alpha.randint_like(x, 9, memory_format=format),
}
KEEPS = ("contiguous", "clone", "to", "to with a dtype", "double", "float", "cpu")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 1, 4, 5), (2, 3, 1, 1), (2, 3, 2, 2, 3)], ids=str)
def test_strides_are_pytorchs(case: str, shape: tuple[int, ...]) -> None:
    """With PyTorch's layout; where an axis has one entry its stride says nothing, and is not compared."""
    import torch

    x = images(*shape)
    last = ("channels_last", "channels_last_3d")[len(shape) - 4]
    with alpha.set_image_layout("NCHW"):
        for start in ("contiguous_format", last):
            for name in ("contiguous_format", last):
                given = x.contiguous(memory_format=getattr(alpha, start))
                found = CASES[case](given, getattr(alpha, name))
                theirs = torch.empty(shape).contiguous(memory_format=getattr(torch, name))
                pairs = zip(shape, found.strides, theirs.stride(), strict=True)
                assert all(n == 1 or mine == other for n, mine, other in pairs)
                assert found.is_contiguous(memory_format=getattr(alpha, name))
                if case in KEEPS:
                    assert found.tolist() == x.tolist()


def test_pixels_lie_together_in_either_layout() -> None:
    x = images(2, 3, 4, 5)
    assert x.contiguous(memory_format=LAST) is x
    with alpha.set_image_layout("NCHW"):
        last = x.contiguous(memory_format=LAST)
        assert last.strides == (60, 1, 15, 3) and last.tolist() == x.tolist()
        assert last.is_contiguous(memory_format=LAST) and not last.is_contiguous()
        assert last.contiguous(memory_format=LAST) is last and last.to(memory_format=alpha.preserve_format) is last
        assert (
            last.clone().strides == last.strides and last.clone(memory_format=alpha.contiguous_format).is_contiguous()
        )


def test_gradients_pass() -> None:
    with alpha.set_image_layout("NCHW"):
        x = images(1, 2, 2, 3).requires_grad_()
        (x.to(alpha.float64, memory_format=LAST) * images(1, 2, 2, 3)).sum().backward()
    assert x.grad is not None and x.grad.tolist() == images(1, 2, 2, 3).tolist()


def test_a_module_keeps_its_parameters() -> None:
    with alpha.set_image_layout("NCHW"):
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
        x = images(1, 3, 3, 3)
        before, ids = net.eval()(x), [id(p) for p in net.parameters()]
        for name in ("contiguous_format", "channels_last"):
            assert net.to(memory_format=getattr(alpha, name)) is net
            assert net[0].weight.is_contiguous(memory_format=getattr(alpha, name))
            assert [id(p) for p in net.parameters()] == ids
            np.testing.assert_allclose(np.asarray(net(x).detach()), np.asarray(before.detach()), rtol=1e-6)


def test_bad_formats() -> None:
    x, volume = images(2, 3), images(1, 2, 2, 2, 2)
    with pytest.raises(
        ShapeError, match=r"\[contiguous\] expected 4 axes for alpha.channels_last, got a tensor of shape"
    ):
        x.contiguous(memory_format=LAST)
    with pytest.raises(ShapeError, match=r"\[to\] expected 4 axes"):
        volume.to(memory_format=LAST)
    with pytest.raises(
        ArgumentError, match=r"\[clone\] expected a memory format, such as alpha.channels_last, got 'NHWC'"
    ):
        x.clone(memory_format="NHWC")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"\[to\] expected memory_format as one"):
        x.to(memory_format="NHWC")
    for function in (x.contiguous, x.is_contiguous):
        with pytest.raises(ArgumentError, match=r"other than its own, got alpha\.preserve_format"):
            function(memory_format=alpha.preserve_format)
        with pytest.raises(ArgumentError, match=r"got both, \(1, 0\) and alpha.contiguous_format"):
            function((1, 0), memory_format=alpha.contiguous_format)


def test_copies_of_a_format_are_the_format() -> None:
    assert copy.deepcopy(LAST) is LAST and pickle.loads(pickle.dumps(LAST)) is LAST
    assert str(LAST) == repr(LAST) == "alpha.channels_last"
