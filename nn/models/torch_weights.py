"""Weights from PyTorch and to PyTorch, with filters and flattened maps transposed between the two layouts.

=====================  ============================  ============================
tensor                 PyTorch                       here
=====================  ============================  ============================
convolution            (OC, IC/groups, FH, FW)       (OC, FH, FW, IC/groups)
transposed             (IC, OC/groups, FH, FW)       (IC, FH, FW, OC/groups)
linear behind Flatten  inputs ordered (C, H, W)      inputs ordered (H, W, C)
=====================  ============================  ============================

Filters of one and three axes have their channels in the same places. All else has one layout, but for two that are the
caller's to reorder: a LayerNorm over whole maps, (C, H, W) there and (H, W, C) here, and a linear layer under spectral
norm behind Flatten.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from alpha import Tensor
from alpha.errors import ArgumentError
from alpha.nn import state
from alpha.nn.conv import ConvNd
from alpha.nn.linear import Linear
from alpha.nn.module import Module

Array = np.ndarray[Any, Any]
Maps = Mapping[str, tuple[int, int]]
_FROM_OIHW = (0, 2, 3, 1)
_TO_OIHW = (0, 3, 1, 2)


def from_torch(
    state_dict: Mapping[str, Any], module: Module | None = None, *, flattened_maps: Maps | None = None
) -> dict[str, Array]:
    """A PyTorch state_dict in our layout: ``net.load_state_dict(from_torch(torch_net.state_dict(), net))``.

    Args:
        state_dict: PyTorch's tensors (or arrays of them) by name.
        module: the module they are for. With it filters are known by their layers, the models here say themselves
            which linear layer sees flattened maps, and keys and shapes are checked. Without it every tensor of 4 or 5
            axes is a filter.
        flattened_maps: names of linear layers behind a Flatten, with height and width of the maps that were flattened:
            ``{"classifier.0": (7, 7)}``; an empty dict where there is none.

    Errors: with a module, CheckpointError as from ``load_state_dict``; ArgumentError where a linear layer behind
    convolutions has several times their channels as inputs, and ``flattened_maps`` does not tell whether those are
    maps.
    """
    expected = module.state_dict() if module is not None else {}
    current_name = getattr(module, "current_name", str)  # of a network whose published files hold older names
    arrays = {current_name(key): _to_array(key, value) for key, value in state_dict.items()}
    filters = {key for key, array in arrays.items() if array.ndim in (4, 5)} if module is None else _filters(module)
    for key, array in arrays.items():
        if key in filters and array.ndim > 2:
            arrays[key] = np.moveaxis(array, 1, -1)
    for key, (height, width) in _flattened(module, flattened_maps).items():
        if key in arrays:
            maps = _split(key, arrays[key], height * width).reshape(len(arrays[key]), -1, height, width)
            arrays[key] = maps.transpose(_FROM_OIHW).reshape(arrays[key].shape)
    if module is not None:
        if flattened_maps is None:
            _check_flattened(module)
        state.check("from_torch", type(module).__name__, expected, arrays)
    return {key: np.array(array, order="C") for key, array in arrays.items()}


def to_torch(module: Module, *, flattened_maps: Maps | None = None) -> dict[str, Any]:
    """A module's state in PyTorch's layout, as PyTorch's tensors; as NumPy arrays where it is not installed.

    Args:
        module: the module; its names are kept.
        flattened_maps: as for ``from_torch``.
    """
    arrays = {key: np.asarray(tensor) for key, tensor in module.state_dict().items()}
    for key in _filters(module):
        arrays[key] = np.moveaxis(arrays[key], -1, 1)
    for key, (height, width) in _flattened(module, flattened_maps).items():
        if key in arrays:
            maps = _split(key, arrays[key], height * width).reshape(len(arrays[key]), height, width, -1)
            arrays[key] = maps.transpose(_TO_OIHW).reshape(arrays[key].shape)
    dense: dict[str, Array] = {key: np.array(array, order="C") for key, array in arrays.items()}
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return dict(dense)
    return {key: torch.from_numpy(array) for key, array in dense.items()}


def _filters(module: Module) -> set[str]:
    """Names of the weights of all convolutions, those under spectral norm too."""
    modules = module.named_modules(remove_duplicate=False)
    convolutions = [(path, part) for path, part in modules if isinstance(part, ConvNd)]
    return {
        f"{path}.{name}".lstrip(".")
        for path, part in convolutions
        for name, _ in part.named_parameters(recurse=False)
        if name in part.channels_last_filters
    }


def _flattened(module: Module | None, given: Maps | None) -> dict[str, tuple[int, int]]:
    """Names of the weights that see flattened maps, with the maps' height and width."""
    sizes = dict(given or {})
    for path, part in module.named_modules(remove_duplicate=False) if module is not None else ():
        for name, size in getattr(part, "flattened_maps", {}).items():
            sizes.setdefault(f"{path}.{name}".lstrip("."), size)
    return {f"{name}.weight": size for name, size in sizes.items()}


def _check_flattened(module: Module) -> None:
    """ArgumentError where a linear layer seems to see flattened maps that neither the caller nor the model names."""
    known, channels, convolution = _flattened(module, None), 0, ""
    for path, part in module.named_modules():
        if isinstance(part, ConvNd) and part.axes > 1 and part.layout == "NHWC":
            channels, convolution = part.out_channels, path
        elif isinstance(part, Linear) and channels:
            seen = f"{path}.weight".lstrip(".") in known
            if not seen and part.in_features > channels and part.in_features % channels == 0:
                raise ArgumentError(
                    f"[from_torch] expected flattened_maps for {path}: its {part.in_features} inputs may be maps of "
                    f"the {channels} channels of {convolution}, whose order differs; give "
                    f"{{{path!r}: (height, width)}}, or {{}} if they are none"
                )
            channels = 0


def _split(key: str, weight: Array, positions: int) -> Array:
    """The weight, if its inputs are maps of so many positions."""
    if weight.ndim != 2 or weight.shape[1] % positions:
        raise ArgumentError(
            f"[flattened_maps] expected a linear weight whose inputs are maps of {positions} positions for {key}, got "
            f"shape {weight.shape}: give the height and width of the maps that were flattened"
        )
    return weight


def _to_array(key: str, value: Any) -> Array:
    """An array of a PyTorch tensor (bfloat16 and float16 widened to float32), or the array itself."""
    if hasattr(value, "cpu") and not isinstance(value, Tensor):
        value = value.detach().cpu()
        value = value.float() if value.is_floating_point() and value.element_size() < 4 else value
    if not hasattr(value, "__array__"):
        raise ArgumentError(
            f"[from_torch] expected tensors by name, got {type(value).__name__} for {key!r}: of a whole checkpoint "
            "pass the part that is the model's state_dict"
        )
    return np.asarray(value)
