"""optim.Sharded: the optimizer's own bits, with its state and gradients shared out among ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import distributed as dist
from alpha import nn, optim
from alpha.errors import AlphaError, ArgumentError, CheckpointError, DistributedError
from alpha.nn import functional as F
from tests.data_parallel import Everything, batches, digest, mlp

OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {
    "sgd": lambda params: optim.SGD(params, lr=0.1, momentum=0.9),
    "adam": lambda params: optim.Adam(params, lr=1e-2),
    "adamw": lambda params: optim.AdamW(params, lr=1e-2, amsgrad=True),
    "adafactor": lambda params: optim.Adafactor(params, lr=1e-2),
    "rmsprop": lambda params: optim.RMSprop(params, lr=1e-3, momentum=0.5),
}
DATA = batches((16, 13, 3), 8)


def train(
    name: str,
    gradients: bool | None,
    steps: int = 6,
    clip: float = 0.0,
    start: dict[str, Any] | None = None,
    shards: int = 6,
) -> tuple[Any, ...]:
    """Trains with an optimizer that is sharded (with its gradients or without) or, for None, is not.

    Returns a digest of the weights, the state, and the norms of the gradients.
    """
    alpha.manual_seed(3)
    net = Everything().train()
    par = dist.DataParallel(net, shards=shards, bucket_cap_mb=0.001)
    optimizer = OPTIMIZERS[name](par.parameters())
    stepped = optimizer if gradients is None else optim.Sharded(optimizer, gradients=gradients)
    schedule = optim.lr_scheduler.StepLR(stepped, 2)
    if start is not None:
        net.load_state_dict(start["net"])
        stepped.load_state_dict(start["optimizer"])
        schedule.load_state_dict(start["schedule"])
        alpha.random.set_state(start["random"])
    norms = []
    for batch in DATA[:steps] if start is None else DATA[steps:]:
        stepped.zero_grad()
        for px, py in par.split(*batch.part("float32")):
            par.backward(F.cross_entropy(par(px), py))
        if clip:
            norms.append(nn.utils.clip_grad_norm_(par.parameters(), clip).item())
        stepped.step()
        schedule.step()
    state = stepped.state_dict()
    values = [value for number in sorted(state["state"]) for _, value in sorted(state["state"][number].items())]
    kept = {
        "net": {name: np.array(tensor) for name, tensor in net.state_dict().items()},
        "optimizer": state,
        "schedule": schedule.state_dict(),
        "random": alpha.random.get_state(),
    }
    return digest(*net.parameters(), *net.buffers(), *values, norms, state["steps"]), kept, norms


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_bits_are_the_optimizers_own(name: str, gradients: bool) -> None:
    wanted = dist.run_in_threads(train, 1, name, None, timeout=60)[0][0]
    for ranks in (1, 2, 3) if name == "adam" else (2,):
        assert {found[0] for found in dist.run_in_threads(train, ranks, name, gradients, timeout=60)} == {wanted}


@pytest.mark.parametrize("gradients", [False, True])
def test_clipping_sees_the_gradients_of_all_ranks(gradients: bool) -> None:
    wanted = dist.run_in_threads(train, 1, "adam", None, 6, 0.5, timeout=60)[0]
    assert max(wanted[2]) > 0.5
    for ranks in (2, 3):
        for found in dist.run_in_threads(train, ranks, "adam", gradients, 6, 0.5, timeout=60):
            assert found[2] == wanted[2]
            assert found[0] == wanted[0]


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize(("before", "after"), [(3, 1), (1, 3), (2, 3)])
def test_a_state_loads_on_any_number_of_ranks(before: int, after: int, gradients: bool) -> None:
    wanted = dist.run_in_threads(train, 1, "adam", None, 8, timeout=60)[0][0]
    kept = dist.run_in_threads(train, before, "adam", gradients, 5, timeout=60)[0][1]
    resumed = dist.run_in_threads(train, after, "adam", gradients, 5, 0.0, kept, timeout=60)
    assert {found[0] for found in resumed} == {wanted}
    unsharded = dist.run_in_threads(train, 1, "adam", None, 5, 0.0, kept, timeout=60)
    assert unsharded[0][0] == wanted


def test_state_and_gradients_of_a_rank_are_its_share() -> None:
    def run() -> tuple[int, int, int, int]:
        net = nn.Sequential(*[nn.Linear(20, size) for size in (20, 20, 20, 20, 7)][:4], nn.Linear(20, 7))
        par = dist.DataParallel(net, bucket_cap_mb=0.001)
        stepped = optim.Sharded(optim.Adam(par.parameters()), gradients=True)
        for px in par.split(alpha.ones(8, 20)):
            par.backward(par(px).square().mean())
        gradients = sum(p.grad.nbytes for p in par.parameters() if p.grad is not None)
        stepped.step()
        state = sum(v.nbytes for values in stepped.state.values() for v in values.values() if hasattr(v, "nbytes"))
        sizes = [p.nbytes for p in par.parameters()]
        return gradients, state, sum(sizes), max(sizes)

    found = dist.run_in_threads(run, 4, timeout=60)
    for gradients, state, total, largest in found:
        assert gradients <= total / 4 + largest
        assert state <= 2 * (total / 4 + largest)
    assert sum(gradients for gradients, *_ in found) == found[0][2]
    assert sum(state for _, state, *_ in found) == 2 * found[0][2]


def test_groups_and_hooks_are_the_optimizers() -> None:
    def run() -> None:
        net = mlp()
        first, second = list(net.parameters())[:2], list(net.parameters())[2:]
        stepped = optim.Sharded(optim.SGD(first, lr=0.1))
        assert stepped.add_param_group({"params": second, "lr": 0.2}) is stepped
        seen = []
        stepped.register_step_pre_hook(lambda *_: seen.append("before"))
        before = [np.array(p) for p in net.parameters()]
        for param in net.parameters():
            param.grad = alpha.ones_like(param)
        assert stepped.step() is stepped
        assert (seen, stepped.steps, stepped.optimizer.steps) == (["before"], 1, 1)
        for param, old, lr in zip(net.parameters(), before, (0.1, 0.1, 0.2, 0.2), strict=True):
            np.testing.assert_allclose(np.asarray(param.detach()), old - lr, rtol=1e-6, atol=1e-6)
        assert stepped.step(lambda: 7) == 7
        assert repr(stepped).startswith("Sharded(SGD(")

    def same_weights() -> None:
        alpha.manual_seed(1)
        run()

    dist.run_in_threads(same_weights, 3, timeout=60)


def _stepped() -> optim.Optimizer:
    param = nn.Parameter(alpha.ones(2))
    param.grad = alpha.ones(2)
    return optim.Adam([param]).step()


MISTAKES: dict[str, tuple[Callable[[], Any], type[AlphaError], str]] = {
    "no optimizer": (lambda: optim.Sharded(3), ArgumentError, "an optimizer"),  # type: ignore[arg-type]
    "twice": (lambda: optim.Sharded(optim.Sharded(optim.SGD(mlp().parameters(), lr=1))), ArgumentError, "an optimizer"),
    "L-BFGS": (lambda: optim.Sharded(optim.LBFGS(mlp().parameters())), ArgumentError, "each parameter by itself"),
    "with state": (lambda: optim.Sharded(_stepped()), ArgumentError, "without state"),
    "gradients": (
        lambda: optim.Sharded(optim.SGD(mlp().parameters(), lr=1), gradients=np.ones(2)),  # type: ignore[arg-type]
        ArgumentError,
        "gradients as True or False",
    ),
    "not wrapped": (
        lambda: optim.Sharded(optim.SGD(mlp().parameters(), lr=1), gradients=True),
        DistributedError,
        "one DataParallel",
    ),
    "another state": (
        lambda: optim.Sharded(optim.SGD(mlp().parameters(), lr=1)).load_state_dict(
            optim.Adam(mlp().parameters()).state_dict()
        ),
        CheckpointError,
        "SGD",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    call, error, text = MISTAKES[name]
    with pytest.raises(error, match=text):
        dist.run_in_threads(call, 2, timeout=20)


def test_without_init_nothing_is_shared_out() -> None:
    with pytest.raises(DistributedError, match=r"has called dist\.init"):
        optim.Sharded(optim.SGD(mlp().parameters(), lr=1))
