"""A tensor knows the address of its first element, whatever memory it is given later."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import alpha
from alpha import Engine, Tensor, nn

ROOT = Path(alpha.__file__).parent.parent
MEMORY = {"storage", "offset", "address"}


def is_right(x: Tensor) -> bool:
    """Whether the address is that of the memory and the offset."""
    return x.address == x.storage.address + x.offset * x.dtype.itemsize


def assigned(x: Tensor) -> Tensor:
    x.data = alpha.arange(12, dtype=alpha.float32, engine=x.engine).reshape(3, 4)[1:]
    return x


def moved(x: Tensor) -> Tensor:
    layer = nn.Linear(2, 3).to(x.engine)
    layer.weight.data = x[:, 1:]
    return layer.to(dtype=alpha.float64).weight


def made(x: Tensor) -> Tensor:
    layer = nn.LazyLinear(3).to(x.engine)
    layer(x)
    return layer.weight


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.as_strided_((2, 2), (1, 2), 1),
        lambda x: x.t_(),
        lambda x: x.resize_(7, 5),
        lambda x: x.resize_(2),
        lambda x: x[1:].unsqueeze_(0),
        lambda x: x.detach()[1:, 2:],
        lambda x: x.to("cpu"),
        assigned,
        moved,
        made,
    ],
)
def test_the_address_follows_the_memory(engine: Engine, change: Callable[[Tensor], Tensor]) -> None:
    x = alpha.tensor(np.arange(12, dtype=np.float32).reshape(3, 4), engine=engine)
    found = change(x)
    assert is_right(found) and is_right(x)


def test_the_address_follows_memory_that_is_shared() -> None:
    x = alpha.tensor(np.arange(12, dtype=np.float32))[3:]
    assert is_right(x.share_memory_()) and x.tolist() == [*map(float, range(3, 12))]


def test_memory_is_given_in_one_place() -> None:
    """Nobody but ``changes.taking`` and the constructor sets where a tensor's elements lie."""
    found = []
    for folder in ("alpha", "nn", "optim", "datasets", "cu32"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setting":
                    names = {one.value for one in node.args if isinstance(one, ast.Constant)}
                    if names & MEMORY:
                        found.append((file.relative_to(ROOT), node.lineno))
    assert found == []
