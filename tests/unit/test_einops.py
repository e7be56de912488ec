"""einops on tensors: whichever package is imported first, with gradients, equal to NumPy's results."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import alpha

pytestmark = pytest.mark.needs("einops")


def test_patterns_are_those_of_numpy(rng: np.random.Generator) -> None:
    import einops

    x = rng.standard_normal((2, 6, 4, 3))
    t = alpha.tensor(x)
    for pattern, sizes in (
        ("b h w c -> b c h w", {}),
        ("b (h h2) w c -> b h w (h2 c)", {"h2": 2}),
        ("b h w c -> (b h w c)", {}),
        ("b h w c -> c 1 (h w) b 1", {}),
    ):
        found = einops.rearrange(t, pattern, **sizes)
        assert isinstance(found, alpha.Tensor) and np.array_equal(found, einops.rearrange(x, pattern, **sizes))
    for operation in ("sum", "mean", "max", "min", "prod"):
        for pattern in ("b h w c -> b c", "b (h 2) w c -> h w c", "b h w c -> ", "b h w c -> 1 1 1 c"):
            expected = einops.reduce(x, pattern, operation)
            np.testing.assert_allclose(einops.reduce(t, pattern, operation), expected, rtol=1e-12)
    assert np.array_equal(
        einops.repeat(t, "b h w c -> b (h 2) k w c", k=3), einops.repeat(x, "b h w c -> b (h 2) k w c", k=3)
    )
    packed, shapes = einops.pack([t, t[:, 0]], "b * c")
    assert packed.shape == (2, 28, 3) and einops.unpack(packed, shapes, "b * c")[0].shape == t.shape
    assert einops.rearrange([t, t], "n b h w c -> b (n h) w c").shape == (2, 12, 4, 3)
    assert einops.asnumpy(t) is not t and einops.parse_shape(t, "b h _ c") == {"b": 2, "h": 6, "c": 3}
    with pytest.raises(Exception, match="mean"):
        einops.reduce(alpha.arange(3), "a -> ", "mean")


def test_gradients_flow_through() -> None:
    import einops

    x = alpha.ones(2, 3, requires_grad=True)
    (einops.rearrange(x, "a b -> (b a)") * alpha.arange(6.0)).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[0, 2, 4], [1, 3, 5]]


@pytest.mark.parametrize("imports", ["import alpha; import einops", "import einops; import alpha"])
def test_either_may_be_imported_first(imports: str) -> None:
    code = f"{imports}\nprint(einops.rearrange(alpha.zeros(2, 3), 'a b -> b a').shape)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split("\n")[0] == "(3, 2)"


@pytest.mark.needs("torch")
def test_layers_are_pytorchs(rng: np.random.Generator) -> None:
    import torch
    from einops.layers import torch as theirs

    from alpha import nn
    from alpha.utils import einops_layers as ours

    x = rng.standard_normal((2, 6, 4, 3))
    for name, arguments, lengths in (
        ("Rearrange", ("b (h k) w c -> b h (w c) k",), {"k": 2}),
        ("Reduce", ("b h w c -> b c", "mean"), {}),
        ("EinMix", ("b h w c -> b h w d",), {"weight_shape": "c d", "bias_shape": "d", "c": 3, "d": 5}),
        ("EinMix", ("b (h k) w c -> b (k h) w",), {"weight_shape": "h c", "k": 2, "h": 3, "c": 3}),
    ):
        layer, twin = getattr(ours, name)(*arguments, **lengths), getattr(theirs, name)(*arguments, **lengths).double()
        assert [n for n, _ in layer.named_parameters()] == [n for n, _ in twin.named_parameters()]
        layer = nn.Sequential(layer).double()
        for mine, other in zip(layer.parameters(), twin.parameters(), strict=True):
            assert mine.shape == tuple(other.shape) and mine.abs().max().item() > 0
            mine.data.copy_(alpha.tensor(other.detach().numpy()))
        given, same = alpha.tensor(x).requires_grad_(), torch.tensor(x, requires_grad=True)
        y, expected = layer(given), twin(same)
        np.testing.assert_allclose(np.asarray(y.detach()), expected.detach().numpy(), rtol=1e-12)
        y.square().sum().backward()
        expected.square().sum().backward()
        assert given.grad is not None and same.grad is not None
        np.testing.assert_allclose(np.asarray(given.grad), same.grad.numpy(), rtol=1e-10)
        assert repr(layer[0]) == repr(twin)
