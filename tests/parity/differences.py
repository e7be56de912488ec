"""How functions and classes differ from PyTorch's of the same name, where their arguments do not tell."""

from __future__ import annotations

DIFFERENCES: dict[str, str] = {
    "Functions.inference_mode": "its tensors are ordinary ones",
    "Tensor.to": "`non_blocking` and `memory_format` have no effect",
}
"""By family and name; what an argument that is missing tells is found by the script."""
