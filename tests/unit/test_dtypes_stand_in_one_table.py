"""What decides by a dtype asks the table in alpha/dtypes.py: elsewhere none is compared with a name or listed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("alpha", "models", "nn", "optim", "cu32", "datasets")

NAMES = {"float32", "float64", "uint8", "int32", "int64", "bool_"}
OTHER_NAMES = {"float16", "bfloat16", "complex64", "complex128", "int8", "int16", "uint16", "uint32", "uint64"}
"""What a table that was begun elsewhere would have next."""
C_NAMES = {"float", "double"}

KERNELS = "which kernels there are, most of them for float32 alone"
EXCEPT = {
    "alpha/__init__.py": "the names that users see",
    "alpha/array_api/__init__.py": "the names that users see",
    "alpha/cpu/launch_code.py": "Python's own type of floats, whose address is looked up by its name",
    "alpha/cpu/loops": "LLVM's two types of floats, by their bits",
    "alpha/array_api": "the names that users see",
    "alpha/cpu/sorting.py": KERNELS,
    "alpha/dlpack.py": "what DLPack calls bfloat16 and NumPy does not know",
    "alpha/dtypes.py": "the table",
    "alpha/expressions/fit.py": "a polynomial's coefficients, rounded to either of two widths, by their bits",
    "alpha/utils/tensorboard": "pixels are bytes",
    "cu32/arrays.py": "words of 1, 4 and 8 bytes, which kernels move whatever they stand for",
    "cu32/conv": KERNELS,
    "cu32/driver.py": "how a kernel's arguments are packed, which are no tensors",
    "cu32/scalars.py": "C++'s two types of floats, by their bits",
    "alpha/torch_file.py": "PyTorch's names of dtypes in its files, also of those that Tensor has not",
    "cu32/structs.py": "how the fields of a kernel's structs are packed",
    "datasets/dataset.py": "pixels are bytes",
    "datasets/svhn.py": "pixels are bytes",
    "datasets/transforms": "pixels are bytes",
    "datasets/unpickle.py": "pixels are bytes",
    "optim/state.py": "a state's arrays may be another library's, which has names of its own",
}
"""Files that may decide by dtypes' names, with the reason."""


def decisions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The lines on which code compares a dtype with a name or lists several, and what stands there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            if any(_is_attribute(side, "kind") or _names(side) for side in sides) or _sizes(sides):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict):
            listed = node.keys if isinstance(node, ast.Dict) else node.elts
            if len({ast.unparse(entry) for entry in listed if entry is not None and _is_name(entry)}) > 1:
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.IfExp):
            if _is_float(node.body) and _is_float(node.orelse):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Call):
            given = (*node.args, *(keyword.value for keyword in node.keywords))
            if any(isinstance(value, ast.Constant) and value.value in ("float", "double") for value in given):
                yield node.lineno, ast.unparse(node)


def _is_attribute(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == name and _is_attribute_of(node, "dtype")


def _is_attribute_of(node: ast.Attribute, name: str) -> bool:
    value = node.value
    return (isinstance(value, ast.Attribute) and value.attr == name) or (
        isinstance(value, ast.Name) and value.id == name
    )


def _is_name(node: ast.expr) -> bool:
    """Whether an expression is a dtype's name: ``float32``, ``np.float32``, ``"float32"``, ``np.dtype(np.float32)``."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.func, ast.Attribute | ast.Name):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        return called == "dtype" and _is_name(node.args[0])
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value in NAMES | OTHER_NAMES | C_NAMES
    if isinstance(node, ast.Attribute):  # Numba's types are those of a kernel's arguments
        return node.attr in NAMES | OTHER_NAMES and getattr(node.value, "id", None) not in ("types", "numba_types")
    return isinstance(node, ast.Name) and node.id in NAMES | OTHER_NAMES


def _is_float(node: ast.expr) -> bool:
    """Whether an expression is a float dtype's name."""
    return _is_name(node) and "int" not in ast.unparse(node) and "bool" not in ast.unparse(node)


def _names(node: ast.expr) -> bool:
    """Whether one side of a comparison is a dtype's name or a few of them."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(_is_name(entry) for entry in node.elts)
    return _is_name(node)


def _sizes(sides: tuple[ast.expr, ...]) -> bool:
    """Whether a number of bytes per element is compared with a number."""
    return any(isinstance(s, ast.Attribute) and s.attr == "itemsize" for s in sides) and any(
        isinstance(s, ast.Constant) for s in sides
    )


def _modules() -> Iterator[Path]:
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            parts = file.relative_to(ROOT).parts
            if parts[1] not in PACKAGES:  # alpha's links to the others
                yield file.relative_to(ROOT)


def _is_excepted(file: Path) -> bool:
    """Whether the file, or the folder it lies in, is one of EXCEPT."""
    return any(path.match(pattern) for pattern in EXCEPT for path in (file, *file.parents))


@pytest.mark.parametrize("package", PACKAGES)
def test_no_other_file_decides_by_names(package: str) -> None:
    found = [
        f"{file}:{line}: {text}"
        for file in _modules()
        if file.parts[0] == package and not _is_excepted(file)
        for line, text in decisions(ast.parse((ROOT / file).read_text()))
    ]
    assert not found, "these decide by dtypes' names; ask alpha/dtypes.py instead:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "x.dtype == float32",
        "x.dtype != np.uint8",
        "dtype in (alpha.float32, alpha.float64)",
        "[float32, float64]",
        "{np.dtype(np.float32): 4, np.dtype(np.float64): 8}",
        "x.dtype.kind == 'f'",
        "x.dtype.kind in 'iu'",
        "x.dtype.itemsize == 4",
        "float32 if small else float64",
        "Source('losses', REAL='float')",
        "real == 'double'",
    ],
)
def test_what_decides_is_seen(code: str) -> None:
    assert list(decisions(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    ["is_float(x.dtype)", "x.dtype == y.dtype", "np.zeros(3, np.int64)", "cast(x, float64)", "16 // x.dtype.itemsize"],
)
def test_what_only_chooses_is_not(code: str) -> None:
    assert not list(decisions(ast.parse(code)))


def test_the_default_dtype_is_asked_for_when_it_is_needed() -> None:
    """``from alpha.dtypes import default_float`` would keep the one of that moment."""
    found = [
        f"{file}:{node.lineno}"
        for file in _modules()
        for node in ast.walk(ast.parse((ROOT / file).read_text()))
        if isinstance(node, ast.ImportFrom) and "default_float" in [one.name for one in node.names]
    ]
    assert not found, f"expected dtypes.default_float or get_default_dtype(), got an import of its value: {found}"
