"""Dragon-Alpha for Python: a deep-learning framework whose convolutions skip the zeros of padding and strides."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not (Path(__file__).parent / "nn").is_dir():  # a checkout whose links to the folders beside this one were not made
    __path__.append(str(Path(__file__).parent.parent))

from alpha import autograd, errors, fft, functions, late, linalg, methods, random, settings, special
from alpha.autograd import (
    Function,
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from alpha.conversion import tensor
from alpha.devices import device
from alpha.dtypes import (
    bfloat16,
    bool_,
    complex64,
    complex128,
    finfo,
    float16,
    float32,
    float64,
    get_default_dtype,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    set_default_dtype,
    uint8,
    uint16,
    uint32,
)
from alpha.engine import Engine
from alpha.engines import default_engine, engine, register_engine, set_default_engine
from alpha.expressions.functions import pointwise
from alpha.functions import *  # noqa: F403
from alpha.graphs import graph
from alpha.layout import get_image_layout, set_image_layout
from alpha.memory_formats import memory_format
from alpha.precision import get_float32_precision, set_float32_precision
from alpha.printing import set_printoptions
from alpha.random import Generator, manual_seed
from alpha.search import get_search, set_search
from alpha.serialization import load, save
from alpha.settings import *  # noqa: F403
from alpha.sizes import Size
from alpha.tensor import Tensor
from alpha.typed_tensors import (
    BFloat16Tensor,
    BoolTensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
)

if TYPE_CHECKING:
    from alpha import accelerator as accelerator
    from alpha import amp as amp
    from alpha import array_api as array_api
    from alpha import backends as backends
    from alpha import cpu as cpu
    from alpha import cu32 as cu32
    from alpha import cuda as cuda
    from alpha import datasets as datasets
    from alpha import engine_suite as engine_suite
    from alpha import func as func
    from alpha import models as models
    from alpha import nn as nn
    from alpha import optim as optim
    from alpha import testing as testing
    from alpha import utils as utils
    from alpha.amp import autocast as autocast
    from alpha.amp import get_autocast_dtype as get_autocast_dtype
    from alpha.amp import is_autocast_enabled as is_autocast_enabled
    from alpha.autograd.checkpoints import checkpoint as checkpoint
    from alpha.func import vmap as vmap

methods.attach()

# PyTorch's other names of dtypes; not in __all__, for a star import would hide Python's own.
double, half, long, short = float64, float16, int64, int16
cfloat, cdouble = complex64, complex128
bool, float, int = bool_, float32, int32

e, inf, nan, newaxis, pi = math.e, math.inf, math.nan, None, math.pi
channels_last, channels_last_3d = memory_format.channels_last, memory_format.channels_last_3d
contiguous_format, preserve_format = memory_format.contiguous_format, memory_format.preserve_format

__version__ = "0.1.0"

__all__ = [  # noqa: PLE0604 (the functions' names are strings too)
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
    "Engine",
    "Function",
    "Generator",
    "Size",
    "Tensor",
    "autograd",
    "bfloat16",
    "bool_",
    "channels_last",
    "channels_last_3d",
    "complex64",
    "complex128",
    "contiguous_format",
    "default_engine",
    "device",
    "enable_grad",
    "engine",
    "errors",
    "fft",
    "finfo",
    "float16",
    "float32",
    "float64",
    "get_default_dtype",
    "get_float32_precision",
    "get_image_layout",
    "get_search",
    "graph",
    "iinfo",
    "inference_mode",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "linalg",
    "load",
    "manual_seed",
    "memory_format",
    "no_grad",
    "pointwise",
    "preserve_format",
    "random",
    "register_engine",
    "save",
    "set_default_dtype",
    "set_default_engine",
    "set_float32_precision",
    "set_image_layout",
    "set_printoptions",
    "set_grad_enabled",
    "set_search",
    "special",
    "tensor",
    "uint8",
    "uint16",
    "uint32",
    *functions.__all__,
    *settings.__all__,
]


_PACKAGES = (
    "accelerator", "amp", "backends", "cpu", "cu32", "cuda", "datasets", "distributed", "engine_suite", "func",
    "models", "nn", "optim", "testing", "utils",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    """Packages that are loaded when first used."""
    if name in ("autocast", "get_autocast_dtype", "is_autocast_enabled"):
        return getattr(importlib.import_module("alpha.amp"), name)
    if name == "checkpoint":
        return importlib.import_module("alpha.autograd.checkpoints").checkpoint
    if name == "vmap":
        return importlib.import_module("alpha.func").vmap
    if name == "array_api":
        return importlib.import_module("alpha.array_api")
    if name in _PACKAGES:
        return importlib.import_module(f"alpha.{name}")
    raise AttributeError(f"module 'alpha' has no attribute {name!r}")


late.watch()
