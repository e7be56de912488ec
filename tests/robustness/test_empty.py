"""Tensors without elements: every function, with one axis after another 0, gives PyTorch's result or an AlphaError."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import nn, optim
from alpha.engine import Engine
from alpha.errors import AlphaError, ArgumentError, ShapeError
from tests.robustness.functions import RECORDS, SIZES, Record
from tests.robustness.values import Array, is_float, lengths, several

TRIED = [record for record in RECORDS if record.empties]
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def cases(record: Record) -> Iterator[tuple[str, list[Array]]]:
    """Arguments with each axis of the record 0 in turn, and with all of them (``*``)."""
    letters = sorted({letter for spec in record.shapes for letter in spec if letter.isalpha()})
    for empty in [*letters, "*"]:
        sizes = {letter: 0 if empty in (letter, "*") else size for letter, size in SIZES.items()}
        rng = np.random.default_rng(0)
        arguments = []
        for spec in record.shapes:
            shape = lengths(spec, sizes)
            if "@" in spec:
                arguments.append(np.zeros(shape, np.int64))
            elif spec.endswith("?"):
                arguments.append(np.ones(shape, np.bool_))
            else:
                arguments.append(rng.uniform(0.5, 1.5, shape).astype(np.float32))
        yield empty, arguments


def run(record: Record, engine: Engine, arguments: list[Array]) -> list[Array | None]:
    """Results, then the gradients of their sum; None for an argument that the result does not depend on."""
    given = [alpha.tensor(x, engine=engine) for x in arguments]
    for spec, x in zip(record.shapes, given, strict=True):
        x.requires_grad = record.gradient and is_float(spec)
    results = several(record.ours(*given))
    for y in results:
        if y.requires_grad:
            y.sum().backward(retain_graph=True)
    gradients = [None if x.grad is None else np.array(x.grad) for x in given if x.requires_grad]
    return [*(np.array(y.detach()) for y in results), *gradients]


def run_torch(torch: Any, record: Record, arguments: list[Array]) -> list[Array | None]:
    """The same of PyTorch."""
    given = [torch.tensor(x) for x in arguments]
    for spec, x in zip(record.shapes, given, strict=True):
        x.requires_grad_(record.gradient and is_float(spec))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = several(record.theirs(torch, *given))
        for y in results:
            if y.requires_grad:
                y.sum().backward(retain_graph=True)
    gradients = [None if x.grad is None else x.grad.numpy() for x in given if x.requires_grad]
    return [*(y.detach().numpy() for y in results), *gradients]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("record", TRIED, ids=str)
def test_results_are_pytorchs(record: Record) -> None:
    import torch

    for empty, arguments in cases(record):
        try:
            theirs = run_torch(torch, record, arguments)
        except (RuntimeError, ValueError, IndexError):
            continue  # what ours does then, the next test sees
        if empty in record.apart:
            continue
        ours = run(record, alpha.engine("cpu"), arguments)
        assert len(ours) == len(theirs), empty
        for a, b in zip(ours, theirs, strict=True):
            if a is None or b is None:
                assert a is b or not np.any(b if a is None else a), empty
            else:
                assert a.shape == b.shape, empty
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=f"{empty} of {record}")


@pytest.mark.parametrize("record", TRIED, ids=str)
def test_there_is_a_result_or_an_error_of_ours(engine: Engine, record: Record) -> None:
    served = 0
    for empty, arguments in cases(record):
        try:
            results = run(record, engine, arguments)
        except AlphaError as error:
            assert str(error).startswith("["), empty
            continue
        served += 1
        wanted = [
            x.shape for spec, x in zip(record.shapes, arguments, strict=True) if record.gradient and is_float(spec)
        ]
        for shape, gradient in zip(wanted, results[len(results) - len(wanted) :], strict=True):
            assert gradient is None or gradient.shape == shape, empty
    assert served or record.name in ("max", "min", "argmax", "argmin"), "every case was refused"


# -- what takes no tensor, or none that counts -------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)], ids=str)
def test_creation(engine: Engine, shape: tuple[int, ...]) -> None:
    made = [
        *(make(shape, engine=engine) for make in (alpha.empty, alpha.ones, alpha.rand, alpha.randn, alpha.zeros)),
        alpha.full(shape, math.nan, engine=engine),
    ]
    made += [alpha.ones_like(made[0]), alpha.zeros_like(made[0]), alpha.full_like(made[0], math.inf)]
    assert all(x.shape == shape and x.dtype == np.float32 and np.asarray(x).size == 0 for x in made)
    assert repr(made[0]) and made[0].tolist() == np.zeros(shape).tolist()


def test_ranges_and_identities(engine: Engine) -> None:
    assert alpha.arange(0, engine=engine).shape == alpha.arange(3, 3, engine=engine).shape == (0,)
    assert alpha.eye(0, engine=engine).shape == (0, 0) and alpha.eye(0, 3, engine=engine).shape == (0, 3)


def test_nothing_is_largest(engine: Engine) -> None:
    x = alpha.zeros((2, 0), engine=engine)
    for function in (alpha.max, alpha.min, alpha.argmax, alpha.argmin):
        for arguments in ((), (1,)):
            with pytest.raises(ShapeError, match="expected at least one element"):
                function(x, *arguments)
        found = function(x.reshape((0, 2)), 1)
        assert (found if isinstance(found, alpha.Tensor) else found[0]).shape == (0,)
    for p in (math.inf, -math.inf, -1):
        with pytest.raises(ShapeError, match=r"\[norm\] expected at least one element"):
            alpha.norm(x, p, 1)
        assert alpha.norm(x, p, 0).shape == (0,)


def test_one_value_a_channel_is_still_refused(engine: Engine) -> None:
    x = alpha.zeros((1, 1, 1, 3), engine=engine)
    with pytest.raises(ShapeError, match="more than one value per channel"):
        F.batch_norm(x, None, None, training=True)
    with pytest.raises(ShapeError, match="more than one value per channel and sample"):
        F.instance_norm(x)
    with pytest.raises(ArgumentError, match="running statistics outside training"):
        F.batch_norm(x[:0], None, None)


def test_running_statistics_stay(engine: Engine) -> None:
    norm = nn.BatchNorm2d(3).to(engine).train()
    before = np.array(norm.running_mean), np.array(norm.running_var)
    y = norm(alpha.zeros((0, 4, 4, 3), engine=engine))
    assert y.shape == (0, 4, 4, 3)
    np.testing.assert_array_equal(np.asarray(norm.running_mean), before[0])
    np.testing.assert_array_equal(np.asarray(norm.running_var), before[1])


@pytest.mark.parametrize("training", [True, False])
def test_a_network_of_no_images(engine: Engine, training: bool) -> None:
    net = (
        nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.ConvTranspose2d(4, 2, 2, stride=2),
            nn.GroupNorm(2, 2),
            nn.GELU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(2, 5),
        )
        .to(engine)
        .train(training)
    )
    x = alpha.zeros((0, 4, 4, 3), engine=engine, requires_grad=True)
    y = net(x)
    assert y.shape == (0, 5)
    loss = F.cross_entropy(y, alpha.zeros(0, engine=engine).long())
    assert math.isnan(loss.item())  # the mean of nothing, as in PyTorch
    F.cross_entropy(net(x), alpha.zeros(0, engine=engine).long(), reduction="sum").backward()
    assert x.grad is not None and x.grad.shape == x.shape
    for parameter in net.parameters():
        assert parameter.grad is not None and not np.asarray(parameter.grad).any()


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_dropout(engine: Engine, p: float) -> None:
    x = alpha.zeros((0, 3), engine=engine, requires_grad=True)
    y = F.dropout(x, p)
    y.sum().backward()
    assert y.shape == (0, 3) and x.grad is not None and x.grad.shape == (0, 3)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_optimizers_with_empty_parameters(engine: Engine, name: str) -> None:
    empty, full = (nn.Parameter(alpha.ones(shape, engine=engine)) for shape in ((0, 3), (2,)))
    optimizer = getattr(optim, name)([empty, full], lr=0.5)
    for parameter in (empty, full):
        parameter.grad = alpha.ones_like(parameter.detach())
    optimizer.step()
    assert empty.shape == (0, 3) and (np.asarray(full.detach()) < 1).all()


def test_clipping_nothing(engine: Engine) -> None:
    empty = nn.Parameter(alpha.ones((0, 3), engine=engine))
    for parameters in ([], [empty]):
        assert float(optim.clip_grad_norm_(parameters, 1.0)) == 0
        optim.clip_grad_value_(parameters, 1.0)
    empty.grad = alpha.zeros((0, 3), engine=engine)
    assert float(optim.clip_grad_norm_([empty], 1.0)) == 0


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3)], ids=str)
def test_initialisation(engine: Engine, shape: tuple[int, ...]) -> None:
    names = (
        "uniform_ normal_ zeros_ ones_ kaiming_uniform_ kaiming_normal_ xavier_uniform_ xavier_normal_ trunc_normal_"
    )
    for name in names.split():
        parameter = nn.Parameter(alpha.zeros(shape, engine=engine))
        getattr(nn.init, name)(parameter)
        assert parameter.shape == shape
