"""The layers of the sources, read from their text: who imports whom, and what stands in one place alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import alpha

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = {"alpha": "alpha", **{name: f"alpha.{name}" for name in ("nn", "optim", "models", "datasets", "cu32")}}
"""The names of the packages in the folders at the top."""


def _modules() -> dict[str, Path]:
    """The modules of the installed packages."""
    found = {}
    for folder, package in PACKAGES.items():
        for path in _files(folder):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *(part for part in parts if part != "__init__")))] = path
    return found


def _files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents):
                yield path


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


# -- imports -----------------------------------------------------------------------------------------------------


def _run_on_import(statements: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that run when a module is imported: not those within functions, nor for type checkers alone."""
    for statement in statements:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield statement
        elif isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from _run_on_import(statement.orelse)
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            for name in ("body", "orelse", "finalbody"):
                yield from _run_on_import(getattr(statement, name, []))
            for handler in getattr(statement, "handlers", []):
                yield from _run_on_import(handler.body)


def _imported(module: str, path: Path, known: dict[str, Path]) -> set[str]:
    """The known modules that a module imports when it is imported."""
    found = set()
    for statement in _run_on_import(_tree(path).body):
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
        else:
            assert not statement.level, f"{path}: expected absolute imports, got a relative one"
            source = statement.module or ""
            names = [f"{source}.{alias.name}" for alias in statement.names]
            found |= {name if name in known else source for name in names}
    return (found & known.keys()) - {module}


def _circle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other_in_a_circle() -> None:
    modules = _modules()
    assert len(modules) > 200
    circle = _circle({name: _imported(name, path, modules) for name, path in modules.items()})
    assert not circle, f"expected layers, got a circle: {' <- '.join(circle)}"


def test_a_circle_is_found(tmp_path: Path) -> None:
    """Within try blocks, if blocks and classes too, but neither within functions nor for type checkers alone."""
    texts = {
        "a": "try:\n    import b\nexcept ImportError:\n    pass",
        "b": "class B:\n    from c import thing",
        "c": "def later():\n    import a",
        "d": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import b\nelse:\n    import a",
    }
    modules = {name: tmp_path / f"{name}.py" for name in texts}
    for name, text in texts.items():
        modules[name].write_text(text)
    graph = {name: _imported(name, path, modules) for name, path in modules.items()}
    assert graph == {"a": {"b"}, "b": {"c"}, "c": set(), "d": {"a"}}
    assert not _circle(graph)
    assert set(_circle({**graph, "c": {"a"}})) == {"a", "b", "c"}


def test_tensor_imports_nothing_above_itself() -> None:
    """Not even within functions: errors, dtypes, hooks, changes and the checks of arguments are all it needs."""
    modules = _modules()
    body = [node for node in ast.walk(_tree(modules["alpha.tensor"])) if isinstance(node, ast.FunctionDef)]
    assert not [line for function in body for line in _run_on_import(function.body)]
    below: set[str] = set()
    waiting = ["alpha.tensor"]
    while waiting:
        module = waiting.pop()
        waiting += _imported(module, modules[module], modules) - below
        below |= _imported(module, modules[module], modules)
    assert below == {"alpha.arguments", "alpha.changes", "alpha.dtypes", "alpha.errors", "alpha.hooks"}


def test_no_import_stands_below_other_code() -> None:
    excused = [str(path) for path in _files(*PACKAGES, "benchmarks", "examples") if "E402" in path.read_text("utf-8")]
    assert not excused


# -- one place ---------------------------------------------------------------------------------------------------


def test_one_place_counts_the_writes_to_memory() -> None:
    places = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in _files(*PACKAGES, "benchmarks", "examples")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if "version +=" in line
    ]
    assert len(places) == 1, f"expected Storage.touch() alone to count the writes, got {places}: call storage.touch()"
    assert places[0].startswith("alpha/tensor.py")


@pytest.mark.parametrize("name", ["sum", "exp", "clamp", "sort", "masked_fill", "add_"])
def test_a_function_is_its_own_method(name: str) -> None:
    """One definition, with its documentation."""
    assert getattr(alpha.Tensor, name) is getattr(alpha, name)
    assert getattr(alpha.Tensor, name).__doc__


# -- parameters --------------------------------------------------------------------------------------------------

MOST_PARAMETERS = 8
PUBLIC = {
    "datasets/loader.py:DataLoader.__init__",
    "alpha/autograd/checks.py:gradcheck",
    "alpha/autograd/checks.py:gradgradcheck",
    "alpha/autograd/gradients.py:grad",
    "alpha/functions/class_loss.py:cross_entropy",
    "alpha/functions/conv.py:conv2d",
    "alpha/functions/short_time.py:istft",
    "alpha/functions/short_time.py:stft",
    "alpha/functions/conv.py:conv_transpose2d",
    "alpha/functions/conv_nd.py:conv_transpose1d",
    "alpha/functions/conv_nd.py:conv_transpose3d",
    "alpha/functions/embeddings.py:embedding_bag",
    "alpha/functions/margin_loss.py:triplet_margin_loss",
    "alpha/functions/multi_head.py:multi_head_attention_forward",
    "alpha/functions/norm.py:batch_norm",
    "alpha/functions/normalise.py:instance_norm",
    "nn/attention.py:MultiheadAttention.__init__",
    "models/maxvit.py:MaxVit.__init__",
    "models/mobilenetv3.py:InvertedResidualConfig.__init__",
    "models/parts.py:Conv2dNormActivation.__init__",
    "models/swin_transformer.py:SwinTransformer.__init__",
    "models/swin_transformer.py:SwinTransformerBlock.__init__",
    "models/swin_transformer.py:SwinTransformerBlockV2.__init__",
    "models/vision_transformer.py:VisionTransformer.__init__",
    "nn/conv.py:ConvTransposeNd.__init__",  # ConvTranspose1d's, 2d's and 3d's
    "nn/embedding.py:EmbeddingBag.__init__",
    "nn/models/autoencoder.py:StackedDenoisingAutoencoder.fine_tune",
    "nn/models/rbm.py:BoltzmannMachine.fit",
    "optim/adagrad.py:Adadelta.__init__",
    "optim/adagrad.py:Adagrad.__init__",
    "optim/adam.py:Adam.__init__",
    "optim/adam.py:AdamW.__init__",
    "optim/adam.py:Adamax.__init__",
    "optim/adam.py:NAdam.__init__",
    "optim/adam.py:RAdam.__init__",
    "nn/conv.py:PlainConvNd.__init__",  # Conv1d's, 2d's and 3d's
    "nn/lazy.py:_LazyPlainConvNd.__init__",  # LazyConv1d's, 2d's and 3d's
    "nn/lazy.py:_LazyConvTransposeNd.__init__",  # LazyConvTranspose1d's, 2d's and 3d's
    "nn/recurrent.py:RNNBase.__init__",
    "nn/transformer.py:Transformer.__init__",
    "nn/transformer.py:Transformer.forward",
    "nn/transformer.py:_Layer.__init__",  # TransformerEncoderLayer's and TransformerDecoderLayer's
    "optim/muon.py:Muon.__init__",
    "optim/rmsprop.py:RMSprop.__init__",
    "optim/schedules/cycles.py:CyclicLR.__init__",
    "optim/schedules/cycles.py:OneCycleLR.__init__",
    "optim/schedules/plateau.py:ReduceLROnPlateau.__init__",
    "optim/sgd.py:ASGD.__init__",
    "optim/sgd.py:SGD.__init__",
    "nn/embedding.py:Embedding.__init__",
    "nn/embedding.py:EmbeddingBag.from_pretrained",
    "nn/instance_norm.py:InstanceNorm.__init__",
    "nn/norm.py:BatchNorm.__init__",
    "nn/recurrent.py:GRU.__init__",
    "nn/recurrent.py:LSTM.__init__",
    "nn/recurrent.py:RNN.__init__",
    "nn/sync_norm.py:SyncBatchNorm.__init__",
}
"""What users call, and give what they need by name: these may have more."""


def _functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """A file's functions, by file, classes and name: ``nn/conv.py:Conv2d.forward``."""

    def within(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = (*names, child.name)
                if not isinstance(child, ast.ClassDef):
                    yield f"{path.relative_to(ROOT)}:{'.'.join(inner)}", child
                yield from within(child, inner)
            else:
                yield from within(child, names)

    yield from within(_tree(path), ())


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Parameters of a function without what it belongs to: ``self``, ``cls``, or the engine that it is a part of."""
    given = function.args
    names = [parameter.arg for parameter in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"], ["engine"])) + bool(given.vararg) + bool(given.kwarg)


def test_long_lists_of_parameters_are_records() -> None:
    """Kernels aside: compiled code is handed numbers and addresses one by one."""
    found = {
        name
        for path in _files(*PACKAGES)
        if "kernels" not in path.parts
        for name, function in _functions(path)
        if _parameters(function) > MOST_PARAMETERS
    }
    new = found - PUBLIC
    assert not new, f"expected at most {MOST_PARAMETERS} parameters, got more in {sorted(new)}: hand over a record"
    gone = PUBLIC - found
    assert not gone, f"expected these to be long still, got shorter ones: take {sorted(gone)} off the list"
