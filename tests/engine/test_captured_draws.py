"""Random numbers in captured steps: replays draw what the step as it is would draw, also where it draws again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, optim, random
from alpha.engine import Engine
from alpha.errors import GraphError
from alpha.nn import functional as F

Step = Callable[..., Any]
CALLS = 6


def as_it_is(step: Step) -> Step:
    return step


@pytest.fixture
def captures(engine: Engine) -> bool:
    """Whether the engine captures steps; otherwise ``alpha.graph`` runs them as they are."""
    return engine.recorder() is not None


def given(engine: Engine, *shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(7)
    return [alpha.tensor(rng.standard_normal(shape).astype(np.float32), engine=engine) for shape in shapes]


def checkpointed(x: Any, w: Any, **options: Any) -> Any:
    return alpha.checkpoint(lambda x: F.dropout(F.linear(x, w), 0.4) * x, x, **options)


def twice(x: Any, w: Any) -> Any:
    """A checkpoint within another, with draws before, within and behind both."""

    def inner(x: Any) -> Any:
        return F.dropout(F.linear(x, w), 0.3)

    def outer(x: Any) -> Any:
        x = F.dropout(x, 0.2)
        x = alpha.checkpoint(inner, x)
        return x + alpha.rand(*x.shape, engine=x.engine)

    return F.dropout(alpha.checkpoint(outer, F.dropout(x, 0.1)), 0.5) + alpha.randn(*x.shape, engine=x.engine)


def attended(x: Any, w: Any, **options: Any) -> Any:
    y = F.linear(x, w)
    heads = [y[:, start : start + 2].unsqueeze(0) for start in (0, 2, 3)]
    return F.scaled_dot_product_attention(*heads, dropout_p=0.3, **options)[0]


def attended_with_mask(x: Any, w: Any) -> Any:
    return attended(x, w, attn_mask=F.linear(x, w)[:, :5])


def mapped(x: Any, w: Any) -> Any:
    return alpha.vmap(lambda row: F.dropout(row, 0.5), randomness="same")(F.linear(x, w))


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "dropout": lambda x, w: F.dropout(F.linear(x, w), 0.5),
    "checkpoint": checkpointed,
    "checkpoint that draws others": lambda x, w: checkpointed(x, w, preserve_rng_state=False),
    "checkpoint without its result": lambda x, w: checkpointed(x, w, keep_result=False) * 2,
    "checkpoint in a checkpoint": twice,
    "attention": attended,
    "causal attention": lambda x, w: attended(x, w, is_causal=True),
    "attention with a mask's gradient": attended_with_mask,
    "attention in a checkpoint": lambda x, w: alpha.checkpoint(attended, x, w),
    "the same for each sample": mapped,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_replays_draw_what_the_step_draws(engine: Engine, captures: bool, name: str) -> None:
    """Losses, gradients, and the place in the sequence behind each call."""
    found = []
    for wrap in (as_it_is, alpha.graph):
        alpha.manual_seed(5)
        x, w = given(engine, (5, 6), (6, 6))
        w.requires_grad_()

        def step(x: Any, w: Any = w) -> Any:
            w.grad = None
            loss = FUNCTIONS[name](x * 1, w).square().sum()
            loss.backward()
            return loss, w.grad

        step_ = wrap(step)
        calls = []
        for _ in range(CALLS):
            calls += [np.array(y.detach()) for y in step_(x)]
            calls.append(np.array(list(random.get_state().values()), np.uint64))
            calls.append(random.uniform(3))  # others draw in between
        found.append(calls)
        if wrap is alpha.graph:
            assert step_.captures == int(captures)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_checkpoint_draws_the_same_twice(engine: Engine) -> None:
    """Against the same step without it: the gradient is that of the numbers that the result had."""
    found = []
    for call in (lambda function, x: function(x), alpha.checkpoint):
        alpha.manual_seed(5)
        x, w = given(engine, (5, 6), (6, 6))
        w.requires_grad_()

        @alpha.graph
        def step(x: Any, w: Any = w, call: Any = call) -> Any:
            w.grad = None
            call(lambda x: F.dropout(F.linear(x, w), 0.4) * x, x * 1).square().sum().backward()
            return w.grad

        found.append([np.array(step(x)) for _ in range(CALLS)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_what_was_drawn_outside_the_step_stays(engine: Engine) -> None:
    """The gradient of an attention, and of a checkpoint, that were called before the step."""
    alpha.manual_seed(5)
    x, w = given(engine, (5, 6), (6, 6))
    w.requires_grad_()
    loss = attended(x, w).square().sum() + checkpointed(x, w).square().sum()
    (expected,) = alpha.autograd.grad(loss, w, retain_graph=True)

    def step() -> Any:
        w.grad = None
        loss.backward(retain_graph=True)
        return w.grad

    graphed = alpha.graph(lambda x: step() * x)
    one = alpha.ones((), engine=engine)
    for _ in range(CALLS):
        np.testing.assert_array_equal(np.array(graphed(one)), np.array(expected))


@pytest.mark.slow
def test_a_decoder_trains_the_same_captured(engine: Engine, captures: bool) -> None:
    """Two layers of a causal transformer with dropout everywhere."""
    found = []
    for wrap in (as_it_is, alpha.graph):
        alpha.manual_seed(1)
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.2, batch_first=True)
        net = nn.TransformerEncoder(layer, 2).to(engine).train()
        optimizer = optim.AdamW(net.parameters(), lr=1e-2)

        mask = alpha.ones(7, 7, dtype=alpha.bool, engine=engine).triu(1)

        def step(x: Any, net: Any = net, optimizer: Any = optimizer, mask: Any = mask) -> Any:
            loss = net(x, mask, is_causal=True).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        graphed = wrap(step)
        losses = [np.array(graphed(x).detach()) for x in given(engine, *[(3, 7, 8)] * CALLS)]
        found.append([*losses, *[np.array(value) for value in net.state_dict().values()]])
        if wrap is alpha.graph:
            assert graphed.captures == int(captures)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


SEEDING: dict[str, Callable[[], object]] = {
    "manual_seed": lambda: alpha.manual_seed(3),
    "seed": alpha.seed,
    "set_state": lambda: random.set_state(random.get_state()),
    "set_rng_state": lambda: alpha.set_rng_state(alpha.get_rng_state()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SEEDING)
def test_a_step_that_seeds_is_refused(engine: Engine, captures: bool, name: str) -> None:
    """Replays would not seed. What is outside may, and the next call starts from there."""

    def step(x: Any) -> Any:
        if seeds:
            SEEDING[name]()
        return F.dropout(x, 0.5)

    graphed, seeds = alpha.graph(step), True
    (x,) = given(engine, (5, 6))
    graphed(x)
    if captures:
        with pytest.raises(GraphError, match=r"seeds the generator|data from the host"):
            graphed(x)
    seeds = False
    for _ in range(CALLS):
        SEEDING[name]()
        state = random.get_state()
        found = np.array(graphed(x))
        random.set_state(state)
        np.testing.assert_array_equal(found, np.array(step(x)))


@pytest.mark.slow
def test_a_generator_of_its_own_is_refused(engine: Engine, captures: bool) -> None:
    if not captures:
        pytest.skip("the engine captures no steps")
    generator = alpha.Generator().manual_seed(1)
    for draw in (alpha.rand, alpha.randn):
        graphed = alpha.graph(lambda x, draw=draw: x + draw(5, 6, engine=engine, generator=generator))
        (x,) = given(engine, (5, 6))
        graphed(x)
        with pytest.raises(GraphError, match="a generator of their own"):
            graphed(x)


def test_a_checkpoint_that_draws_others_leaves_the_sequence_behind_them(engine: Engine) -> None:
    alpha.manual_seed(5)
    x, w = given(engine, (5, 6), (6, 6))
    loss = checkpointed(x, w.requires_grad_(), preserve_rng_state=False).sum()
    before = random.get_state()
    loss.backward()
    after = random.get_state()
    assert after["offset"] - before["offset"] == -(-5 * 6 // 4)
    state = random.get_state()
    alpha.autograd.grad(checkpointed(x, w).sum(), w)
    assert random.get_state()["offset"] - state["offset"] == -(-5 * 6 // 4)  # of the first call alone
