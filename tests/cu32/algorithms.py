"""The CUDA engine's part of what every convolution algorithm must do: see ``tests/engine/algorithms.py``."""

from __future__ import annotations

from typing import Any

from alpha.conv.problem import FORWARD, INPUT_GRAD
from alpha.cu32 import planner, tf32
from alpha.cu32.base import DeviceEngine
from alpha.cu32.conv.algorithms import ALGORITHMS
from alpha.cu32.conv.problem import Call, problem_of
from alpha.cu32.convolution import MACS
from alpha.geometry import Geometry
from alpha.tensor import Tensor
from tests.engine.algorithms import Kit


def cuda_kit(engine: DeviceEngine) -> Kit:
    """The CUDA engine with its planner."""

    def problem(operator: str, x: Tensor, dy: Tensor, w: Tensor, geometry: Geometry, groups: int) -> Any:
        calls = {FORWARD: Call(x, w, dy), INPUT_GRAD: Call(dy, w, x)}
        call = calls.get(operator, Call(x, dy, engine.empty(w.shape, w.dtype)))
        return problem_of(operator, call, geometry, groups, tf32.enabled(engine), split=tf32.threefold(engine))

    return Kit(engine, planner, ALGORITHMS, MACS, problem)
