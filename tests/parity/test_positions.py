"""Arguments have PyTorch's places and names, so that a call by position or by name means the same."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

pytestmark = pytest.mark.needs("torch")

MODULES = ("nn", "nn.functional", "nn.init", "nn.utils", "nn.utils.rnn", "optim", "optim.lr_scheduler", "utils.data")
OTHERWISE = {
    "nn.functional.log_softmax": "_stacklevel",
    "nn.functional.normalize": "out",
    "nn.functional.softmax": "_stacklevel",
    "nn.functional.softmin": "_stacklevel",
    "nn.init.kaiming_normal_": "generator",
    "nn.init.kaiming_uniform_": "generator",
    "nn.init.normal_": "generator",
    "nn.init.orthogonal_": "generator",
    "nn.init.sparse_": "generator",
    "nn.init.trunc_normal_": "generator",
    "nn.init.uniform_": "generator",
    "nn.init.xavier_normal_": "generator",
    "nn.init.xavier_uniform_": "generator",
}
"""The first argument that we have not, or by name alone."""


def positional(value: Any) -> list[str] | None:
    """The names of the arguments that may be given by position; None where they are not known, or are any number."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return None
    return [one.name for one in parameters if one.kind is not one.KEYWORD_ONLY and one.kind is not one.VAR_KEYWORD]


@pytest.mark.parametrize("module", MODULES)
def test_arguments_have_pytorchs_places(module: str) -> None:
    theirs, ours = importlib.import_module(f"torch.{module}"), importlib.import_module(f"alpha.{module}")
    found, compared = {}, 0
    for name in (name for name in dir(theirs) if not name.startswith("_") and callable(getattr(ours, name, None))):
        expected, got = positional(getattr(theirs, name)), positional(getattr(ours, name))
        if expected and got is not None:
            compared += 1
            lacking = [one for place, one in enumerate(expected) if got[place : place + 1] != [one]]
            if lacking:
                found[f"{module}.{name}"] = lacking[0]
    assert compared
    assert found == {name: one for name, one in OTHERWISE.items() if name.startswith(f"{module}.") and name in found}
    assert set(found) == {name for name in OTHERWISE if name.rpartition(".")[0] == module}


LAYERS = ("Module", "Sequential", "ModuleList", "ModuleDict", "LSTM", "Embedding", "EmbeddingBag")


@pytest.mark.parametrize("name", LAYERS)
def test_methods_of_layers_too(name: str) -> None:
    import torch

    from alpha import nn

    theirs, ours = getattr(torch.nn, name), getattr(nn, name)
    others = {
        "load_state_dict": "assign",
        "extend": "parts",
        "update": "parts",
        "pop": "index",
    }  # lacking, or ours
    for method in (one for one in dir(theirs) if not one.startswith("_") and callable(getattr(ours, one, None))):
        expected, got = positional(getattr(theirs, method)), positional(getattr(ours, method))
        if expected and got is not None and method not in ("forward", "type", "to_empty"):
            lacking = [one for place, one in enumerate(expected) if got[place : place + 1] != [one]]
            assert not lacking or others.get(method) in (lacking[0], *got), f"{name}.{method}: {lacking}"
