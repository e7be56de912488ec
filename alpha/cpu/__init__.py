"""The CPU engine. What tells of its choices is bound when first used, for it loads the compiled kernels.

``explain`` and ``planner`` are those of convolutions, ``explain_product`` and ``product_planner`` those of products of
matrices.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alpha.cpu import planner as planner
    from alpha.cpu.explanations import explain as explain
    from alpha.cpu.gemm import planner as _product_planner
    from alpha.cpu.gemm.explanations import explain_product as explain_product

    product_planner = _product_planner


def __getattr__(name: str) -> Any:
    if name == "explain":
        return importlib.import_module("alpha.cpu.explanations").explain
    if name == "explain_product":
        return importlib.import_module("alpha.cpu.gemm.explanations").explain_product
    if name == "planner":
        return importlib.import_module("alpha.cpu.planner")
    if name == "product_planner":
        return importlib.import_module("alpha.cpu.gemm.planner")
    raise AttributeError(f"module 'alpha.cpu' has no attribute {name!r}")
