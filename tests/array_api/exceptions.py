"""What of the array API standard does not hold, and why: tests of its conformance suite that are expected to fail."""

from __future__ import annotations

ABSENT_DTYPES = ("uint64",)
"""The standard's dtypes that Tensor has not: see docs/dtypes.md."""

DIFFERENCES: dict[str, str] = {
    "x.size": "a method, as PyTorch's, where the standard has an attribute: use math.prod(x.shape)",
    "x.T": "of any number of axes, as PyTorch's; the standard's has two",
    "sums of unsigned integers": "int64, as PyTorch's: there is no uint64",
    "kinds of dtypes": "numbers of different kinds are promoted, as in PyTorch; the standard leaves that open",
    "operators": "they follow PyTorch where it differs, in what the tests below hold; the namespace's functions do not",
}
"""What is not as in the standard, though no test of the suite may tell."""

_OPERATORS = "test_operators_and_elementwise_functions.py"
_WITHOUT_AXES = "in operators a tensor without axes gives way to the dtype of one with axes, as in PyTorch"
_FLOOR_DIVIDE = "an operator's floor(x / y) is PyTorch's: NaN of an infinite x, -1 instead of -0 by an infinite y"
_REMAINDER = "a remainder of 0 has the sign of the first operand of an operator, as in PyTorch"
_EXPM1 = "PyTorch's expm1 of complex numbers has NaN or -0 for these"
_TANH = "the imaginary zero has the sign of sin(2 imag(x)), as in PyTorch and in C"
_NONE = "the suite compares None with a NumPy dtype, and float64 equals it"
_MASK = "a mask has the axes' lengths, as in PyTorch; the suite tries masks of length 0 for others"

_PLAIN = {
    "add": "add", "bitwise_and": "and", "bitwise_left_shift": "lshift", "bitwise_or": "or",
    "bitwise_right_shift": "rshift", "bitwise_xor": "xor", "divide": "truediv", "floor_divide": "floordiv",
    "multiply": "mul", "pow": "pow", "remainder": "mod", "subtract": "sub",
}  # fmt: skip
"""Tests of the operators with two operands, and the operators' names."""

_QUOTIENTS = (
    "x1_i is +infinity and isfinite(x2_i) and x2_i > 0) -> +infinity",
    "x1_i is +infinity and isfinite(x2_i) and x2_i < 0) -> -infinity",
    "x1_i is -infinity and isfinite(x2_i) and x2_i > 0) -> -infinity",
    "x1_i is -infinity and isfinite(x2_i) and x2_i < 0) -> +infinity",
    "isfinite(x1_i) and x1_i > 0 and x2_i is -infinity) -> -0",
    "isfinite(x1_i) and x1_i < 0 and x2_i is +infinity) -> -0",
)
_ZEROS = ("x1_i is -0 and x2_i > 0) -> +0", "x1_i is +0 and x2_i < 0) -> -0")
_COMPLEX_POWERS = (
    "(real(x_i) is +0 or real(x_i) == -0) and imag(x_i) is +0) -> 0 + 0j",
    "real(x_i) is +infinity and imag(x_i) is +0) -> +infinity + 0j",
    "real(x_i) is -infinity and imag(x_i) is +infinity) -> -1 + 0j",
    "real(x_i) is +infinity and imag(x_i) is +infinity) -> infinity + NaN j",
    "real(x_i) is -infinity and imag(x_i) is NaN) -> -1 + 0j",
    "real(x_i) is +infinity and imag(x_i) is NaN) -> infinity + NaN j",
    "real(x_i) is NaN and imag(x_i) is +0) -> NaN + 0j",
)


def _cases(test: str, function: str, cases: tuple[str, ...]) -> list[str]:
    """Tests of special values."""
    return [f"array_api_tests/test_special_cases.py::{test}[{function}({case}]" for case in cases]


EXCEPTIONS: dict[str, str] = {
    **{
        f"array_api_tests/{_OPERATORS}::test_{test}[__{name}__(x1, x2)]": _WITHOUT_AXES for test, name in _PLAIN.items()
    },
    **dict.fromkeys(_cases("test_binary", "__floordiv__", _QUOTIENTS), _FLOOR_DIVIDE),
    **dict.fromkeys(_cases("test_iop", "__ifloordiv__", _QUOTIENTS), _FLOOR_DIVIDE),
    **dict.fromkeys(_cases("test_binary", "__mod__", _ZEROS), _REMAINDER),
    **dict.fromkeys(_cases("test_iop", "__imod__", _ZEROS), _REMAINDER),
    **dict.fromkeys(_cases("test_unary", "expm1", _COMPLEX_POWERS), _EXPM1),
    **dict.fromkeys(
        _cases("test_unary", "tanh", ("real(x_i) is +infinity and isfinite(imag(x_i)) and imag(x_i) > 0) -> 1 + 0j",)),
        _TANH,
    ),
    "array_api_tests/test_data_type_functions.py::test_can_cast": _NONE,
    "array_api_tests/test_array_object.py::test_getitem_masking": _MASK,
    "array_api_tests/test_array_object.py::test_setitem_masking": _MASK,
}
"""Tests of the suite, by pytest's names, and why they fail, or may: its examples are drawn at random."""
