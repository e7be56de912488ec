"""Every public function is tried by a record, or left out with a reason."""

from __future__ import annotations

import inspect
from typing import Any

import alpha
from alpha import nn, optim
from tests.robustness.records import RECORDS

_NO_FUNCTION = "makes no tensor from tensors: it sets or tells a mode, an engine or a generator's place"
_LEAF = "tells or sets what a tensor is; other calls go through it all the time"
_FILES = "reads and writes files: the storms on checkpoints try it"
_MODULE = "holds other modules or parameters and computes nothing itself"
_STATE = "keeps state over many steps: the tests of nn and optim compare it with PyTorch"
_COMPARED = "has weights of its own: its own tests compare it with PyTorch, and give it bad arguments"
_LAZY = "becomes the layer that it stands for: its own tests compare it with that"
_DEVICE = "needs a second engine"
_CALLS = "calls one function that has a record"
_WRITES = "writes into a tensor what a function with a record makes of it, as others do that have records"

_LEAF_METHODS = """
__init__ __len__ __iter__ __bool__ __float__ __int__ __index__ __repr__ __hash__ __deepcopy__ __dlpack__
__dlpack_device__ __contains__ __delitem__ __format__ __reversed__ __reduce__ __reduce_ex__ __getstate__ __setstate__
__copy__ dense strided view dim numel element_size size stride memory_order is_contiguous backward requires_grad_
retain_grad register_hook T
"""

_CALLING_METHODS = """
broadcast_to expand_as repeat reshape_as tile view_as where type_as new_tensor new_empty new_zeros new_ones new_full
"""

EXCLUDED: dict[str, str] = {
    **dict.fromkeys(
        (
            "alpha.Engine",
            "alpha.random.stage_state",
            "alpha.Function",
            "alpha.Tensor",
            "alpha.default_engine",
            "alpha.enable_grad",
            "alpha.engine",
            "alpha.finfo",
            "alpha.iinfo",
            "alpha.get_float32_precision",
            "alpha.get_image_layout",
            "alpha.get_search",
            "alpha.is_grad_enabled",
            "alpha.no_grad",
            "alpha.register_engine",
            "alpha.set_default_engine",
            "alpha.set_float32_precision",
            "alpha.set_image_layout",
            "alpha.set_grad_enabled",
            "alpha.set_search",
            "alpha.random.seed",
            "alpha.random.get_state",
            "alpha.random.set_state",
            "alpha.random.check_state",
            "alpha.random.checked",
            "alpha.random.reserve",
            "alpha.random.words_needed",
            "alpha.random.uniform_bounds",
            "alpha.random.draw_normal",
            "alpha.random.draw_uniform",
            "alpha.random.numpy_generator",
            "nn.init.calculate_gain",
            "nn.init.fans",
        ),
        _NO_FUNCTION,
    ),
    **dict.fromkeys(("alpha.load", "alpha.save"), _FILES),
    "alpha.graph": "captures a step on a device: its own tests replay it",
    **dict.fromkeys(
        ("alpha.random.philox", "alpha.random.words", "alpha.random.uniforms"),
        "the generator itself, whose bits its own tests hold against published ones",
    ),
    **dict.fromkeys([f"alpha.Tensor.{name}" for name in _LEAF_METHODS.split()], _LEAF),
    "alpha.Tensor.cuda": _DEVICE,
    "alpha.Generator": "keeps a place in a sequence: test_random draws from it",
    "alpha.device": "names an engine: its own tests ask for all that it tells",
    **dict.fromkeys([f"alpha.Tensor.{name}" for name in _CALLING_METHODS.split()], _CALLS),
    **dict.fromkeys([f"alpha.Tensor.{name}" for name in ("clamp_", "cumsum_", "masked_fill_", "relu_")], _WRITES),
    **dict.fromkeys(
        ("alpha.Tensor.normal_", "alpha.Tensor.uniform_"),
        "draws as nn.init's functions of these names do",
    ),
    **dict.fromkeys(
        (
            "nn.Module",
            "nn.ModuleDict",
            "nn.ModuleList",
            "nn.Parameter",
            "nn.ParameterDict",
            "nn.ParameterList",
            "nn.Sequential",
        ),
        _MODULE,
    ),
    **dict.fromkeys(
        (
            "nn.GRU",
            "nn.GRUCell",
            "nn.LSTM",
            "nn.LSTMCell",
            "nn.MultiheadAttention",
            "nn.RNN",
            "nn.RNNBase",
            "nn.RNNCell",
            "nn.RNNCellBase",
            "nn.Transformer",
            "nn.TransformerDecoder",
            "nn.TransformerDecoderLayer",
            "nn.TransformerEncoder",
            "nn.TransformerEncoderLayer",
        ),
        _COMPARED,
    ),
    **dict.fromkeys(
        (
            "nn.LazyBatchNorm1d",
            "nn.LazyBatchNorm2d",
            "nn.LazyConv1d",
            "nn.LazyConv2d",
            "nn.LazyConv3d",
            "nn.LazyConvTranspose1d",
            "nn.LazyConvTranspose2d",
            "nn.LazyConvTranspose3d",
            "nn.LazyLinear",
            "nn.UninitializedBuffer",
            "nn.UninitializedParameter",
        ),
        _LAZY,
    ),
    "nn.AveragedViews": "calls its module for slices, pad and flip, which have records",
    "nn.init.whiten_patches_": "its own tests hold the covariance of its results; eigenvectors have no single value",
    **dict.fromkeys(
        (
            "nn.BatchNorm1d",
            "nn.BatchNorm2d",
            "nn.GroupNorm",
            "nn.InstanceNorm2d",
            "nn.LayerNorm",
            "nn.PReLU",
            "nn.RMSNorm",
            "nn.Dropout",
            "nn.Embedding",
            "nn.Flatten",
        ),
        "calls one function that has a record with the same arguments",
    ),
    **dict.fromkeys(
        (
            "optim.AveragedModel",
            "optim.LRScheduler",
            "optim.LambdaLR",
            "optim.Muon",
            "optim.OneCycleLR",
            "optim.Optimizer",
            "optim.SequentialLR",
        ),
        _STATE,
    ),
}
"""Public names that no record tries, and why."""


def public() -> set[str]:
    """Names of all public callables, as users write them."""
    found = {f"alpha.{n}" for n in alpha.__all__ if _callable(getattr(alpha, n))}
    found |= {f"alpha.linalg.{n}" for n in alpha.linalg.__all__}
    found |= {f"alpha.random.{n}" for n, value in vars(alpha.random).items() if _is_defined_in(value, alpha.random, n)}
    found |= {f"nn.functional.{n}" for n in nn.functional.__all__}
    found |= {f"nn.{n}" for n in nn.__all__ if _callable(getattr(nn, n))}
    found |= {f"nn.init.{n}" for n, value in vars(nn.init).items() if _is_defined_in(value, nn.init, n)}
    found |= {f"optim.{n}" for n in optim.__all__ if _callable(getattr(optim, n))}
    for name, value in vars(alpha.Tensor).items():
        if value is getattr(alpha, name, None):
            continue  # the function itself, which has a record
        special = name.startswith("__") and name.endswith("__")
        if (callable(value) or isinstance(value, staticmethod)) and (special or not name.startswith("_")):
            found.add(f"alpha.Tensor.{name}")
    return found


def tried() -> set[str]:
    """Names that a record tries."""
    return {record.name for record in RECORDS} | {name for record in RECORDS for name in record.covers}


def _callable(value: Any) -> bool:
    return callable(value)


def _is_defined_in(value: Any, module: Any, name: str) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")


def missing() -> set[str]:
    """Public names without a record and without a reason."""
    return public() - tried() - set(EXCLUDED)
