"""The 1 that backward begins with is kept on the device, and nobody who writes to it changes the next backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cu32.base import DeviceEngine


def loss_of(x: Any) -> Any:
    return (x * x).sum()


@pytest.fixture
def x(cu32: DeviceEngine) -> Any:
    return alpha.tensor(np.array([1.0, -2.0, 3.0], np.float32), engine=cu32).requires_grad_()


def test_one_launch_less_than_with_a_gradient_that_is_made(cu32: DeviceEngine, x: Any) -> None:
    def launches(make: Any) -> int:
        found = 0
        for _ in range(2):  # the first time it is made
            x.grad = None
            loss = loss_of(x)
            before = cu32.device.launches
            loss.backward(make(loss))
            found = cu32.device.launches - before
            np.testing.assert_array_equal(x.grad.numpy(), [2, -4, 6])
        return found

    assert launches(lambda loss: None) == launches(alpha.ones_like) - 1


def test_who_sees_it_has_one_of_their_own(x: Any) -> None:
    seen: list[Any] = []
    hooked = loss_of(x)
    hooked.register_hook(lambda grad: seen.append(grad.mul_(5)))
    hooked.backward()
    retaining = [loss_of(x) for _ in range(2)]
    for loss in retaining:
        loss.retain_grad()
        loss.backward()
    retaining[0].grad.mul_(7)
    (given,) = alpha.autograd.grad(loss_of(x), [last := loss_of(x)], allow_unused=True)
    assert given is None and last.grad is None
    (gradient,) = alpha.autograd.grad(last, [last])
    gradient.mul_(9)
    x.grad = None
    loss_of(x).backward()
    assert retaining[1].grad.item() == 1
    np.testing.assert_array_equal(x.grad.numpy(), [2, -4, 6])


def test_a_function_that_writes_to_its_gradient(x: Any) -> None:
    class Careless(alpha.Function):
        def forward(self, value: Any) -> Any:
            return value.clone()

        def backward(self, dy: Any) -> Any:
            return dy.mul_(3)

    for _ in range(2):
        x.grad = None
        Careless.apply(loss_of(x)).backward()
        np.testing.assert_array_equal(x.grad.numpy(), [6, -12, 18])
    x.grad = None
    loss_of(x).backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2, -4, 6])


def test_a_leaf_that_is_its_own_result(cu32: DeviceEngine) -> None:
    leaf = alpha.tensor(2.0, engine=cu32).requires_grad_()
    leaf.backward()
    leaf.grad.mul_(4)
    leaf.grad = None
    leaf.backward()
    assert leaf.grad.item() == 1
