"""Autograd: functions and the graph that they record, the walk back through it, gradients of gradients."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from alpha.autograd.anomaly import detect_anomaly, set_detect_anomaly
from alpha.autograd.contexts import once_differentiable
from alpha.autograd.function import Edge, Function, edges_of, enters_graph, follow_base
from alpha.autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference,
    is_inference_mode_enabled,
    is_recorded,
    leads_to_inference,
    no_grad,
    set_grad_enabled,
)
from alpha.autograd.regions import view_of, views_of
from alpha.autograd.variables import Variable
from alpha.autograd.views import Overwrite

if TYPE_CHECKING:
    from alpha.autograd import functional as functional
    from alpha.autograd.checks import gradcheck as gradcheck
    from alpha.autograd.checks import gradgradcheck as gradgradcheck
    from alpha.autograd.gradients import backward as backward
    from alpha.autograd.gradients import grad as grad

__all__ = [
    "Edge",
    "Function",
    "Overwrite",
    "Variable",
    "backward",
    "detect_anomaly",
    "edges_of",
    "enable_grad",
    "enters_graph",
    "follow_base",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "is_grad_enabled",
    "is_inference",
    "is_inference_mode_enabled",
    "is_recorded",
    "leads_to_inference",
    "no_grad",
    "once_differentiable",
    "set_detect_anomaly",
    "set_grad_enabled",
    "view_of",
    "views_of",
]

_LATER = {"grad": "gradients", "backward": "gradients", "gradcheck": "checks", "gradgradcheck": "checks"}


def __getattr__(name: str) -> Any:
    """What is made of functions, which need this package first."""
    if name == "functional":
        return importlib.import_module("alpha.autograd.functional")
    if name in _LATER:
        return getattr(importlib.import_module(f"alpha.autograd.{_LATER[name]}"), name)
    raise AttributeError(f"module 'alpha.autograd' has no attribute {name!r}")
