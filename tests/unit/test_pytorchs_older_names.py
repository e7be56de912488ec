"""What older PyTorch scripts write: typed constructors, ``Size``, constants, softmax without an axis."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.errors import ArgumentError, ShapeError
from alpha.nn import functional as F

TYPED = {
    "FloatTensor": "float32",
    "DoubleTensor": "float64",
    "HalfTensor": "float16",
    "BFloat16Tensor": "bfloat16",
    "ByteTensor": "uint8",
    "CharTensor": "int8",
    "ShortTensor": "int16",
    "IntTensor": "int32",
    "LongTensor": "int64",
    "BoolTensor": "bool",
}


@pytest.mark.parametrize(("name", "dtype"), TYPED.items())
def test_typed_constructors(name: str, dtype: str) -> None:
    make = getattr(alpha, name)
    for x in (
        make([1, 0]),
        make(np.array([1, 0])),
        make(alpha.tensor([1, 0])),
        make((True, False)),
        make([True, False]),
    ):
        assert str(x.dtype) == dtype and x.tolist() == [1, 0]
    for x in (make(2, 3), make(alpha.ones(2, 3).size()), make(np.int64(2), 3)):
        assert str(x.dtype) == dtype and x.shape == (2, 3)
    assert make().shape == (0,) and make([[1], [0]]).shape == (2, 1)
    assert isinstance(x, make) and not isinstance(alpha.ones(2).to(alpha.complex64), make) and not isinstance(3, make)
    assert str(alpha.ones(2).type(make).dtype) == dtype and alpha.ones(2).to(make.dtype).dtype == x.dtype
    for wrong in ((1.5,), ("ab",), ([1], 2), (2, -1), (1, 2.0)):
        with pytest.raises((ArgumentError, ShapeError), match=rf"\[{name}\] expected"):
            make(*wrong)
    with pytest.raises(ArgumentError, match=rf"which may be either: write {name}\(\*\(2, 3\)\) for a shape"):
        make((2, 3))


def test_the_plain_constructor_takes_the_default_dtype() -> None:
    assert alpha.Tensor([1, 2]).tolist() == [1.0, 2.0] and alpha.Tensor(2, 3).shape == (2, 3)
    assert alpha.Tensor(alpha.ones(2, 3).size()).shape == (2, 3) and alpha.Tensor().shape == (0,)
    before = alpha.get_default_dtype()
    try:
        alpha.set_default_dtype(alpha.float64)
        assert alpha.Tensor(np.ones(2, np.float32)).dtype == alpha.float64
    finally:
        alpha.set_default_dtype(before)
    with pytest.raises(ArgumentError, match=r"\[Tensor\] expected lengths, or one sequence"):
        alpha.Tensor("text")


def test_sizes_are_tuples() -> None:
    size = alpha.ones(2, 3, 4).size()
    assert size == (2, 3, 4) == alpha.Size([2, 3, 4]) and hash(size) == hash((2, 3, 4))
    assert size.numel() == 24 and size[1:].numel() == 12 and size.__add__((5,)).numel() == 120 and size[0] == 2
    assert repr(size) == "alpha.Size([2, 3, 4])" and type(alpha.zeros(size).shape) is tuple
    assert pickle.loads(pickle.dumps(size)) == size and copy.deepcopy(size).numel() == 24


def test_constants() -> None:
    assert (alpha.pi, alpha.e, alpha.inf, alpha.newaxis) == (np.pi, np.e, np.inf, None) and alpha.nan != alpha.nan


@pytest.mark.needs("torch")
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (2, 3, 4, 5)], ids=str)
def test_softmax_without_an_axis_is_pytorchs(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    import torch

    x = np.asarray(rng.normal(size=shape))
    functions: tuple[Any, ...] = ("softmax", "log_softmax", "softmin")
    with alpha.set_image_layout("NCHW"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in functions:
            expected = getattr(torch.nn.functional, name)(torch.tensor(x)).numpy()
            np.testing.assert_allclose(getattr(F, name)(alpha.tensor(x)).numpy(), expected, rtol=1e-12)
        for layer in ("Softmax", "LogSoftmax", "Softmin"):
            expected = getattr(torch.nn, layer)()(torch.tensor(x)).numpy()
            np.testing.assert_allclose(getattr(nn, layer)()(alpha.tensor(x)).numpy(), expected, rtol=1e-12)


def test_softmax_without_an_axis_warns_or_is_refused() -> None:
    with pytest.warns(UserWarning, match=r"\[softmax\] expected dim, the axis to normalise along, got none: took 1"):
        F.softmax(alpha.ones(2, 3))
    with pytest.raises(ArgumentError, match=r"\[softmax\] expected dim"):
        nn.Softmax()(alpha.ones(1, 2, 2, 3))


def test_rows_of_modules_with_gaps() -> None:
    row = nn.ModuleList([nn.Linear(1, 1), None])
    assert len(row) == 2 and row[1] is None and list(row.state_dict()) == ["0.weight", "0.bias"]
    row[1] = nn.ReLU()
    assert isinstance(row[1], nn.ReLU)
    nested = nn.ParameterList([alpha.ones(2), nn.ParameterList([alpha.ones(3)])])
    assert [name for name, _ in nested.named_parameters()] == ["0", "1.0"] and nested[1][0].shape == (3,)
    with pytest.raises(ArgumentError, match=r"\[add_module\] expected a Module for '0', got int"):
        nn.ModuleList([3])  # type: ignore[list-item]
    with pytest.raises(ArgumentError, match=r"\[add_module\] expected a Module for '0', got NoneType"):
        nn.Sequential(None)


def test_integers_padded_with_a_float() -> None:
    assert F.pad(alpha.tensor([1, 2]), (1, 0), value=0.0).tolist() == [0, 1, 2]
    with pytest.raises(alpha.errors.DtypeError, match=r"\[pad\] expected a number that int64 can hold, got 0.5"):
        F.pad(alpha.tensor([1, 2]), (1, 0), value=0.5)


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8", "int32", "int64"])
def test_numbers_that_an_integer_dtype_holds(dtype: str) -> None:
    limits = np.iinfo(dtype)
    for values in ([True, False], [int(limits.min), int(limits.max)], [0.0, 1.9], [float(limits.min)]):
        assert alpha.tensor(values, dtype=dtype).tolist() == [int(value) for value in values]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert alpha.tensor(np.float16(3), dtype=dtype).item() == 3
    for beyond in (int(limits.max) + 1, int(limits.min) - 1, float(limits.max) * 2, float("nan")):
        with pytest.raises((ArgumentError, alpha.errors.DtypeError), match=r"\[tensor\] expected"):
            alpha.tensor([beyond], dtype=dtype)
