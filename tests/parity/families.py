"""PyTorch's public names by family, and where the same family lies here."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.torchvision_models import torchvision_models


@dataclass(frozen=True)
class Family:
    """Names that belong together.

    Attributes:
        title: as the page shows it.
        theirs: PyTorch's module or class, by its dotted name.
        ours: ours, by its dotted name.
        keeps: which of the names count; by default those that are public.
    """

    title: str
    theirs: str
    ours: str
    keeps: Callable[[str, Any], bool] = lambda name, value: True


def _is_function(name: str, value: Any) -> bool:
    return callable(value) and not isinstance(value, type) and not re.match(r".*_(copy|jvp|backward)$", name)


def _is_torchs_function(name: str, value: Any) -> bool:
    """Whether it is a documented function of ``torch``, which has all kernels beside them."""
    import torch

    documented = _documentation(value)
    internal = re.match(r"(cudnn|miopen|mkldnn|native|fbgemm|q_|quantized|hsmm|hspmm|is_vulkan|is_deterministic)", name)
    return _is_function(name, value) and bool(documented) and not internal and name not in torch.overrides.__all__


def _documentation(value: Any) -> str:
    text = getattr(value, "__doc__", None)
    return text.strip() if isinstance(text, str) else ""


def _is_class(name: str, value: Any) -> bool:
    return isinstance(value, type) and not name.startswith(("Quant", "_"))


FAMILIES = (
    Family("Functions", "torch", "alpha", _is_torchs_function),
    Family("Tensor", "torch.Tensor", "alpha.Tensor", lambda name, value: not name.startswith("_")),
    Family("nn.functional", "torch.nn.functional", "alpha.nn.functional", _is_function),
    Family("nn", "torch.nn", "alpha.nn", _is_class),
    Family("nn.init", "torch.nn.init", "alpha.nn.init", _is_function),
    Family("nn.utils", "torch.nn.utils", "alpha.nn.utils", _is_function),
    Family("optim", "torch.optim", "alpha.optim", _is_class),
    Family("optim.lr_scheduler", "torch.optim.lr_scheduler", "alpha.optim.lr_scheduler", _is_class),
    Family("autograd", "torch.autograd", "alpha.autograd"),
    Family("autograd.functional", "torch.autograd.functional", "alpha.autograd.functional", _is_function),
    Family("func", "torch.func", "alpha.func", _is_function),
    Family("linalg", "torch.linalg", "alpha.linalg", _is_function),
    Family("fft", "torch.fft", "alpha.fft", _is_function),
    Family("special", "torch.special", "alpha.special", _is_function),
    Family("utils.data", "torch.utils.data", "alpha.utils.data"),
    Family("torchvision.transforms", "torchvision.transforms", "alpha.datasets.transforms", _is_class),
    Family("torchvision.datasets", "torchvision.datasets", "alpha.datasets", _is_class),
    Family("torchvision.models", "torchvision.models", "alpha.models", _is_function),
    Family("torchvision.utils", "torchvision.utils", "alpha.utils", _is_function),
)


def found(path: str) -> Any:
    """A module or a class by its dotted name; None where there is none."""
    if path.startswith("torchvision"):
        torchvision_models()  # which makes PyPI's torchvision load beside a PyTorch without CUDA
    try:
        return importlib.import_module(path)
    except ImportError:
        owner, _, name = path.rpartition(".")
        try:
            return getattr(importlib.import_module(owner), name, None)
        except ImportError:
            return None


def names(family: Family) -> Iterator[str]:
    """PyTorch's public names of a family."""
    owner = found(family.theirs)
    listed = getattr(owner, "__all__", None) if family.theirs != "torch" else None
    for name in sorted(listed if listed is not None else dir(owner)):
        value = inspect.getattr_static(owner, name, None) if isinstance(owner, type) else getattr(owner, name, None)
        is_module = inspect.ismodule(value) or (getattr(value, "__module__", None) or "").startswith("typing")
        if value is not None and not name.startswith("_") and not is_module and family.keeps(name, value):
            yield name


# -- what arguments they take ------------------------------------------------------------------------------------------

IGNORED = {
    "args", "capturable", "device", "differentiable", "dtype", "foreach", "forward_ad", "fused", "generator", "input",
    "inplace", "kwargs", "layout", "names", "out", "pin_memory", "reduce", "requires_grad", "self",
    "size_average", "cls", "tensor", "x", "other",
}  # fmt: skip
"""Arguments that are not compared: they are the first one, have the same place under another name, or name where and
how PyTorch stores or computes something."""


def arguments(value: Any) -> set[str] | None:
    """The arguments' names of a function or a class; None where they cannot be known."""
    try:
        return set(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        text = _documentation(value).split("\n", 1)[0]
        match = re.match(r"\w+\((.*?)\)(?: ->|$)", text)
        return None if match is None else set(re.findall(r"(?:^|, )\**(\w+)", match.group(1)))


def lacking(theirs: Any, ours: Any) -> list[str]:
    """PyTorch's arguments that ours does not take by name."""
    wanted, given = arguments(theirs), arguments(ours)
    if wanted is None or given is None or {"args", "kwargs", "options"} & given:
        return []
    return sorted(name for name in wanted - given - IGNORED if not name.startswith("_"))
