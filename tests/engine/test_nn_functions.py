"""Losses, pooling with places, sampling, distances and bags against PyTorch: values, gradients, options, errors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import Tensor, nn
from alpha.engine import Engine
from alpha.errors import AlphaError, ArgumentError, DtypeError, IndexingError, ShapeError
from alpha.nn import functional as F

Array = np.ndarray[Any, Any]
Draw = Callable[[np.random.Generator], list[Any]]


def normal(*shapes: tuple[int, ...]) -> Draw:
    return lambda rng: [rng.normal(size=shape) for shape in shapes]


def signs(*shapes: tuple[int, ...]) -> Draw:
    """Numbers, and last of all 1 or -1."""
    return lambda rng: [*(rng.normal(size=shape) for shape in shapes[:-1]), np.sign(rng.normal(size=shapes[-1]))]


def uniform(*shapes: tuple[int, ...]) -> Draw:
    return lambda rng: [rng.random(shape) for shape in shapes]


def classes(*shape: int) -> Draw:
    return lambda rng: [rng.normal(size=shape), rng.integers(0, shape[-1], shape[:-1])]


def several(rng: np.random.Generator) -> list[Any]:
    target = rng.integers(0, 6, (4, 6))
    target[:, 2:] = np.where(rng.random((4, 4)) < 0.5, -1, target[:, 2:])
    return [rng.normal(size=(4, 6)), target]


LOSSES: list[tuple[str, Draw, dict[str, Any]]] = [
    ("smooth_l1_loss", normal((5, 3), (5, 3)), {"beta": 0.7}),
    ("smooth_l1_loss", normal((5, 3), (5, 3)), {"beta": 0}),
    ("huber_loss", normal((5, 3), (5, 3)), {"delta": 0.6}),
    ("huber_loss", normal((5, 3), (5, 3)), {"weight": (5, 3)}),
    ("mse_loss", normal((5, 3), (5, 3)), {"weight": (5, 3)}),
    ("l1_loss", normal((5, 3), (5, 3)), {"weight": (5, 3)}),
    ("binary_cross_entropy", uniform((5, 3), (5, 3)), {"weight": (3,)}),
    ("binary_cross_entropy_with_logits", uniform((5, 3), (5, 3)), {"weight": (5, 1), "pos_weight": (3,)}),
    ("kl_div", uniform((5, 3), (5, 3)), {}),
    ("kl_div", normal((5, 3), (5, 3)), {"log_target": True}),
    ("soft_margin_loss", signs((5, 3), (5, 3)), {}),
    ("hinge_embedding_loss", signs((5, 3), (5, 3)), {"margin": 0.5}),
    ("poisson_nll_loss", uniform((5, 3), (5, 3)), {"log_input": False, "full": True}),
    ("poisson_nll_loss", lambda rng: [rng.normal(size=(5, 3)), rng.random((5, 3)) * 5], {"full": True}),
    ("gaussian_nll_loss", uniform((5, 3), (5, 3), (5, 1)), {"full": True, "eps": 0.2}),
    ("margin_ranking_loss", signs((7,), (7,), (7,)), {"margin": 0.3}),
    ("cosine_embedding_loss", signs((7, 4), (7, 4), (7,)), {"margin": 0.2}),
    ("triplet_margin_loss", normal((7, 4), (7, 4), (7, 4)), {"p": 3, "swap": True}),
    ("triplet_margin_with_distance_loss", normal((7, 4), (7, 4), (7, 4)), {"margin": 0.5}),
    ("multi_margin_loss", classes(6, 5), {"p": 2, "margin": 0.7, "weight": (5,)}),
    ("multilabel_margin_loss", several, {}),
    ("multilabel_soft_margin_loss", uniform((5, 3), (5, 3)), {"weight": (3,)}),
    ("cross_entropy", uniform((5, 3), (5, 3)), {"weight": (3,), "label_smoothing": 0.2}),
    ("cross_entropy", uniform((2, 5, 4, 3), (2, 5, 4, 3)), {}),
    ("nll_loss", classes(6, 5), {"weight": (5,), "ignore_index": 2}),
]

LAYERS = {
    "smooth_l1_loss": "SmoothL1Loss", "huber_loss": "HuberLoss", "mse_loss": "MSELoss", "l1_loss": "L1Loss",
    "binary_cross_entropy": "BCELoss", "binary_cross_entropy_with_logits": "BCEWithLogitsLoss", "kl_div": "KLDivLoss",
    "soft_margin_loss": "SoftMarginLoss", "hinge_embedding_loss": "HingeEmbeddingLoss",
    "poisson_nll_loss": "PoissonNLLLoss", "gaussian_nll_loss": "GaussianNLLLoss",
    "margin_ranking_loss": "MarginRankingLoss", "cosine_embedding_loss": "CosineEmbeddingLoss",
    "triplet_margin_loss": "TripletMarginLoss", "triplet_margin_with_distance_loss": "TripletMarginWithDistanceLoss",
    "multi_margin_loss": "MultiMarginLoss", "multilabel_margin_loss": "MultiLabelMarginLoss",
    "multilabel_soft_margin_loss": "MultiLabelSoftMarginLoss", "cross_entropy": "CrossEntropyLoss",
    "nll_loss": "NLLLoss",
}  # fmt: skip


def compare(
    engine: Engine, torch: Any, function: Callable[..., Any], theirs: Callable[..., Any], values: list[Any]
) -> None:
    """Results and gradients of both; of several results the first has gradients."""
    ours = [alpha.tensor(v, engine=engine, requires_grad=v.dtype.kind == "f") for v in values]
    others = [torch.tensor(v, requires_grad=v.dtype.kind == "f") for v in values]
    found, expected = function(*ours), theirs(*others)
    found, expected = [x if isinstance(x, tuple) else (x,) for x in (found, expected)]
    for one, other in zip(found, expected, strict=True):
        assert str(one.dtype) == str(other.dtype).removeprefix("torch.") and one.shape == tuple(other.shape)
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-12, atol=1e-13)
    slopes = np.random.default_rng(1).uniform(0.5, 1.5, found[0].shape)
    (found[0] * alpha.tensor(slopes, engine=engine)).sum().backward()
    (expected[0] * torch.tensor(slopes)).sum().backward()
    for one, other in zip(ours, others, strict=True):
        if other.grad is not None:
            np.testing.assert_allclose(one.grad.numpy(), other.grad.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.needs("torch")
@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's, of its mean of kl_div
@pytest.mark.parametrize("case", range(len(LOSSES)), ids=[name for name, *_ in LOSSES])
def test_losses_and_their_layers_are_pytorchs(engine: Engine, rng: np.random.Generator, case: int) -> None:
    import torch

    name, draw, options = LOSSES[case]
    values = draw(rng)
    made = {key: rng.random(value) + 0.5 if "weight" in key else value for key, value in options.items()}
    there = {key: torch.tensor(value) if "weight" in key else value for key, value in made.items()}
    here = {key: alpha.tensor(value, engine=engine) if "weight" in key else value for key, value in made.items()}
    wide = (lambda x: x.movedim(-1, 1)) if name == "cross_entropy" else (lambda x: x)
    held = (lambda x: (x[0], x[1].detach())) if name == "soft_margin_loss" else (lambda x: x)  # PyTorch has no gradient
    for reduction in ("mean", "sum", "none", *(["batchmean"] if name == "kl_div" else [])):

        def ours(*x: Tensor, reduction: str = reduction) -> Any:
            return getattr(F, name)(*held(x), **here, reduction=reduction)

        def theirs(*x: Any, reduction: str = reduction) -> Any:
            return getattr(torch.nn.functional, name)(*map(wide, held(x)), **there, reduction=reduction)

        compare(engine, torch, ours, theirs, values)
        if name in ("mse_loss", "l1_loss", "huber_loss") and "weight" in here:
            continue  # PyTorch's layers have none
        layer, tensors = (
            getattr(nn, LAYERS[name])(**here, reduction=reduction),
            [alpha.tensor(v, engine=engine) for v in values],
        )
        np.testing.assert_array_equal(layer(*tensors).numpy(), ours(*tensors).numpy())
        assert set(layer.state_dict()) == {key for key in here if "weight" in key}


def test_older_names_of_reductions_and_broadcasts_warn(engine: Engine) -> None:
    x, y = alpha.tensor([[1.0, 2.0]], engine=engine), alpha.tensor([0.0, 0.0], engine=engine)
    with pytest.warns(UserWarning, match='pass reduction="sum"'):
        assert F.mse_loss(x, x + 1, size_average=False).item() == 2
    with pytest.warns(UserWarning, match='pass reduction="none"'):
        assert nn.L1Loss(reduce=False)(x, x).shape == (1, 2)
    with pytest.warns(
        UserWarning, match=r"\[mse_loss\] input of shape \(1, 2\) and target of shape \(2,\) are broadcast"
    ):
        assert F.mse_loss(x, y, reduction="sum").item() == 5


Call = tuple[str, list[tuple[int, ...]], dict[str, Any]]
POOLS: list[Call] = [
    ("max_pool1d", [(2, 3, 9)], {"kernel_size": 3, "stride": 2, "padding": 1, "return_indices": True}),
    ("max_pool2d", [(2, 3, 7, 6)], {"kernel_size": (2, 3), "padding": 1, "dilation": 2, "return_indices": True}),
    ("max_pool3d", [(2, 3, 5, 6, 7)], {"kernel_size": 2, "stride": (1, 2, 3), "return_indices": True}),
    ("max_pool3d", [(3, 5, 6, 7)], {"kernel_size": 2, "return_indices": True}),
    ("adaptive_max_pool1d", [(2, 3, 9)], {"output_size": 4, "return_indices": True}),
    ("adaptive_max_pool2d", [(2, 3, 7, 6)], {"output_size": (3, None), "return_indices": True}),
    ("adaptive_max_pool3d", [(2, 3, 5, 6, 7)], {"output_size": (2, 6, 4), "return_indices": True}),
    ("adaptive_avg_pool2d", [(3, 7, 6)], {"output_size": (3, 2)}),
    ("avg_pool1d", [(3, 9)], {"kernel_size": 2}),
    ("conv2d", [(3, 7, 6), (4, 3, 2, 3)], {"padding": 1}),
    ("conv_transpose1d", [(3, 7), (3, 4, 3)], {"stride": 2}),
    ("grid_sample", [(2, 3, 5, 6), (2, 4, 3, 2)], {"mode": "bilinear", "align_corners": False}),
    ("grid_sample", [(2, 3, 5, 6), (2, 4, 3, 2)], {"mode": "bicubic", "padding_mode": "border", "align_corners": True}),
    ("grid_sample", [(2, 3, 5, 6), (2, 4, 3, 2)], {"mode": "nearest", "padding_mode": "reflection"}),
    ("grid_sample", [(2, 3, 4, 5, 6), (2, 3, 4, 3, 3)], {"padding_mode": "reflection", "align_corners": True}),
    ("pad", [(2, 3, 5)], {"pad": (2, -1, -1, 1), "mode": "reflect"}),
    ("pad", [(2, 3, 5)], {"pad": (-1, 2), "mode": "circular"}),
    ("affine_grid", [(2, 2, 3)], {"size": (2, 3, 4, 5), "align_corners": True}),
    ("affine_grid", [(2, 3, 4)], {"size": (2, 3, 4, 5, 6), "align_corners": False}),
    ("normalize", [(4, 5)], {"p": 3.0}),
    ("cosine_similarity", [(4, 5), (1, 5)], {}),
    ("pairwise_distance", [(4, 5), (5,)], {"p": 1.5, "keepdim": True}),
    ("pdist", [(6, 4)], {"p": 3.0}),
    ("bilinear", [(2, 3, 4), (2, 3, 5), (6, 4, 5), (6,)], {}),
]  # fmt: skip


@pytest.mark.needs("torch")
@pytest.mark.parametrize("case", range(len(POOLS)), ids=[name for name, *_ in POOLS])
def test_functions_with_channels_second_are_pytorchs(engine: Engine, rng: np.random.Generator, case: int) -> None:
    import torch

    name, shapes, options = POOLS[case]
    values = [rng.normal(size=shape) for shape in shapes]
    with alpha.set_image_layout("NCHW"):
        compare(
            engine,
            torch,
            lambda *x: getattr(F, name)(*x, **options),
            lambda *x: getattr(torch.nn.functional, name)(*x, **options),
            values,
        )


@pytest.mark.needs("torch")
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_maxima_go_back_to_their_places(engine: Engine, rng: np.random.Generator, axes: int) -> None:
    import torch

    def both(library: Any) -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            y, places = getattr(library, f"max_pool{axes}d")(x, 3, 2, 1, return_indices=True)
            return getattr(library, f"max_unpool{axes}d")(y, places, 3, 2, 1, output_size=x.shape)

        return call

    with alpha.set_image_layout("NCHW"):
        pool, back = (
            getattr(nn, f"MaxPool{axes}d")(3, 2, 1, return_indices=True),
            getattr(nn, f"MaxUnpool{axes}d")(3, 2, 1),
        )
        values = [rng.normal(size=(2, 3, *(6,) * axes))]
        compare(engine, torch, both(F), both(torch.nn.functional), values)
        x = alpha.tensor(values[0], engine=engine)
        np.testing.assert_array_equal(back(*pool(x), output_size=x.shape).numpy(), both(F)(x).numpy())


@pytest.mark.needs("torch")
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
def test_bags_are_pytorchs(engine: Engine, rng: np.random.Generator, mode: str, padding: int | None) -> None:
    import torch

    table, index, offsets = rng.normal(size=(7, 3)), rng.integers(0, 7, 12), np.array([0, 3, 3, 8])
    options = {"mode": mode, "padding_idx": padding}
    for given in ([index.reshape(4, 3)], [index, offsets]):

        def call(f: Any, given: list[Array] = given) -> Callable[[Any], Any]:
            convert = torch.tensor if f is torch.nn.functional else lambda v: alpha.tensor(v, engine=engine)
            return lambda w: f.embedding_bag(convert(given[0]), w, *map(convert, given[1:]), **options)

        compare(engine, torch, call(F), call(torch.nn.functional), [table])
    layer = nn.EmbeddingBag.from_pretrained(alpha.tensor(table, engine=engine), mode=mode, padding_idx=padding)
    assert layer(alpha.tensor(index, engine=engine), alpha.tensor(offsets, engine=engine)).shape == (4, 3)


@pytest.mark.needs("torch")
def test_rows_of_an_embedding_are_limited_and_their_gradients_averaged(
    engine: Engine, rng: np.random.Generator
) -> None:
    import torch

    values, index = rng.normal(size=(6, 4)) * 2, np.array([[0, 1, 1], [5, 1, 0]])
    ours, theirs = alpha.tensor(values, engine=engine, requires_grad=True), torch.tensor(values, requires_grad=True)
    y = F.embedding(alpha.tensor(index, engine=engine), ours, 1, 1.5, 2.0, True)
    expected = torch.nn.functional.embedding(torch.tensor(index), theirs, 1, 1.5, 2.0, True)
    (y * y).sum().backward()
    (expected * expected).sum().backward()
    for one, other in ((y, expected), (ours, theirs), (ours.grad, theirs.grad)):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-12)  # type: ignore[union-attr]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_alignments_are_pytorchs(engine: Engine, rng: np.random.Generator, reduction: str, zero_infinity: bool) -> None:
    import torch

    targets = np.array(
        [[1, 1, 2, 3, 0], [2, 2, 2, 2, 2], [4, 5, 1, 0, 0], [3, 0, 0, 0, 0]]
    )  # the second has no alignment
    lengths, steps = [4, 5, 3, 0], [12, 8, 7, 5]

    def ours(x: Tensor) -> Any:
        joined = np.concatenate([row[:n] for row, n in zip(targets, lengths, strict=True)])
        options = (steps, lengths, 0, reduction, zero_infinity)
        rows, given = F.log_softmax(x, -1), [alpha.tensor(t, engine=engine) for t in (targets, joined)]
        found = [F.ctc_loss(rows, one, *options) for one in given]
        np.testing.assert_array_equal(found[0].detach().numpy(), found[1].detach().numpy())
        return found[0]

    def theirs(x: Any) -> Any:
        rows = torch.nn.functional.log_softmax(x, -1)
        given = (torch.tensor(targets), torch.tensor(steps), torch.tensor(lengths))
        return torch.nn.functional.ctc_loss(rows, *given, 0, reduction, zero_infinity)

    compare(engine, torch, ours, theirs, [rng.normal(size=(12, 4, 6))])


@pytest.mark.needs("torch")
@pytest.mark.parametrize("axes", [2, 3])
def test_fractional_windows_are_pytorchs(engine: Engine, rng: np.random.Generator, axes: int) -> None:
    import torch

    samples, sizes = rng.random((2, 3, axes)), (4, 5, 3)[:axes]
    name = f"fractional_max_pool{axes}d"

    def ours(x: Tensor) -> Any:
        given = alpha.tensor(samples, engine=engine)
        return getattr(F, name)(x, 2, sizes, return_indices=True, _random_samples=given, layout="NCHW")

    def theirs(x: Any) -> Any:
        call = getattr(torch.nn.functional, name)
        return call(x, 2, output_size=sizes, return_indices=True, _random_samples=torch.tensor(samples))

    compare(engine, torch, ours, theirs, [rng.normal(size=(2, 3, *(9, 8, 7)[:axes]))])
    drawn = getattr(F, name)(alpha.ones((1, *(6,) * axes, 2), engine=engine), 2, output_ratio=0.5)
    assert drawn.shape == (1, *(3,) * axes, 2) and (drawn == 1).all()


@pytest.mark.needs("torch")
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_layers_of_every_padding_are_pytorchs(engine: Engine, rng: np.random.Generator, layout: str) -> None:
    import torch

    values = rng.normal(size=(2, 3, 4, 5, 6))
    for axes in (1, 2, 3):
        x = values[(..., *(0,) * (3 - axes))]
        given = alpha.tensor(x if layout == "NCHW" else np.moveaxis(x, 1, -1), engine=engine)
        for kind in ("Zero", "Reflection", "Replication", "Circular", "Constant"):
            name, options = f"{kind}Pad{axes}d", [tuple(range(1, 2 * axes + 1)) if kind == "Zero" else 2]
            options += [1.5] if kind == "Constant" else []
            found = getattr(nn, name)(*options, layout=layout)(given).numpy()
            expected = getattr(torch.nn, name)(*options)(torch.tensor(x)).numpy()
            np.testing.assert_array_equal(found if layout == "NCHW" else np.moveaxis(found, -1, 1), expected)
        mode, filters = ("reflect", "replicate", "circular")[axes - 1], rng.normal(size=(4, 3, *(3,) * axes))
        ours = getattr(nn, f"Conv{axes}d")(3, 4, 3, padding="same", padding_mode=mode, bias=False, layout=layout).to(
            engine
        )
        theirs = getattr(torch.nn, f"Conv{axes}d")(3, 4, 3, padding="same", padding_mode=mode, bias=False).double()
        theirs.weight.data.copy_(torch.tensor(filters))
        ours = ours.to(alpha.float64)
        ours.load_state_dict({"weight": alpha.tensor(filters if layout == "NCHW" else np.moveaxis(filters, 1, -1))})
        found = ours(given).detach().numpy()
        np.testing.assert_allclose(
            found if layout == "NCHW" else np.moveaxis(found, -1, 1),
            theirs(torch.tensor(x)).detach().numpy(),
            rtol=1e-10,
        )


def test_channels_are_dropped_whole(engine: Engine) -> None:
    alpha.manual_seed(3)
    x = alpha.ones((8, 5, 4, 30), engine=engine).requires_grad_()
    for layer in (nn.Dropout2d(0.4), nn.FeatureAlphaDropout(0.4)):
        y = layer(x)
        values = y.detach().numpy()
        assert (values == values[:, :1, :1]).all() and 0.3 < (values[:, 0, 0] == values.min()).mean() < 0.5
        assert layer.eval()(x) is x
    y.sum().backward()
    assert x.grad is not None and set(np.unique(x.grad.numpy() > 0)) == {False, True}
    z = alpha.randn(100_000, dtype="float64", engine=engine)
    w = nn.AlphaDropout(0.3)(z)
    assert abs(w.mean().item()) < 0.02 and abs(w.std().item() - 1) < 0.02


def test_bools_are_padded_by_false_and_inputs_have_names(engine: Engine) -> None:
    mask = F.pad(alpha.tensor([True, True], engine=engine), (1, -1))
    assert mask.numpy().tolist() == [False, True]
    x = alpha.ones((1, 4, 4, 2), engine=engine)
    assert F.max_pool2d(input=x, kernel_size=2).shape == F.avg_pool2d(input=x[0], kernel_size=2)[None].shape
    assert nn.MSELoss()(input=x, target=x).item() == 0


def test_axes_of_one_are_made_into_several() -> None:
    assert nn.Unflatten(1, (2, -1, 3))(alpha.zeros((4, 12))).shape == (4, 2, 2, 3)
    assert nn.Unflatten(-1, (3, 4))(alpha.zeros((5, 2, 12))).shape == (5, 2, 3, 4)


ERRORS: list[tuple[Callable[[], Any], type[AlphaError], str]] = [
    (lambda: F.binary_cross_entropy(X + 1.5, X), ArgumentError, r"entropy\] expected probabilities in 0..1"),
    (lambda: F.gaussian_nll_loss(X, X, X - 1), ArgumentError, r"\[gaussian_nll_loss\] expected a variance >= 0"),
    (lambda: F.cross_entropy(X, X[:1]), ShapeError, r"expected probabilities of the input's shape \(2, 3\)"),
    (lambda: F.cross_entropy(X, X, ignore_index=1), ArgumentError, "expected no ignore_index with probabilities"),
    (lambda: F.multi_margin_loss(X, alpha.tensor([0, 3])), ArgumentError, r"expected labels in 0..2, got 3"),
    (lambda: F.ctc_loss(X, alpha.tensor([1]), [2], [3]), ArgumentError, r"expected target_lengths in 0..1, got"),
    (lambda: F.kl_div(X, X, reduction="batch"), ArgumentError, '"mean", "batchmean", "sum" or "none"'),
    (lambda: F.max_unpool2d(ONE, ONE.long() + 9, 2), IndexingError, "expected indices in 0..3, got 9"),
    (lambda: F.max_unpool2d(ONE, ONE, 2), DtypeError, "expected indices of integers shaped as input"),
    (lambda: F.avg_pool2d(ONE, 1, divisor_override=0), ArgumentError, "expected a divisor_override other than 0"),
    (lambda: F.pixel_shuffle(ONE, 2), ShapeError, r"expected channels divisible by 2 \*\* 2"),
    (lambda: F.grid_sample(ONE, X), ShapeError, r"\[grid_sample\] expected images \(N, H, W, C\) and a grid"),
    (lambda: F.fold(X, 2, 2), ShapeError, r"\[fold\] expected 1 windows of a multiple of 2 \* 2 elements"),
    (lambda: F.embedding_bag(alpha.tensor([0]), X), ShapeError, "without offsets, or .* with offsets"),
    (lambda: F.embedding(alpha.tensor([0]), X, sparse=True), ArgumentError, "expected sparse=False, got True"),
    (lambda: F.interpolate(ONE, 2, antialias=True), ArgumentError, 'antialias with "bilinear" or "bicubic" alone'),
    (lambda: F.one_hot(alpha.zeros(0).long()), ArgumentError, "expected num_classes where there are no labels"),
    (
        lambda: F.triplet_margin_with_distance_loss(X, X, X, distance_function=3),  # type: ignore[arg-type]
        ArgumentError,
        "expected distance_function as a function, got 3",
    ),
    (lambda: F.pad(X, (-4, 0)), ShapeError, "expected no more elements taken off than there are"),
    (lambda: nn.ReflectionPad2d((1, 2, 3)), ArgumentError, r"\[ReflectionPad2d\] expected padding as one integer or 4"),
    (lambda: nn.ConvTranspose2d(1, 1, 1, padding_mode="circular"), ArgumentError, 'padding_mode as one of "zeros"'),
]  # fmt: skip
X, ONE = alpha.zeros((2, 3)), alpha.zeros((1, 1, 1, 1))


@pytest.mark.parametrize("case", range(len(ERRORS)))
def test_wrong_arguments_say_so(case: int) -> None:
    call, error, message = ERRORS[case]
    with warnings.catch_warnings(), pytest.raises(error, match=message):
        warnings.simplefilter("ignore")
        call()


def test_nothing_is_lost_in_empty_or_infinite_input(engine: Engine) -> None:
    empty = alpha.zeros((0, 4, 4, 2), engine=engine).requires_grad_()
    for y in (F.avg_pool2d(empty, 2), F.adaptive_max_pool2d(empty, 2), F.local_response_norm(empty, 2)):
        y.sum().backward()
    assert empty.grad is not None and empty.grad.shape == empty.shape
    x = alpha.tensor([[math.inf, 0.0]], engine=engine)
    assert F.huber_loss(x, alpha.zeros_like(x), reduction="sum").item() == math.inf
