"""Every public function called with each of its arguments in turn replaced by each of a list of hostile values.

``python -m tests.robustness.hostile [--only NAME] [--share N]`` prints a JSON line for each call that ended in
anything but a result or an AlphaError, that took more than ``SECONDS``, or that needed more memory than ``MEMORY``
allows. It is a program of its own so that a crash shows, and so that a limit on memory can be set.
"""

from __future__ import annotations

import argparse
import datetime
import inspect
import json
import math
import os
import resource
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import alpha
from alpha import nn, optim
from alpha.cpu.engine import CPUEngine
from alpha.engine import Engine
from alpha.errors import AlphaError
from tests.robustness.cases import Draw, Input, walk
from tests.robustness.records import RECORDS

SECONDS = 1.0
"""Most processor time for one call; a second try decides, since a first one may compile kernels."""

CAP = 96 << 20
"""The pool's cap."""

MEMORY = 400 << 20
"""Bytes of address space on top of what the process has at first: for the pool, NumPy and the compiler together."""

Call = Callable[..., Any]
Sample = tuple[Call, dict[str, Any]]
"""A function, and arguments that it takes, by name."""


class Sizes:
    """An object that counts as an int, but not as one that anybody would expect."""

    def __index__(self) -> int:
        return 2**70


def hostile_values(engine: Engine, other: Engine) -> Iterator[tuple[str, Any]]:
    """(name, value): no ints, extreme ones, other types, other dtypes, other shapes, another engine."""
    endless: list[Any] = []
    endless.append(endless)
    nested: list[Any] = [0]
    for _ in range(3000):
        nested = [nested]
    values: list[Any] = [
        None, "a", "", "nan", b"a", True, False, -1, 0, 1, -5, 1.0, 1.5, 0.5, -0.5, math.nan, math.inf, -math.inf,
        1e300, -1e300, 1e-300, 65, 300, 2**22, 2**31 - 1, 2**31, 2**32 + 1, 2**40, 2**62, 2**63 - 1, 2**63, -(2**63),
        10**30, -(10**30), 10**400, 1j, (), [], (1,), [1], (0,), (-1,), (2, 2), (1, 1, 1), (1.5, 1), (True, 1),
        (None, 1), ("a", "b"), (math.nan, math.nan), (math.inf, 1), (2**31, 2**31), (2**40, 2**40), (2**62, 4),
        (2**63, 1), (10**30, 0), (0, 10**30), (-1, -1), (1,) * 65, (1,) * 1000, [[1], [1, 2]], [None], ["a"], [[]],
        {}, {"a": 1}, set(), {1}, frozenset({1}), range(3), range(2**40), object(), int, lambda *_: 0, ..., slice(None),
        slice(0, 0, -1), datetime.datetime(2020, 1, 1), np.int8(1), np.uint8(2), np.int32(-1), np.uint64(2**64 - 1),
        np.float16(1), np.float32(math.nan), np.float64(1e300), np.longdouble(1), np.bool_(True), np.str_("a"),
        np.complex64(1j), np.datetime64("2020-01-01"), np.void(b"ab"), np.array(1), np.array([1.5]), np.zeros((0, 3)),
        np.array([object()]), np.array(["a"]), np.array([1j]), np.zeros(2, ">f4"), np.zeros(2, "i4,f4"),
        np.ma.masked_array([1.0]), np.broadcast_to(np.float32(0), (2**40,)), np.float32, float, alpha.float64, Sizes(),
    ]  # fmt: skip
    for value in values:
        yield short(value), value
    yield "a generator", (n for n in (1, 2))
    yield "a list in itself", endless
    yield "a list nested 3000 times", nested
    yield "an int of 5000 digits", 10**5000
    rng = np.random.default_rng(0)
    for dtype in ("float32", "float64", "int64", "int32", "uint8", "bool"):
        for shape in ((), (0,), (3,), (2, 3), (0, 3), (1, 2, 3), (2, 4, 4, 3), (0, 4, 4, 3), (1, 2, 2, 2, 2)):
            array = rng.integers(0, 2, shape).astype(dtype)
            yield f"a tensor of {dtype} {shape}", alpha.tensor(array, dtype=array.dtype, engine=engine)
    yield "a tensor expanded to 2 ** 40", alpha.expand(alpha.zeros(1, engine=engine), (2**40,))
    yield "tensor of another engine", alpha.zeros(2, 3, engine=other)
    yield "a tensor of nan", alpha.full((3,), math.nan, engine=engine)


def short(value: Any) -> str:
    """The value in a few words."""
    try:
        text = repr(value)
    except ValueError:
        text = type(value).__name__
    return text if len(text) < 60 else text[:60] + "..."


# -- what is called ----------------------------------------------------------------------------------------------


def defaults(function: Call) -> dict[str, Any] | None:
    """Arguments by name, with their defaults; None where another than ``x`` has none."""
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.default is parameter.empty and name not in ("x", "input"):
            return None
        found[name] = parameter.default
    return found


def by_parameters(function: Call, given: dict[str, Any]) -> dict[str, Any]:
    """Arguments that are named x, y, ... in their order, under the names that the function has for them."""
    names = list(inspect.signature(function).parameters)
    free = iter([name for name in names if name not in given])
    return {name if name in names else next(free): value for name, value in given.items()}


def recorded(name: str, function: Any, engine: Engine) -> dict[str, Any] | None:
    """Arguments by name that the campaign's record of a function draws; None where it has no record."""
    record = next((one for one in RECORDS if one.name == name and one.call is None), None)
    if record is None or function is None:
        return None
    for index in range(1000):
        draw = Draw(7, index, 60)
        case = record.draw(draw)
        tensors = case.inputs()
        if draw.values == "ordinary" and case.valid and all(one.numpy().size for one in tensors):

            def made(one: Input) -> alpha.Tensor:
                x = alpha.tensor(np.ascontiguousarray(one.numpy()), engine=engine)
                return x.requires_grad_(one.base.requires_grad)

            args, options = walk((case.args, case.options), made)
            bound = inspect.signature(function).bind(*args, **options)
            return dict(bound.arguments)
    return None


USUAL: dict[str, Any] = {
    "in_channels": 4, "out_channels": 2, "in_features": 4, "out_features": 2, "in1_features": 4, "in2_features": 3,
    "num_features": 4, "num_channels": 4, "num_groups": 2, "kernel_size": 3, "output_size": 2, "input_size": 4,
    "hidden_size": 3, "embed_dim": 4, "num_heads": 2, "d_model": 4, "nhead": 2, "dim_feedforward": 8, "padding": 1,
    "num_embeddings": 5, "embedding_dim": 2, "upscale_factor": 2, "downscale_factor": 2, "groups": 2, "size": 3,
    "normalized_shape": 3, "num_layers": 1, "unflattened_size": (2, 2), "dim": 1, "norm_type": 2.0, "n_classes": 6,
    "cutoffs": [2, 4], "value": 1.0, "module": nn.ReLU(), "mode": "LSTM", "bias": True, "num_chunks": 4, "kind": "lstm",
    "encoder_layer": nn.TransformerEncoderLayer(4, 2, 8), "decoder_layer": nn.TransformerDecoderLayer(4, 2, 8),
}  # fmt: skip
"""Arguments of layers' constructors by their names."""


def usual(kind: Call) -> dict[str, Any] | None:
    """Arguments by name that a layer's constructor takes; None where one is not among the usual ones."""
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.default is parameter.empty and name not in USUAL:
            return None
        found[name] = parameter.default if parameter.default is not parameter.empty else USUAL[name]
    return found


_NOT_OF_ONE = (
    "CosineSimilarity", "PairwiseDistance", "Transformer", "UninitializedBuffer", "UninitializedParameter",
)  # fmt: skip
"""Classes of nn that are not called with one tensor."""


class Samples:
    """Arguments that every public function takes, made anew for each call."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def floats(self, *shape: int, grad: bool = True) -> alpha.Tensor:
        # No sums of two equal values: what depends on ties has a test of its own.
        values = 1 + np.arange(math.prod(shape), dtype=np.float32).reshape(shape) / 10
        return alpha.tensor(values, engine=self.engine, requires_grad=grad)

    def ints(self, *values: int) -> alpha.Tensor:
        return alpha.tensor(np.array(values, np.int64), engine=self.engine)

    def functions(self) -> dict[str, dict[str, Any]]:
        """Arguments by the names of ``alpha``'s functions: those of a tensor and options need not be listed."""
        f, i = self.floats, self.ints
        x, image = f(2, 3), f(2, 4, 4, 3)
        found: dict[str, dict[str, Any]] = {}
        for name in alpha.functions.__all__:
            arguments = defaults(getattr(alpha, name))
            if arguments is not None and (first := arguments.keys() & {"x", "input"}):
                found[name] = {**arguments, first.pop(): x}
        for name in [
            "add",
            "div",
            "eq",
            "floor_divide",
            "ge",
            "gt",
            "le",
            "lt",
            "maximum",
            "minimum",
            "mul",
            "ne",
            "remainder",
            "sub",
        ]:
            found[name] = {"x": x, "y": f(2, 3)}
        found["pow"] = {"x": x, "exponent": f(2, 3)}
        for name in ("logical_and", "logical_or", "logical_xor"):
            found[name] = {"x": x.detach() > 1, "y": x.detach() > 1}
        for name in ["all", "any", "logsumexp", "mean", "prod", "sum"]:
            found[name] = {"x": x, "dim": 1, "keepdim": True}
        for name in ("argmax", "argmin", "max", "min"):
            found[name] = {"x": x, "dim": 1, "keepdim": False}
        for name in ("std", "var"):
            found[name] = {"x": x, "dim": 1, "unbiased": True, "keepdim": False}
        for name in ("add_", "copy_", "div_", "mul_", "sub_"):
            found[name] = {"x": f(2, 3, grad=False), ("source" if name == "copy_" else "other"): f(2, 3, grad=False)}
        for name in ("softmax", "log_softmax", "cumsum"):
            found[name] = {"x": x, "dim": 1}
        for name in ("rand", "randn", "zeros", "ones", "empty"):
            found[name] = {"shape": (2, 3), "dtype": "float32", "requires_grad": False, "engine": self.engine}
        for name in ("cat", "concat", "stack"):
            found[name] = {"tensors": [x, x], "dim": 0}
        for name in ("repeat", "tile"):
            found[name] = {"x": x, "repeats": (2, 1)}
        for name in ("broadcast_to", "expand", "reshape"):
            found[name] = {"x": f(1, 3), "shape": (3,) if name == "reshape" else (2, 3)}
        creation = {"dtype": "float32", "requires_grad": False, "engine": self.engine}
        for axes in (1, 2, 3):
            sides = (4,) * axes
            common = {"bias": f(2), "stride": 1, "padding": 1, "dilation": 1, "groups": 1}
            found[f"conv{axes}d"] = {"input": f(2, *sides, 3), "weight": f(2, *(3,) * axes, 3), **common}
            found[f"conv_transpose{axes}d"] = {
                "input": f(2, *sides, 3), "weight": f(3, *(3,) * axes, 2), "output_padding": 0, **common
            }  # fmt: skip
        found["conv2d"] |= {"residual": f(2, 4, 4, 2), "activation": "leaky_relu", "negative_slope": 0.1}
        window = {"input": image, "kernel_size": 2, "stride": 2, "padding": 0, "ceil_mode": False}
        loss = {"reduction": "mean"}
        norm = {"weight": f(3), "bias": f(3), "eps": 1e-5}
        running = {"running_mean": f(3, grad=False), "running_var": f(3, grad=False), "momentum": 0.1}
        rows = {"target": i(2, 0), "reduction": "mean", "ignore_index": -100, "weight": f(3, grad=False)}
        found |= {
            "arange": {"start": 0, "end": 3, "step": 1, **creation},
            "eye": {"n": 2, "m": 3, **creation},
            "celu": {"x": x, "alpha": 1.0, "inplace": False},
            "threshold": {"x": x, "threshold": 0.5, "value": 1.0, "inplace": False},
            "prelu": {"x": x, "weight": f(3)},
            "linspace": {"start": 0.0, "end": 1.0, "steps": 3, **creation},
            "logspace": {"start": 0.0, "end": 1.0, "steps": 3, "base": 10.0, **creation},
            "as_tensor": {"data": [1.0, 2.0], "dtype": "float32", "engine": self.engine},
            "asarray": {
                "obj": np.ones(2, np.float32), "dtype": "float32", "copy": True, "requires_grad": False,
                "engine": self.engine,
            },
            "from_numpy": {"ndarray": np.ones(2), "engine": self.engine},
            "from_dlpack": {"ext_tensor": np.ones(2), "copy": True, "engine": self.engine},
            "frombuffer": {
                "buffer": bytearray(16), "dtype": "float32", "count": 2, "offset": 4, "requires_grad": False
            },
            "bernoulli": {"p": f(2) * 0.5, "generator": alpha.Generator()},
            "multinomial": {"weights": f(2, 3), "num_samples": 2, "replacement": True, "generator": None},
            "normal": {"mean": 0.0, "std": 1.0, "size": (2, 3), "dtype": "float32", "engine": self.engine},
            "randint": {"low": 0, "high": 5, "size": (2, 3), "dtype": "int64", "engine": self.engine},
            "randint_like": {"x": x, "low": 0, "high": 5, "dtype": "int64", "generator": None},
            "randperm": {"n": 5, "dtype": "int64", "engine": self.engine, "generator": None},
            "full": {"size": (2, 3), "fill_value": 1.0, **creation},
            "full_like": {"x": x, "fill_value": 1.0, "dtype": "float32", "requires_grad": False},
            "tensor": {"data": [[1.0, 2.0]], **creation},
            "dropout": {"input": x, "p": 0.5, "training": True},
            "cast": {"x": x, "dtype": "float64"},
            "clamp": {"x": x, "min": 0.0, "max": 1.0},
            "contiguous": {"x": x, "order": (1, 0)},
            "to": {"x": x, "target": "float64"},
            "where": {"condition": x.detach() > 1, "x": x, "y": x},
            "embedding": {"input": i(0, 1), "weight": f(3, 2), "padding_idx": 1},
            "gather": {"x": x, "dim": 0, "index": self.ints(1, 0, 1).reshape(1, 3)},
            "getitem": {"x": x, "key": (0, slice(1, 2))},
            "index_select": {"x": x, "dim": 0, "index": i(0, 1)},
            "masked_fill": {"x": x, "mask": x.detach() > 1, "value": 0.0},
            "one_hot": {"labels": i(0, 1), "num_classes": 3, "dtype": "int64"},
            "setitem": {"x": f(2, 3, grad=False), "key": (0, slice(1, 2)), "value": 0.0},
            "take_along_dim": {"x": x, "index": i(1, 0, 1).reshape(1, 3), "dim": 0},
            "interpolate": {"input": image, "size": (2, 3), "mode": "bilinear", "align_corners": False},
            "interpolate by factor": {
                "input": image, "scale_factor": (2.0, 1.5), "mode": "nearest", "align_corners": None
            },
            "dot": {"x": f(3), "y": f(3)},
            "linear": {"input": x, "weight": f(4, 3), "bias": f(4)},
            "matmul": {"x": x, "y": f(3, 2)},
            "outer": {"x": f(3), "y": f(2)},
            "scaled_dot_product_attention": {
                "query": f(2, 3, 4), "key": f(2, 5, 4), "value": f(2, 5, 2), "attn_mask": f(3, 5), "dropout_p": 0.0,
                "is_causal": False, "scale": 0.5, "enable_gqa": False,
            },
            "binary_cross_entropy_with_logits": {"input": x, "target": f(2, 3), "pos_weight": f(3, grad=False), **loss},
            "cross_entropy": {"input": x, "label_smoothing": 0.1, **rows},
            "nll_loss": {"input": x, **rows},
            "l1_loss": {"input": x, "target": f(2, 3), **loss},
            "mse_loss": {"input": x, "target": f(2, 3), **loss},
            "batch_norm": {
                "input": image, "training": True, "residual": f(2, 4, 4, 3), "activation": "leaky_relu",
                "negative_slope": 0.1, **norm, **running,
            },
            "group_norm": {"input": image, "num_groups": 3, **norm},
            "instance_norm": {"input": image, "use_input_stats": True, **norm, **running},
            "layer_norm": {"input": image, "normalized_shape": (3,), **norm},
            "rms_norm": {"input": image, "normalized_shape": (3,), "weight": norm["weight"], "eps": 1e-5},
            "adaptive_avg_pool2d": {"input": image, "output_size": (3, 2)},
            "avg_pool2d": {**window, "count_include_pad": True},
            "max_pool2d": {**window, "dilation": 1},
            "norm": {"x": x, "p": 2, "dim": 1, "keepdim": False},
            "sort": {"x": x, "dim": 0, "descending": True},
            "chunk": {"x": x, "chunks": 2, "dim": 0},
            "conv_tbc": {"input": f(5, 2, 3), "weight": f(3, 3, 4), "bias": f(4), "pad": 1},
            "native_channel_shuffle": {"input": f(2, 4, 4, 4), "groups": 2},
            "to_dlpack": {"tensor": x.detach()},
            "unsafe_chunk": {"input": x, "chunks": 2, "dim": 0},
            "unsafe_split": {"tensor": x, "split_size": 1, "dim": 0},
            "flatten": {"x": x, "start_dim": 0, "end_dim": 1},
            "flip": {"x": x, "dims": (0,)},
            "pad": {"input": x, "pad": (1, 2), "mode": "constant", "value": 0.0},
            "permute": {"x": x, "axes": (1, 0)},
            "split": {"x": x, "size": 1, "dim": 0},
            "squeeze": {"x": f(1, 3), "dim": 0},
            "transpose": {"x": x, "first": 0, "second": 1},
            "unsqueeze": {"x": x, "dim": 0},
        }  # fmt: skip
        found = {name: by_parameters(getattr(alpha, name.split()[0]), given) for name, given in found.items()}
        for name in alpha.functions.__all__:
            if name not in {listed.split()[0] for listed in found}:
                given = recorded(f"alpha.{name}", getattr(alpha, name), self.engine)
                given = self.by_names(getattr(alpha, name)) if given is None else given
                if given is not None:
                    found[name] = given
        return found

    def by_names(self, function: Call) -> dict[str, Any] | None:
        """Arguments that functions without a record take, told by their names."""
        matrix = alpha.tensor(np.array([[2, 1], [1, 3]], np.float32), engine=self.engine, requires_grad=True)
        cube, row, places = self.floats(2, 2, 2), matrix.detach()[0], self.ints(1, 0, 1, 0).reshape(2, 2)
        name = getattr(function, "__name__", "")
        usual = {
            **dict.fromkeys(
                ("A", "B", "L", "a", "b", "x", "y", "input", "other", "mat", "mat1", "mat2", "src"), matrix
            ),
            **dict.fromkeys(("source", "obj", "tensor1", "tensor2"), matrix),
            **dict.fromkeys(("batch1", "batch2"), cube),
            **dict.fromkeys(("vec", "vec1", "vec2", "tau"), row),
            **dict.fromkeys(("LU", "LU_data", "LD"), matrix),
            **dict.fromkeys(("LU_pivots", "pivots"), alpha.tensor(np.array([2, 2], np.int32), engine=self.engine)),
            "tensors": [matrix, matrix],
            "matrices": [matrix, matrix],
            **dict.fromkeys(("from_", "to", "type1", "type2"), "float32"),
            "n": 2,
            "upper": True,
            "shapes": [(2, 1), (3,)],
            "equation": "ij,jk->ik",
            "operands": [matrix, matrix],
            "size": (2, 2),
            "stride": (2, 1),
            "dim": 0,
            "dim0": 0,
            "dim1": 1,
            "index": places,
            "reduce": "amax",
            "k": 1,
            "q": 0.5,
            "p": 2.0,
            "maxnorm": 1.0,
            "bins": 3,
            "sizes": (2, 1),
            "destination": 1,
            "indices_or_sections": 2,
            "split_sizes": [1, 1],
            "threshold": 0.5,
            "value": 1.0,
            **dict.fromkeys(("real", "imag", "abs", "angle"), matrix),
            "n_fft": 2,
        }
        special = {
            "stft": {"return_complex": True},
            "bmm": {"input": cube, "mat2": cube},
            "baddbmm": {"input": cube},
            "dsplit": {"input": cube},
            "cross": {"input": self.floats(2, 3), "other": self.floats(2, 3)},
            "vdot": {"input": row, "other": row},
            "ger": {"input": row},
            "combinations": {"input": row},
            "moveaxis": {"source": 0},
            "index_reduce": {"index": self.ints(0, 1)},
            **{
                f"upsample{kind}": {"input": self.floats(2, 4, 4, 3), "size": 2}
                for kind in ("", "_nearest", "_bilinear")
            },
            "slice_scatter": {"src": matrix[:1], "end": 1},
            "as_strided_scatter": {"storage_offset": 0},
        }.get(name, {})
        if name.endswith("_"):
            usual["input"] = matrix.detach()
        found: dict[str, Any] = {}
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.default is parameter.empty and name not in usual:
                return None
            found[name] = special.get(name, usual[name] if parameter.default is parameter.empty else parameter.default)
        return found

    def methods(self) -> dict[str, dict[str, Any]]:
        """Arguments by the names of Tensor's methods, of a tensor (2, 3) on the graph unless given as ``self``."""
        x = self.floats(2, 3)
        flat = self.floats(2, 3, grad=False)
        reduction = {"dim": 1, "keepdim": False}
        found: dict[str, dict[str, Any]] = {
            "is_contiguous": {"order": (0, 1)}, "size": {"axis": 0}, "pow": {"exponent": 2},
            "clamp": {"min": 0, "max": 1}, "softmax": {"dim": 0}, "log_softmax": {"dim": 0},
            "astype": {"dtype": "int64"},
            "to": {"target": "int64"}, "contiguous": {"order": (1, 0)}, "sum": reduction, "mean": reduction,
            "var": reduction, "std": reduction, "prod": reduction, "max": reduction, "min": reduction,
            "logsumexp": reduction, "norm": {"p": 2, **reduction}, "argmax": {"dim": 0}, "argmin": {"dim": 0},
            "any": reduction, "all": reduction, "cumsum": {"dim": 0}, "sort": {"dim": 0, "descending": False},
            "reshape": {"shape": (3, 2)}, "permute": {"axes": (1, 0)}, "expand": {"shape": (2, 2, 3)},
            "transpose": {"first": 0, "second": 1}, "flatten": {"start_dim": 0, "end_dim": 1},
            "squeeze": {"dim": 0}, "unsqueeze": {"dim": 0}, "split": {"size": 1, "dim": 0},
            "chunk": {"chunks": 1, "dim": 0}, "flip": {"dims": (0,)}, "masked_fill": {"mask": flat > 1, "value": 0.0},
            "gather": {"dim": 0, "index": self.ints(1, 0, 1).reshape(1, 3)}, "add_": {"self": flat, "other": 1.0},
            "sub_": {"self": flat, "other": 1.0}, "mul_": {"self": flat, "other": 1.0},
            "div_": {"self": flat, "other": 1.0}, "copy_": {"self": flat, "source": 1.0},
            "fill_": {"self": flat, "value": 1.0}, "view": {"shape": (3, 2)},
            "broadcast_to": {"shape": (2, 2, 3)}, "expand_as": {"other": x}, "reshape_as": {"other": x},
            "view_as": {"other": x}, "type_as": {"other": x}, "repeat": {"repeats": (1, 2)}, "tile": {"repeats": (2,)},
            "where": {"condition": flat > 1, "other": 0.0}, "new_tensor": {"data": [1.0]}, "new_empty": {"size": (2,)},
            "new_zeros": {"size": (2,)}, "new_ones": {"size": (2,)}, "new_full": {"size": (2,), "fill_value": 1.0},
            "clamp_": {"self": flat, "min": 0, "max": 1}, "cumsum_": {"self": flat, "dim": 0},
            "masked_fill_": {"self": flat, "mask": flat > 1, "value": 0.0}, "relu_": {"self": flat, "inplace": False},
            "uniform_": {"self": flat, "low": 0.0, "high": 1.0}, "normal_": {"self": flat, "mean": 0.0, "std": 1.0},
            "bernoulli_": {"self": flat, "p": 0.5}, "cauchy_": {"self": flat, "median": 0.0, "sigma": 1.0},
            "exponential_": {"self": flat, "lambd": 1.0}, "log_normal_": {"self": flat, "mean": 0.0, "std": 1.0},
            "geometric_": {"self": flat, "p": 0.5}, "random_": {"self": flat, "bounds": (0, 5)},
            "resize_": {"self": flat, "sizes": (3, 2)}, "resize_as_": {"self": flat, "other": x.detach()},
            "squeeze_": {"self": flat, "dim": 0}, "unsqueeze_": {"self": flat, "dim": 0}, "t_": {"self": flat},
            "transpose_": {"self": flat, "dim0": 0, "dim1": 1}, "type": {"dtype": "float64"},
            "as_strided_": {"self": flat, "size": (2, 2), "stride": (1, 2), "storage_offset": 0},
            "new_empty_strided": {"size": (2,), "stride": (1,)}, "new": {"args": (2,)}, "to_dense": {"dtype": "int64"},
            "apply_": {"self": flat, "callable": abs}, "is_set_to": {"tensor": x}, "share_memory_": {"self": flat},
            **{
                f"{name}_": {"self": flat, "y": 1.0}
                for name in ("eq", "ne", "lt", "le", "gt", "ge", "floor_divide", "remainder")
            },
            **{f"{name}_": {"self": flat > 1, "y": True} for name in ("logical_and", "logical_or", "logical_xor")},
            "pow_": {"self": flat, "exponent": 2},
            "strided": {"offset": 0, "shape": (3,), "strides": (1,)},
            "backward": {"gradient": self.floats(2, 3, grad=False), "retain_graph": False},
            "requires_grad_": {"requires_grad": True}, "register_hook": {"hook": lambda grad: grad},
            **{name: {"memory_format": alpha.contiguous_format} for name in (*_CASTS, "cpu")},
            "numpy": {"self": flat, "force": False}, "stride": {"dim": 0},
            "fill_diagonal_": {"self": flat, "fill_value": 1.0, "wrap": False},
            "unfold": {"dimension": 1, "size": 2, "step": 1},
            "register_post_accumulate_grad_hook": {"hook": lambda leaf: None},
            "__getitem__": {"key": 0}, "__setitem__": {"self": flat, "key": 0, "value": 1.0}, "__add__": {"y": x},
            "__radd__": {"other": 1.0}, "__sub__": {"y": x}, "__mul__": {"y": x}, "__truediv__": {"y": x},
            "__rtruediv__": {"other": 1.0}, "__pow__": {"exponent": 2}, "__rpow__": {"other": 2}, "__mod__": {"y": 2},
            "__floordiv__": {"y": 2}, "__matmul__": {"y": self.floats(3, 2)}, "__eq__": {"other": x},
            "__lt__": {"y": x}, "__and__": {"self": flat > 1, "other": flat > 1},
            "__iadd__": {"self": flat, "other": 1.0},
        }  # fmt: skip
        for name, given in found.items():
            if (method := getattr(alpha.Tensor, name, None)) is not None:
                others = {key: value for key, value in given.items() if key != "self"}
                made = by_parameters(method, {"self_": None, **others})
                made.pop(next(iter(made)))
                found[name] = {**{key: value for key, value in given.items() if key == "self"}, **made}
        for name, method in vars(alpha.Tensor).items():
            is_of_tensor = callable(method) and method is not getattr(alpha, name, None)
            function = getattr(alpha, name.rstrip("_"), None)
            if not is_of_tensor or name in found or name.startswith("_") or not callable(function):
                continue
            given = recorded(f"alpha.{name.rstrip('_')}", function, self.engine) or self.by_names(function)
            first = next((key for key, value in (given or {}).items() if isinstance(value, alpha.Tensor)), None)
            if given is None or first is None:
                continue
            tensor = given.pop(first).detach() if name.endswith("_") else given.pop(first)
            made = by_parameters(method, {"self_": None, **given})
            made.pop(next(iter(made)))
            found[name] = {"self": tensor, **made}
        return found

    def layers(self) -> dict[str, tuple[dict[str, Any], tuple[int, ...] | None]]:
        """Constructor's arguments by the names of layers, and the shape of an input; by default of ``defaults``."""
        image = (2, 4, 4, 3)
        norm = {"eps": 1e-5, "momentum": 0.1, "affine": True, "track_running_stats": True}
        found: dict[str, tuple[dict[str, Any], tuple[int, ...] | None]] = {}
        for name in nn.__all__:
            kind = getattr(nn, name)
            if isinstance(kind, type) and kind is not nn.Module and (arguments := defaults(kind)) is not None:
                found[name] = arguments, None if name.endswith(("Loss", "Loss2d")) or name in _NOT_OF_ONE else (2, 3)
        for axes in (1, 2, 3):
            conv = {
                "in_channels": 3, "out_channels": 2, "kernel_size": 3, "stride": 1, "padding": 1, "dilation": 1,
                "groups": 1, "bias": True, "layout": None,
            }  # fmt: skip
            shape = (2, *(4,) * axes, 3)
            found[f"Conv{axes}d"] = conv, shape
            found[f"ConvTranspose{axes}d"] = {**conv, "output_padding": 0}, shape
        window = {"kernel_size": 2, "stride": 2, "padding": 0, "ceil_mode": False}
        found |= {
            "GELU": ({"approximate": "tanh"}, (2, 3)),
            "AdaptiveAvgPool2d": ({"output_size": 2}, image),
            "AvgPool2d": ({**window, "count_include_pad": True}, image),
            "MaxPool2d": ({**window, "dilation": 1}, image),
            "BCEWithLogitsLoss": ({"reduction": "mean", "pos_weight": self.floats(3, grad=False)}, None),
            "BatchNorm1d": ({"num_features": 3, **norm}, (2, 3)),
            "BatchNorm2d": ({"num_features": 3, **norm}, image),
            "InstanceNorm2d": ({"num_features": 3, **norm}, image),
            "CrossEntropyLoss": (
                {"weight": None, "ignore_index": -100, "reduction": "mean", "label_smoothing": 0.1}, None
            ),
            "Embedding": ({"num_embeddings": 5, "embedding_dim": 2, "padding_idx": 1}, None),
            "Flatten": ({"start_dim": 1, "end_dim": -1}, image),
            "GroupNorm": ({"num_groups": 3, "num_channels": 3, "eps": 1e-5, "affine": True}, image),
            "LayerNorm": ({"normalized_shape": 3, "eps": 1e-5, "elementwise_affine": True, "bias": True}, (2, 3)),
            "RMSNorm": ({"normalized_shape": 3, "eps": 1e-5, "elementwise_affine": True}, (2, 3)),
            "Linear": ({"in_features": 3, "out_features": 2, "bias": True}, (2, 3)),
            "MSELoss": ({"reduction": "mean"}, None),
            "Upsample": ({"size": None, "scale_factor": 2.0, "mode": "nearest", "align_corners": None}, image),
            "Threshold": ({"threshold": 0.5, "value": 1.0, "inplace": False}, (2, 3)),
            "GLU": ({"dim": 0}, (2, 3)),
            "Softmax": ({"dim": 0}, (2, 3)),
            "Softmin": ({"dim": 0}, (2, 3)),
            "LogSoftmax": ({"dim": 0}, (2, 3)),
            "Buffer": ({"data": self.floats(2, grad=False), "persistent": True}, None),
            "Parameter": ({"data": self.floats(2, grad=False), "requires_grad": True}, None),
            "AveragedViews": ({"module": nn.ReLU(), "shift": 1, "mirror": True}, image),
            "Sequential": ({"modules": nn.ReLU()}, (2, 3)),
            "ModuleList": ({"modules": [nn.ReLU()]}, None),
            "ModuleDict": ({"modules": {"a": nn.ReLU()}}, None),
            "ParameterList": ({"values": [self.floats(2, grad=False)]}, None),
            "ParameterDict": ({"parameters": {"a": self.floats(2, grad=False)}}, None),
        }  # fmt: skip
        for name in nn.__all__:
            kind = getattr(nn, name)
            if isinstance(kind, type) and kind is not nn.Module and name not in found:
                arguments = usual(kind)
                if arguments is not None:
                    found[name] = arguments, None
        return found

    def others(self) -> dict[str, Sample]:
        """Optimizers (with a step), schedulers (with three), initialisers, utilities, switches."""
        parameter = nn.Parameter(self.floats(2, 3, grad=False))
        parameter.grad = self.floats(2, 3, grad=False)
        common = {"params": [parameter], "lr": 0.1, "weight_decay": 0.1}
        found: dict[str, Sample] = {
            "optim.SGD": (optim.SGD, {**common, "momentum": 0.9, "dampening": 0.0, "nesterov": True}),
            "optim.ASGD": (optim.ASGD, {**common, "lambd": 0.1, "alpha": 0.7, "t0": 2.0}),
            "optim.Adadelta": (optim.Adadelta, {**common, "rho": 0.9, "eps": 1e-6}),
            "optim.Adafactor": (
                optim.Adafactor, {**common, "beta2_decay": -0.8, "eps": (1e-8, 1e-3), "d": 1.0, "maximize": True},
            ),
            "optim.Adagrad": (
                optim.Adagrad, {**common, "lr_decay": 0.1, "initial_accumulator_value": 0.1, "eps": 1e-8},
            ),
            "optim.Adam": (optim.Adam, {
                **common, "betas": (0.9, 0.99), "eps": 1e-8, "amsgrad": True, "maximize": True, "foreach": False,
                "capturable": False,
            }),
            "optim.AdamW": (optim.AdamW, {**common, "betas": (0.9, 0.99), "eps": 1e-8}),
            "optim.Adamax": (optim.Adamax, {**common, "betas": (0.9, 0.99), "eps": 1e-8}),
            "optim.NAdam": (optim.NAdam, {
                **common, "betas": (0.9, 0.99), "eps": 1e-8, "momentum_decay": 0.004, "decoupled_weight_decay": True,
            }),
            "optim.RAdam": (optim.RAdam, {**common, "betas": (0.9, 0.99), "eps": 1e-8}),
            "optim.Rprop": (
                optim.Rprop, {"params": [parameter], "lr": 0.1, "etas": (0.5, 1.2), "step_sizes": (1e-6, 50.0)},
            ),
            "optim.Muon": (optim.Muon, {
                **common, "momentum": 0.9, "nesterov": True, "ns_coefficients": (3.0, -4.0, 2.0), "eps": 1e-7,
                "ns_steps": 2, "adjust_lr_fn": "original", "rescale": True,
            }),
            "optim.RMSprop": (
                optim.RMSprop, {**common, "alpha": 0.9, "eps": 1e-8, "momentum": 0.9, "centered": True},
            ),
        }  # fmt: skip
        found = {name: (_stepping(make), arguments) for name, (make, arguments) in found.items()}
        sgd = optim.SGD([parameter], 0.1, momentum=0.9)
        cycle = {
            "optimizer": sgd, "max_lr": 0.1, "total_steps": 10, "pct_start": 0.3, "anneal_strategy": "cos",
            "cycle_momentum": True, "base_momentum": 0.8, "max_momentum": 0.9, "div_factor": 25.0,
            "final_div_factor": 1e4, "three_phase": False,
        }  # fmt: skip
        schedulers: dict[str, Sample] = {
            "ChainedScheduler": (optim.ChainedScheduler, {"schedulers": [optim.StepLR(sgd, 2)], "optimizer": sgd}),
            "ConstantLR": (optim.ConstantLR, {"optimizer": sgd, "factor": 0.5, "total_iters": 2}),
            "CosineAnnealingWarmRestarts": (
                optim.CosineAnnealingWarmRestarts, {"optimizer": sgd, "T_0": 2, "T_mult": 2, "eta_min": 0.0}
            ),
            "CyclicLR": (optim.CyclicLR, {
                "optimizer": sgd, "base_lr": 0.1, "max_lr": 0.2, "step_size_up": 3, "step_size_down": 4,
                "mode": "exp_range", "gamma": 0.9, "scale_mode": "cycle", "cycle_momentum": True,
                "base_momentum": 0.8, "max_momentum": 0.9, "last_epoch": -1,
            }),
            "MultiplicativeLR": (optim.MultiplicativeLR, {"optimizer": sgd, "lr_lambda": lambda epoch: 0.5}),
            "PolynomialLR": (optim.PolynomialLR, {"optimizer": sgd, "total_iters": 4, "power": 2.0}),
            "ReduceLROnPlateau": (optim.ReduceLROnPlateau, {
                "optimizer": sgd, "mode": "min", "factor": 0.5, "patience": 1, "threshold": 1e-4,
                "threshold_mode": "rel", "cooldown": 1, "min_lr": 0.0, "eps": 1e-8,
            }),
            "SWALR": (
                optim.swa_utils.SWALR,
                {"optimizer": sgd, "swa_lr": 0.1, "anneal_epochs": 3, "anneal_strategy": "cos"},
            ),
            "CosineAnnealingLR": (optim.CosineAnnealingLR, {"optimizer": sgd, "T_max": 5, "eta_min": 0.0}),
            "ExponentialLR": (optim.ExponentialLR, {"optimizer": sgd, "gamma": 0.5}),
            "LambdaLR": (optim.LambdaLR, {"optimizer": sgd, "lr_lambda": lambda epoch: 0.5}),
            "LinearLR": (
                optim.LinearLR, {"optimizer": sgd, "start_factor": 0.5, "end_factor": 1.0, "total_iters": 4}
            ),
            "MultiStepLR": (optim.MultiStepLR, {"optimizer": sgd, "milestones": [2, 4], "gamma": 0.5}),
            "OneCycleLR": (optim.OneCycleLR, cycle),
            "OneCycleLR by epochs": (
                optim.OneCycleLR, {"optimizer": sgd, "max_lr": 0.1, "epochs": 2, "steps_per_epoch": 5}
            ),
            "StepLR": (optim.StepLR, {"optimizer": sgd, "step_size": 2, "gamma": 0.5}),
            "SequentialLR": (
                optim.SequentialLR,
                {"optimizer": sgd, "schedulers": [optim.StepLR(sgd, 2), optim.StepLR(sgd, 3)], "milestones": [2]},
            ),
        }  # fmt: skip
        found |= {f"optim.{name}": (_stepping(make), arguments) for name, (make, arguments) in schedulers.items()}
        model = nn.Linear(3, 2)
        found["optim.AveragedModel"] = optim.AveragedModel, {"model": model, "decay": 0.9, "use_buffers": False}
        found["optim.clip_grad_norm_"] = (
            optim.clip_grad_norm_,
            {"parameters": [parameter], "max_norm": 1.0, "norm_type": 2.0, "error_if_nonfinite": False},
        )
        found["optim.LBFGS"] = optim.LBFGS, {
            "params": [parameter], "lr": 0.1, "max_iter": 2, "max_eval": 3, "tolerance_grad": 0.1,
            "tolerance_change": 0.1, "history_size": 2, "line_search_fn": "strong_wolfe",
        }  # fmt: skip
        found["optim.swa_utils.AveragedModel"] = (
            optim.swa_utils.AveragedModel,
            {"model": model, "avg_fn": optim.swa_utils.get_ema_avg_fn(), "use_buffers": False},
        )
        found["nn.utils.get_total_norm"] = (
            nn.utils.get_total_norm,
            {"tensors": [parameter], "norm_type": 2.0, "error_if_nonfinite": False, "foreach": None},
        )
        found["nn.utils.clip_grads_with_norm_"] = (
            nn.utils.clip_grads_with_norm_,
            {"parameters": [parameter], "max_norm": 1.0, "total_norm": self.floats(1, grad=False)},
        )
        found["optim.clip_grad_value_"] = optim.clip_grad_value_, {"parameters": [parameter], "clip_value": 1.0}
        for name in dir(nn.init):
            function = getattr(nn.init, name)
            if name.endswith("_") and not name.startswith("_"):
                arguments: dict[str, Any] = {}
                known = {"tensor": self.floats(2, 3, grad=False), "value": 1.0, "val": 1.0}
                if name == "dirac_":
                    known["tensor"] = self.floats(2, 3, 3, grad=False)
                if name == "whiten_patches_":
                    known |= {"tensor": self.floats(2, 1, 2, 3, grad=False), "images": self.floats(2, 4, 4, 3)}
                for key, value in inspect.signature(function).parameters.items():
                    arguments[key] = known.get(key, value.default)
                found[f"nn.init.{name}"] = function, arguments
        x = self.floats(2, 3)
        found |= {
            "manual_seed": (alpha.manual_seed, {"seed": 0}),
            "set_float32_precision": (alpha.set_float32_precision, {"precision": "highest"}),
            "set_search": (alpha.set_search, {"on": False}),
            "set_rng_state": (alpha.set_rng_state, {"new_state": alpha.get_rng_state()}),
            "set_printoptions": (
                printing_as, dict.fromkeys(("precision", "threshold", "edgeitems", "linewidth", "profile", "sci_mode"))
            ),
            "set_deterministic_debug_mode": (alpha.set_deterministic_debug_mode, {"debug_mode": 0}),
            "use_deterministic_algorithms": (alpha.use_deterministic_algorithms, {"mode": False, "warn_only": False}),
            "graph": (alpha.graph, {"step": lambda x: x, "warmup": 2}),
            "graph(...)": (spread(alpha.graph(lambda x: x).__call__), {"inputs": x.detach()}),
            "engine.check": (self.engine.check, {"on": True}),
            "engine.sync": (self.engine.sync, {"on": False}),
            "engine.from_numpy": (self.engine.from_numpy, {"array": np.zeros(3)}),
            "set_image_layout": (layout_of, {"layout": "NHWC"}),
            "no_grad": (lambda on: alpha.set_grad_enabled(on).__enter__(), {"on": True}),
            "linalg.gemv": (alpha.linalg.gemv, {"A": x, "x": self.floats(3), "trans": False}),
            **{
                f"linalg.{name}": (getattr(alpha.linalg, name), given)
                for name in alpha.linalg.__all__
                if name not in ("gemv", "ger", "ger_")
                and (given := self.by_names(getattr(alpha.linalg, name))) is not None
            },
            **{f"fft.{name}": (f := getattr(alpha.fft, name), self.by_names(f) or {}) for name in alpha.fft.__all__},
            "assert_close": (alpha_testing().assert_close, {"actual": x, "expected": x, "rtol": 0.0, "atol": 0.0}),
            "gradcheck": (
                lambda **given: alpha_testing().gradcheck(alpha.exp, given.pop("x"), **given),
                {"x": self.floats(2), "eps": 1e-6, "rtol": 1e-5, "atol": 1e-7, "seed": 0},
            ),
        }  # fmt: skip
        return found


def layout_of(layout: Any) -> None:
    """Sets a layout for a moment."""
    with alpha.set_image_layout(layout):
        pass


def printing_as(**options: Any) -> None:
    """Prints a tensor in a way."""
    try:
        alpha.set_printoptions(**options)
        repr(alpha.arange(300.0))
    finally:
        alpha.set_printoptions(profile="default")


def alpha_testing() -> Any:
    import alpha.testing

    return alpha.testing


def _stepping(make: Call) -> Call:
    """Makes an optimizer or a scheduler and takes three steps."""

    def run(**arguments: Any) -> None:
        made = make(**arguments)
        for _ in range(3):
            made.step(1.0) if isinstance(made, optim.ReduceLROnPlateau) else made.step()

    return run


def spread(function: Call) -> Call:
    """The function with its ``*arguments`` given as one keyword."""
    parameters = inspect.signature(function).parameters.values()
    several = next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), None)
    before = [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]

    def run(**arguments: Any) -> Any:
        if several is None or several not in arguments:
            return function(**arguments)
        value = arguments.pop(several)
        return function(*(arguments.pop(name) for name in before if name in arguments), value, **arguments)

    return run


def _layer(make: Call, samples: Samples, shape: tuple[int, ...] | None) -> Call:
    def run(**arguments: Any) -> Any:
        layer = make(**arguments)
        return layer if shape is None else layer(samples.floats(*shape))

    return run


def calls(engine: Engine) -> Iterator[tuple[str, Callable[[], Sample]]]:
    """(name, what gives the function and a dict of its arguments); optimizers and the like are made anew each time."""
    samples = Samples(engine)
    for name, arguments in samples.functions().items():
        yield f"alpha.{name}", _same(spread(getattr(alpha, name.split()[0])), arguments)
    for name, arguments in samples.methods().items():
        given = arguments.pop("self", None)
        x = samples.floats(2, 3) if given is None else given
        yield f"Tensor.{name}", _same(spread(getattr(x, name)), arguments)
    for name, (arguments, shape) in samples.layers().items():
        yield f"nn.{name}", _same(_layer(spread(getattr(nn, name)), samples, shape), arguments)
    for name in samples.others():
        yield name, lambda n=name: samples.others()[n]


def _same(function: Call, arguments: dict[str, Any]) -> Callable[[], Sample]:
    return lambda: (function, dict(arguments))


# -- trying ------------------------------------------------------------------------------------------------------


def attempt(function: Call, arguments: dict[str, Any]) -> str | None:
    """What is wrong with how the call ended, or None."""
    start = time.process_time()  # whatever else the machine does
    try:
        used(function(**arguments))
    except AlphaError as error:
        if not str(error).startswith("["):
            return f"an error that names no function: {error}"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return f"{type(error).__name__}: {short(str(error))}"
    elapsed = time.process_time() - start
    return f"took {elapsed:.1f} s" if elapsed > SECONDS else None


def used(result: Any) -> None:
    """What a caller does next: reads the result and walks back from it. Views of terabytes are left alone."""
    for part in result if isinstance(result, tuple | list) else (result,):
        if isinstance(part, alpha.Tensor) and part.numel() < 1 << 20:
            part.tolist()
            if part.requires_grad and part.numel():
                part.sum().backward()


def failures(engine: Engine, only: str = "", share: int = 1) -> Iterator[dict[str, str]]:
    """The calls that ended badly, of one in ``share`` of all: other values for each function and argument."""
    other = CPUEngine(memory="32MB")
    hostile = list(hostile_values(engine, other))
    for name, make in calls(engine):
        if only not in name:
            continue
        function, arguments = make()
        note(name)
        wrong = attempt(function, arguments)
        if wrong is not None and not wrong.startswith("took"):
            yield {"function": name, "argument": "as it should be", "value": "", "wrong": wrong}
            continue
        for argument in arguments:
            first = zlib.crc32(f"{name} {argument}".encode()) % share
            for position in range(first, len(hostile), share):
                text = hostile[position][0]
                note(f"{name} {argument} {text}")
                for retry in (False, True):
                    function, given = make()
                    given[argument] = hostile[position][1]
                    wrong = attempt(function, given)
                    if wrong is None or not wrong.startswith("took") or retry:
                        break
                if wrong is not None:
                    yield {"function": name, "argument": argument, "value": text, "wrong": wrong}
        alpha.set_grad_enabled(True)


_progress: Any = None


def note(text: str) -> None:
    """Leaves in a file what is being tried, for whoever looks after a crash."""
    if _progress is not None:
        os.pwrite(_progress, text[:250].ljust(250).encode(errors="replace") + b"\n", 0)


_CASTS = (
    "bfloat16", "bool", "byte", "cdouble", "cfloat", "char", "double", "float", "half", "int", "long", "short",
)  # fmt: skip
_CALLING = {"cond", "while_loop"}
"""Functions that call what they are given: its errors are its own."""


def covered() -> tuple[set[str], set[str]]:
    """Public names without a sample, of ``alpha`` and of ``nn``."""
    samples = Samples(alpha.engine("cpu"))
    functions = {name.split()[0] for name in samples.functions()}
    return set(alpha.functions.__all__) - functions - _CALLING, {
        name for name in nn.__all__ if isinstance(getattr(nn, name), type) and name != "Module"
    } - set(samples.layers())


def main() -> None:
    global _progress
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of the names of the functions to try")
    parser.add_argument("--progress", default="", help="a file for what is being tried")
    parser.add_argument("--share", default=1, type=int, help="try one in so many of the values")
    options = parser.parse_args()
    if options.progress:
        _progress = os.open(options.progress, os.O_WRONLY | os.O_CREAT, 0o644)
    warnings.simplefilter("ignore")
    engine = alpha.engine("cpu")
    engine.configure(memory=CAP, threads=1)
    for name, make in calls(engine):  # kernels compiled before memory is limited
        if options.only in name:
            function, arguments = make()
            attempt(function, arguments)
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for failure in failures(engine, options.only, options.share):
        print(json.dumps(failure), flush=True)


if __name__ == "__main__":
    sys.exit(main())
