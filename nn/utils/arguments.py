"""Checks of what the functions that change modules are given."""

from __future__ import annotations

from typing import Any

from alpha.arguments import number
from alpha.errors import ArgumentError, described
from alpha.nn.arguments import text
from alpha.nn.module import Module
from alpha.nn.parameter import Parameter


def check_module(function: str, module: Any) -> None:
    """ArgumentError unless it is a Module."""
    if not isinstance(module, Module):
        raise ArgumentError(f"[{function}] expected a Module, got {described(module)}")


def parameter_of(function: str, module: Any, name: Any) -> Parameter:
    """A module's parameter of a name; ArgumentError where there is none."""
    check_module(function, module)
    found = getattr(module, text(name, "name", function), None)
    if not isinstance(found, Parameter):
        raise ArgumentError(
            f"[{function}] expected a Parameter called {name}, got {type(found).__name__}: name a weight of this "
            f"{type(module).__name__} that is not normalised yet"
        )
    return found


def positive_number(function: str, name: str, value: Any) -> float:
    """A number above 0."""
    found = number(function, name, value)
    if not found > 0:
        raise ArgumentError(f"[{function}] expected {name} > 0, got {found}")
    return found
