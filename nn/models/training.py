"""What models with a ``fit`` share: rows as tensors, shuffled epochs with a history and a bar, default optimizers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tqdm import tqdm

from alpha import Tensor, no_grad, random, tensor
from alpha.errors import ArgumentError, NumericsError, ShapeError
from alpha.nn.arguments import positive
from alpha.nn.parameter import Parameter

History = dict[str, list[float]]
"""Figures by name, one number per epoch."""
Figures = dict[str, float]
Callback = Callable[[int, Figures], Any]
"""Called after each epoch with its number, from 1, and its figures."""
OptimizerMaker = Callable[[Iterable[Parameter]], Any]
"""Makes an optimizer of parameters: ``lambda params: optim.Adam(params, lr=1e-3)``."""


class Epochs(NamedTuple):
    """How the rows are gone through.

    Attributes:
        passes: how often, each time in an order of its own.
        batch_size: rows in a batch; the last one may have fewer.
        seed: of order and draws; None for the global sequence to go on.
        callback: called after each epoch.
        progress: whether a bar is shown.
    """

    passes: int
    batch_size: int
    seed: int | None = None
    callback: Callback | None = None
    progress: bool = False


ERROR = "error"
"""The figure that every history has: the mean of what ``step`` returned, over the rows."""


def rows_of(x: Any, shape: Sequence[int | None], function: str, like: Tensor) -> Tensor:
    """Data as a tensor (n, *shape), n >= 1, of a parameter's dtype and on its engine, outside the graph.

    Args:
        x: a tensor or an array.
        shape: of one row; None stands for any length.
        function: who asks, for the error.
        like: the parameter.
    """
    found = x.detach() if isinstance(x, Tensor) else tensor(x, like.dtype, engine=like.engine)
    fits = found.ndim == len(shape) + 1 and all(
        wanted in (None, n) for wanted, n in zip(shape, found.shape[1:], strict=True)
    )
    if not fits or 0 in found.shape:
        wanted = ", ".join("*" if n is None else str(n) for n in shape)
        raise ShapeError(f"[{function}] expected rows (n, {wanted}), n >= 1, got {found.shape}: reshape or cut them")
    return found.to(like.engine).astype(like.dtype)


def check_unit_range(x: Tensor, function: str) -> None:
    """ArgumentError unless all values lie in 0..1, as probabilities do."""
    low, high = x.min().item(), x.max().item()
    if not 0 <= low <= high <= 1:
        raise ArgumentError(f"[{function}] expected values in 0..1, got {low:g}..{high:g}: scale them")


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Draws from a seed within, and goes on where the sequence was afterwards; with None nothing of that."""
    if seed is None:
        yield
        return
    before = random.get_state()
    try:
        random.manual_seed(seed)
        yield
    finally:
        random.set_state(before)


def train(
    title: str,
    data: Sequence[Tensor],
    step: Callable[..., Tensor],
    epochs: Epochs,
    measure: Callable[[], Figures] | None = None,
) -> History:
    """Goes through rows in shuffled batches and returns the history.

    Args:
        title: whose fit it is, for errors and the bar.
        data: tensors whose rows belong together.
        step: takes a batch of each and trains on it; returns the batch's mean error, a tensor of one element.
        epochs: how the rows are gone through.
        measure: gives more figures after each epoch.

    Raises:
        NumericsError: the error of an epoch is not finite.
    """
    passes, batch_size, seed, callback, progress = epochs
    positive(passes, "epochs", title)
    positive(batch_size, "batch_size", title)
    history: History = {}
    with seeded(seed), tqdm(total=passes * len(data[0]), desc=title, unit=" rows", disable=not progress) as bar:
        for epoch in range(1, passes + 1):
            error = _epoch(data, step, batch_size, bar)
            if not math.isfinite(error):
                raise NumericsError(f"[{title}] expected a finite error, got {error} in epoch {epoch}: lower lr")
            figures = {ERROR: error}
            figures |= measure() if measure is not None else {}
            for name, value in figures.items():
                history.setdefault(name, []).append(value)
            bar.set_postfix(figures, refresh=False)
            if callback is not None:
                callback(epoch, figures)
    return history


def _epoch(data: Sequence[Tensor], step: Callable[..., Tensor], batch_size: int, bar: Any) -> float:
    """One pass over the rows in random order; the mean error of a row."""
    count = len(data[0])
    order = random.permutation(count)
    total = tensor(0.0, data[0].dtype, engine=data[0].engine)
    for start in range(0, count, batch_size):
        chosen = data[0].engine.from_numpy(order[start : start + batch_size])
        error = step(*(values[chosen] for values in data))
        with no_grad():  # added up on the engine: reading each error would wait for it
            total = total + error.detach() * len(chosen)
        bar.update(len(chosen))
    return float(total) / count


def sgd(groups: Sequence[dict[str, Any]], lr: float, momentum: float) -> Any:
    """``optim.SGD``; the package stands above this one, so it is loaded when something is trained and not before."""
    from alpha.optim import SGD

    return SGD(groups, lr=lr, momentum=momentum)


def adam(params: Iterable[Parameter], lr: float) -> Any:
    """``optim.Adam``, loaded likewise."""
    from alpha.optim import Adam

    return Adam(params, lr=lr)
