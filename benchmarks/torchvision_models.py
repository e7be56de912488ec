"""torchvision's networks, as an oracle and an opponent."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

_DESCRIBED = ("nms", "qnms")
"""Operators that torchvision must find when it is imported. Its networks for images call none of them."""


def torchvision_models() -> ModuleType:
    """``torchvision.models``, also beside a PyTorch for which torchvision's compiled part is not built.

    The wheel from PyPI is built for PyTorch with CUDA, and its compiled part does not load beside one for CPUs alone:
    the operators that it would bring are then declared, and computed by nothing.
    """
    try:
        torch = importlib.import_module("torch")
        try:
            return importlib.import_module("torchvision.models")
        except RuntimeError as error:
            if "torchvision::" not in str(error):
                raise
        for name in _DESCRIBED:
            torch.library.define(f"torchvision::{name}", "() -> Tensor")
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]  # what the first attempt left
        return importlib.import_module("torchvision.models")
    except ImportError as error:
        raise ImportError(
            '[torchvision_models] expected torchvision to compare with, got none: pip install "dragon-alpha[compare]"'
        ) from error
