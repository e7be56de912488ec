"""How functions and classes differ from PyTorch's of the same name, where their arguments do not tell."""

from __future__ import annotations

DIFFERENCES: dict[str, str] = {
    "Functions.inference_mode": "its tensors are ordinary ones",
    "Tensor.to": "`non_blocking` has no effect",
    "autograd.gradcheck": "forward mode, batched gradients and sparse tensors are refused",
    "autograd.gradgradcheck": "forward mode, batched gradients and sparse tensors are refused",
    "func.jacfwd": 'in reverse; `randomness="different"` is refused',
    "nn.CrossMapLRN2d": "windows and gradients are the formula's, which PyTorch's are not",
    "utils.data.DataLoader": "batches come in order even with `in_order=False`",
}
"""By family and name; what an argument that is missing tells is found by the script."""

MISNAMED: dict[str, tuple[str, ...]] = {
    "Functions.broadcast_to": ("shape",),
    "Functions.qr": ("List", "None", "Tuple"),
    "Functions.rot90": ("1",),
    "Functions.searchsorted": ("values",),
    "Functions.segment_reduce": ("indices",),
    "Functions.set_default_dtype": ("d",),
    "Functions.set_num_threads": ("int",),
    "Functions.squeeze": ("List",),
    "Functions.true_divide": ("dividend", "divisor"),
    "Functions.unsafe_split": ("split_size_or_sections",),
    "Tensor.bmm": ("batch2",),
    "Tensor.copy_": ("src",),
    "Tensor.index_copy": ("tensor2",),
    "Tensor.matmul": ("tensor2",),
    "Tensor.narrow": ("dimension",),
    "Tensor.narrow_copy": ("dimension",),
    "Tensor.take": ("indices",),
    "Tensor.where": ("y",),
    **dict.fromkeys([f"Tensor.{axis}split" for axis in "dhv"], ("split_size_or_sections",)),
    **dict.fromkeys([f"Tensor.{name}{end}" for name in ("fmod", "remainder") for end in ("", "_")], ("divisor",)),
    **dict.fromkeys(
        [
            f"Tensor.{name}{end}"
            for name in ("div", "divide", "floor_divide", "mul", "multiply", "true_divide")
            for end in ("", "_")
        ],
        ("value",),
    ),
}
"""Names of arguments that stand in PyTorch's documentation alone: its functions refuse them, or they are no names."""
