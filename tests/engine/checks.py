"""What the tests of every engine share: gradients checked on it, and sizes that the test driver can bear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from alpha.engine import Engine
from alpha.testing import gradcheck
from tests.cuda_on_cpu import preload

Size = TypeVar("Size")


def gradcheck_on(engine: Engine, function: Callable[..., Any], *inputs: Any) -> bool:
    """``gradcheck`` with the float arrays among the inputs as tensors of an engine, not of the default one."""
    return gradcheck(function, *(placed(engine, value) for value in inputs))


def placed(engine: Engine, value: Any) -> Any:
    """A float array as a tensor of the engine; all else as it is."""
    return engine.from_numpy(value) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value


def sized(engine: Engine, size: Size, emulated: Size) -> Size:
    """A size, or the smaller one that proves the same where the engine's kernels run on the CPU, a fiber a thread."""
    return emulated if engine.name != "cpu" and preload.emulated() is not None else size
