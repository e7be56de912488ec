"""AveragedViews beside its definition, view by view."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.engine import Engine
from alpha.errors import ArgumentError, ShapeError
from alpha.testing import assert_close


class Weighted(nn.Module):
    """Sums of an image, squared, times weights of its places: mirrored and shifted images give other results."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.weight = nn.Parameter(alpha.tensor(np.random.default_rng(1).random((5, 6, 3)), engine=engine))

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        return (x * x * self.weight).sum(dim=(1, 2))


@pytest.mark.parametrize(("shift", "mirror"), [(1, True), (2, True), (0, True), (1, False), (0, False)])
def test_the_mean_of_the_views(engine: Engine, rng: np.random.Generator, shift: int, mirror: bool) -> None:
    net, x = Weighted(engine), rng.standard_normal((4, 5, 6, 3))
    weight = np.array(net.weight.detach())

    def result(views: list[Any]) -> Any:
        views = views + [view[:, :, ::-1] for view in views] if mirror else views
        return np.mean([(view * view * weight).sum(axis=(1, 2)) for view in views], axis=0)

    padded = np.pad(x, ((0, 0), (shift, shift), (shift, shift), (0, 0)), mode="reflect")
    corners = [padded[:, :5, :6], padded[:, 2 * shift :, 2 * shift :]]
    expected = (result([x]) + result(corners)) / 2
    views = nn.AveragedViews(net, shift, mirror)
    assert_close(views(alpha.tensor(x, engine=engine)).detach(), expected)
    assert f"shift={shift}, mirror={mirror}" in repr(views)


def test_it_is_in_the_networks_mode_and_holds_its_weights(engine: Engine) -> None:
    net = Weighted(engine)
    views = nn.AveragedViews(net).eval()
    assert not net.training and [*views.state_dict()] == ["module.weight"]


def test_wrong_arguments_say_so(engine: Engine) -> None:
    for make, message in (
        (lambda: nn.AveragedViews(3), "expected a Module, got 3"),
        (lambda: nn.AveragedViews(nn.ReLU(), -1), "expected shift >= 0"),
        (lambda: nn.AveragedViews(nn.ReLU(), 0.5), "expected shift as an int"),
    ):
        with pytest.raises(ArgumentError, match=rf"^\[AveragedViews\] {message}"):
            make()
    for shape in ((2, 2, 4, 1), (4, 4)):
        with pytest.raises(
            ShapeError, match=r"^\[AveragedViews\] expected images \(N, H, W, C\) of more than 2 pixels"
        ):
            nn.AveragedViews(nn.ReLU(), 2)(alpha.zeros(shape, engine=engine))
