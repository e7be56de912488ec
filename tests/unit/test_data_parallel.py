"""DataParallel over threads: one set of bits on any number of ranks, the whole batch's mean, habits, mistakes."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alpha
from alpha import distributed as dist
from alpha import nn, optim
from alpha.distributed.world import current
from alpha.errors import AlphaError, ArgumentError, DistributedError, DtypeError, EngineError, GraphError, ShapeError
from alpha.nn import functional as F
from tests.data_parallel import Batch, Everything, batches, digest, mlp, state_of, train, wide

Array = np.ndarray[Any, Any]


def on_ranks(ranks: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """The function's results on ranks that are threads."""
    return dist.run_in_threads(function, ranks, *args, timeout=60)


# -- bits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["everything", "resnet"])
@pytest.mark.parametrize(("shards", "ranks"), [(4, (1, 2, 4)), (8, (2, 8)), (6, (1, 2, 3, 6)), (12, (4, 3, 12))])
def test_one_set_of_bits_on_any_number_of_ranks(network: str, shards: int, ranks: tuple[int, ...]) -> None:
    if network == "resnet" and shards != 4:
        pytest.skip("one number of shards is enough for the larger network")
    found = {digest for n in ranks for digest in on_ranks(n, train, network, shards, (25, 26, 24), 6)}
    assert len(found) == 1


def test_one_set_of_bits_on_64_ranks() -> None:
    assert len({digest for n in (1, 8, 64) for digest in on_ranks(n, train, "mlp", 64, (70, 64, 30), 5)}) == 1


@pytest.mark.parametrize(("shards", "ranks"), [(4, (1, 2, 4)), (6, (1, 2, 3)), (2, (2, 1))])
def test_one_set_of_bits_where_a_gradient_travels_alone(shards: int, ranks: tuple[int, ...]) -> None:
    assert len({digest for n in ranks for digest in on_ranks(n, train, "wide", shards, (13, 1), 4)}) == 1


def test_a_large_gradient_is_sent_from_where_it_was_made() -> None:
    def run() -> bool:
        net = wide()
        par = dist.DataParallel(net)
        made = []
        net[1].weight.register_hook(lambda gradient: made.append(gradient.storage))
        for px, py in par.split(*batches((8,), 1)[0].part("float32")):
            par.backward(F.cross_entropy(par(px), py))
        return net[1].weight.grad.storage is made[0]

    assert all(on_ranks(2, run))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_bits_do_not_depend_on_threads(threads: int) -> None:
    alpha.engine("cpu", threads=threads)
    found = on_ranks(2, train, "everything", 4, (25,), 3)
    alpha.engine("cpu", threads=3 - threads)
    assert set(found) == set(on_ranks(1, train, "everything", 4, (25,), 3))


def test_the_bits_depend_on_the_shards() -> None:
    """Or the tests above would say nothing."""
    assert len({on_ranks(1, train, "mlp", shards, (16,), 3)[0] for shards in (1, 2, 4)}) == 3


def test_more_shards_than_rows() -> None:
    assert len({digest for n in (1, 2, 4) for digest in on_ranks(n, train, "mlp", 4, (3, 1, 2), 4)}) == 1


# -- the whole batch's mean ------------------------------------------------------------------------


def gradients(parts: list[Batch], shards: int, network: Callable[[], nn.Module] = mlp) -> list[Array]:
    """The gradients of a global batch given as a part for each rank."""
    alpha.manual_seed(1)
    net = network().to("float64")
    par = dist.DataParallel(net, shards=shards)
    mine = parts[dist.rank()]
    for px, py in par.split(alpha.tensor(mine.images), alpha.tensor(mine.labels)):
        par.backward(F.cross_entropy(par(px), py))
    return [np.array(param.grad) for param in net.parameters()]


def reference(batch: Batch) -> tuple[list[Array], float]:
    alpha.manual_seed(1)
    net = mlp().to("float64")
    loss = F.cross_entropy(net(alpha.tensor(batch.images)), alpha.tensor(batch.labels))
    loss.backward()
    return [np.array(param.grad) for param in net.parameters()], float(loss)


def near(found: list[Array], wanted: list[Array], bound: float = 1e-12) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=bound, atol=bound * np.abs(b).max())


@settings(max_examples=15, deadline=None)
@given(st.sampled_from([1, 2, 3, 4]), st.integers(1, 3), st.data())
def test_gradients_are_the_whole_batchs_however_it_is_shared_out(
    ranks: int, per_rank: int, data: st.DataObject
) -> None:
    """Parts of any length, none included, each weighted by its rows."""
    counts = data.draw(st.lists(st.integers(0, 5), min_size=ranks, max_size=ranks).filter(any))
    batch = batches((sum(counts),), 1)[0]
    cuts = np.cumsum([0, *counts])
    parts = [Batch(batch.images[a:b], batch.labels[a:b]) for a, b in itertools.pairwise(cuts)]
    for found in on_ranks(ranks, gradients, parts, ranks * per_rank):
        near(found, reference(batch)[0])


def test_the_loss_is_the_whole_batchs() -> None:
    batch = batches((13,), 1)[0]

    def run() -> float:
        alpha.manual_seed(1)
        par = dist.DataParallel(mlp().to("float64"), shards=4)
        for px, py in par.split(*batch.part("float64")):
            par.backward(F.cross_entropy(par(px), py))
        assert par.loss is not None
        return par.loss

    for found in on_ranks(2, run):
        assert math.isclose(found, reference(batch)[1], rel_tol=1e-14)


def test_running_statistics_change_once_a_step_by_the_shards_mean() -> None:
    batch = batches((12,), 1)[0]

    def run() -> list[Array]:
        bn = nn.BatchNorm2d(3, momentum=0.3).to("float64")
        par = dist.DataParallel(bn, shards=4)
        for px, _ in par.split(*batch.part("float64")):
            par.backward(par(px).square().mean())
        assert bn.num_batches_tracked is not None
        assert bn.num_batches_tracked.item() == 1
        return [np.array(bn.running_mean), np.array(bn.running_var)]

    shards = [batch.images[s * 3 : s * 3 + 3] for s in range(4)]
    mean = np.mean([one.mean((0, 1, 2)) for one in shards], axis=0)
    var = np.mean([one.var((0, 1, 2), ddof=1) for one in shards], axis=0)
    for found in on_ranks(2, run):
        near(found, [0.3 * mean, 0.7 + 0.3 * var])


def test_other_buffers_are_those_of_the_first_shard() -> None:
    batch = batches((12,), 1)[0]

    def run() -> Array:
        par = dist.DataParallel(Everything(), shards=4)
        for px, py in par.split(*batch.part("float32")):
            par.backward(F.cross_entropy(par(px), py))
        return np.array(par.module.last)

    for found in on_ranks(4, run):
        assert np.array_equal(found, batch.images[0, 0, 0].astype(np.float32))


def test_wrapping_takes_weights_and_buffers_of_rank_0() -> None:
    def run() -> str:
        net = Everything()
        with alpha.no_grad():
            for tensor in [*net.parameters(), *net.buffers()]:
                tensor.add_(dist.rank())
        dist.DataParallel(net, shards=4)
        return digest(*net.parameters(), *net.buffers())

    assert len(set(on_ranks(4, run))) == 1


# -- habits ----------------------------------------------------------------------------------------


def accumulate(how: str) -> str:
    """Two micro-batches a step, with and without sending in between; clipping, a schedule, an average."""
    alpha.manual_seed(3)
    net = Everything().train()
    par = dist.DataParallel(net, shards=4)
    optimizer = optim.SGD(par.parameters(), lr=0.1, momentum=0.9)
    schedule = optim.lr_scheduler.StepLR(optimizer, 2)
    average = optim.swa_utils.AveragedModel(par)
    data = batches((16, 13), 6)
    for step in range(3):
        optimizer.zero_grad()
        for micro in range(2):
            x, y = data[2 * step + micro].part("float32")
            if how == "no_sync" and micro == 0:
                with par.no_sync():
                    for px, py in par.split(x, y):
                        par.backward(F.cross_entropy(par(px), py) / 2)
            else:
                for px, py in par.split(x, y):
                    par.backward(F.cross_entropy(par(px), py) / 2)
        nn.utils.clip_grad_norm_(par.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        average.update_parameters(par)
    return digest(*state_of(net, optimizer), *average.parameters())


@pytest.mark.parametrize("how", ["no_sync", "each"])
def test_accumulation_clipping_schedules_averages(how: str) -> None:
    assert len({found for ranks in (1, 2, 4) for found in on_ranks(ranks, accumulate, how)}) == 1


def test_no_sync_sends_no_gradients_and_adds_up() -> None:
    data = batches((8, 7), 2)

    def run() -> list[Array]:
        alpha.manual_seed(1)
        net = mlp().to("float64")
        par = dist.DataParallel(net, shards=2)
        with dist.trace() as events, par.no_sync():
            for px, py in par.split(*data[0].part("float64")):
                par.backward(F.cross_entropy(par(px), py))
        assert not [event for event in events if event.operation == "gradients"]
        for px, py in par.split(*data[1].part("float64")):
            par.backward(F.cross_entropy(par(px), py))
        return [np.array(param.grad) for param in net.parameters()]

    wanted = [a + b for a, b in zip(reference(data[0])[0], reference(data[1])[0], strict=True)]
    for ranks in (1, 2):
        for found in on_ranks(ranks, run):
            near(found, wanted)


@pytest.mark.parametrize("shards", [1, 2])
def test_no_sync_keeps_what_its_batches_made_of_running_statistics(shards: int) -> None:
    data = [batch.images for batch in batches((8, 6), 2)]

    def run() -> list[Array]:
        bn = nn.BatchNorm2d(3, momentum=0.3).to("float64")
        par = dist.DataParallel(bn, shards=shards)
        with par.no_sync():
            for px in par.split(alpha.tensor(data[0])):
                par.backward(par(px).square().mean())
        for px in par.split(alpha.tensor(data[1])):
            par.backward(par(px).square().mean())
        return [np.array(bn.running_mean)]

    means = [np.mean([part.mean((0, 1, 2)) for part in np.split(images, shards)], axis=0) for images in data]
    near(on_ranks(1, run)[0], [0.3 * means[1] + 0.7 * 0.3 * means[0]])


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_drops_what_no_sync_added_up(set_to_none: bool) -> None:
    data = batches((8, 7), 2)

    def run() -> list[Array]:
        alpha.manual_seed(1)
        net = mlp().to("float64")
        par = dist.DataParallel(net, shards=2)
        with par.no_sync():
            for px, py in par.split(*data[0].part("float64")):
                par.backward(F.cross_entropy(par(px), py))
        par.zero_grad(set_to_none)
        for px, py in par.split(*data[1].part("float64")):
            par.backward(F.cross_entropy(par(px), py))
        return [np.array(param.grad) for param in net.parameters()]

    for found in on_ranks(2, run):
        near(found, reference(data[1])[0])


def test_gradients_add_up_over_loops_as_over_backwards() -> None:
    batch = batches((8,), 1)[0]

    def run() -> list[Array]:
        alpha.manual_seed(1)
        net = mlp().to("float64")
        par = dist.DataParallel(net, shards=2)
        for _ in range(2):
            for px, py in par.split(*batch.part("float64")):
                par.backward(F.cross_entropy(par(px), py))
        return [np.array(param.grad) for param in net.parameters()]

    for found in on_ranks(2, run):
        near(found, [2 * one for one in reference(batch)[0]])


def test_the_first_bucket_is_sent_before_backward_ends() -> None:
    batch = batches((8,), 1)[0]

    def run() -> list[str]:
        par = dist.DataParallel(Everything(), bucket_cap_mb=0.001)
        with dist.trace() as events:
            for px, py in par.split(*batch.part("float32")):
                par.backward(F.cross_entropy(par(px), py))
        return [event.operation if event.name == "send" else event.name for event in events]

    for names in on_ranks(2, run):
        assert "gradients" in names[: names.index("backward")]


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_rounds_and_bytes_of_buckets(ranks: int) -> None:
    batch = batches((16,), 1)[0]

    def run() -> None:
        par = dist.DataParallel(Everything(), shards=16, bucket_cap_mb=0.001)
        with dist.trace() as events:
            for px, py in par.split(*batch.part("float32")):
                par.backward(F.cross_entropy(par(px), py))
        buckets = {event.number for event in events if event.operation == "gradients"}
        assert len(buckets) == len(par._layout.buckets) > 2
        for number, length in zip(sorted(buckets), par._layout.lengths, strict=True):
            sent = [event.nbytes for event in events if event.name == "send" and event.number == number]
            assert len(sent) <= 2 * math.log2(ranks)
            assert sum(sent) <= 2 * (ranks - 1) / ranks * length * 4

    on_ranks(ranks, run)


def test_packed_filters_are_kept_between_shards_and_dropped_after_the_last() -> None:
    batch = batches((64,), 1)[0]

    def run() -> tuple[list[int], list[int]]:
        net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1)).train()
        par = dist.DataParallel(net, shards=4)
        weight = net[2].weight
        kept = []
        for px, _ in par.split(*batch.part("float32")):
            par.backward(par(px).square().mean())
            kept.append(len(weight.storage.cache))
        return kept, [len(param.storage.cache) for param in par.parameters()]

    for ranks, wanted in ((1, True), (4, False)):
        for kept, after in on_ranks(ranks, run):
            assert any(kept) == wanted
            assert not any(after)


def test_a_deep_copy_is_wrapped_for_the_same_ranks() -> None:
    def run() -> bool:
        par = dist.DataParallel(mlp(), shards=2)
        other = copy.deepcopy(par)
        batch = batches((4,), 1)[0]
        for px, py in other.split(*batch.part("float32")):
            other.backward(F.cross_entropy(other(px), py))
        mine = next(iter(par.parameters()))
        return mine.grad is None and next(iter(other.parameters())).grad is not None

    assert all(on_ranks(2, run))


def test_random_numbers_in_the_loop_depend_on_the_shard_alone() -> None:
    def run() -> list[tuple[int, float]]:
        alpha.manual_seed(dist.rank() * 0 + 7)
        par = dist.DataParallel(mlp(), shards=4)
        drawn = []
        for _ in range(2):
            for px, py in par.split(*batches((8,), 1)[0].part("float32")):
                assert par._loop is not None
                assert par._loop.current is not None
                drawn.append((par._loop.current.number, float(alpha.rand(1))))
                par.backward(F.cross_entropy(par(px), py))
        return [*drawn, (-1, float(alpha.rand(1)))]

    alone = on_ranks(1, run)[0]
    assert len({value for _, value in alone}) == 9
    for ranks in (2, 4):
        together = [pair for found in on_ranks(ranks, run) for pair in found]
        assert set(together) == set(alone)


# -- mistakes --------------------------------------------------------------------------------------


def wrapped(shards: int | None = None) -> dist.DataParallel:
    return dist.DataParallel(mlp(), shards=shards)


def step_before_the_end() -> None:
    par = wrapped(2)
    optimizer = optim.SGD(par.parameters(), lr=0.1)
    for px, py in par.split(*batches((8,), 1)[0].part("float32")):
        par.backward(F.cross_entropy(par(px), py))
        optimizer.step()


def step_after_leaving_early() -> None:
    par = wrapped(4)
    optimizer = optim.SGD(par.parameters(), lr=0.1)
    for px, py in par.split(*batches((8,), 1)[0].part("float32")):
        par.backward(F.cross_entropy(par(px), py))
        break
    optimizer.step()


def split_after_leaving_early() -> None:
    par = wrapped(4)
    for _ in par.split(*batches((8,), 1)[0].part("float32")):
        break
    par.split(*batches((8,), 1)[0].part("float32"))


def step_after_no_sync() -> None:
    par = wrapped(2)
    optimizer = optim.SGD(par.parameters(), lr=0.1)
    with par.no_sync():
        for px, py in par.split(*batches((8,), 1)[0].part("float32")):
            par.backward(F.cross_entropy(par(px), py))
    optimizer.step()


def clip_within_no_sync() -> None:
    par = wrapped(2)
    with par.no_sync():
        for px, py in par.split(*batches((8,), 1)[0].part("float32")):
            par.backward(F.cross_entropy(par(px), py))
    nn.utils.clip_grad_norm_(par.parameters(), 1e-3)
    par.split(*batches((8,), 1)[0].part("float32"))


def no_backward() -> None:
    par = wrapped(4)
    for px, py in par.split(*batches((8,), 1)[0].part("float32")):
        F.cross_entropy(par(px), py).backward()


def two_backwards() -> None:
    par = wrapped(2)
    for px, py in par.split(*batches((8,), 1)[0].part("float32")):
        par.backward(F.cross_entropy(par(px), py))
        par.backward(F.cross_entropy(par(px), py))


def outside_the_loop() -> None:
    par = wrapped(2)
    par.backward(par(alpha.ones(2, 90)).sum())


def parameter_added() -> None:
    par = wrapped(2)
    par.module.late = nn.Linear(2, 2)
    par.split(alpha.ones(2, 90))


def two_dtypes() -> None:
    dist.DataParallel(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))


def two_engines() -> None:
    dist.DataParallel(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).to("numpy")))


def twice() -> None:
    net = mlp()
    kept = dist.DataParallel(net)
    dist.DataParallel(net)
    del kept


def other_seeds() -> None:
    alpha.manual_seed(dist.rank())
    wrapped(2)


def other_shapes() -> None:
    dist.DataParallel(nn.Linear(2, 2 + dist.rank()))


def other_modes() -> None:
    dist.DataParallel(mlp().train(dist.rank() == 0))


def loss_of_another_dtype() -> None:
    par = wrapped(2)
    for px, py in par.split(*batches((8,), 1)[0].part("float32")):
        par.backward(F.cross_entropy(par(px), py).double())


def loss_of_several_elements() -> None:
    par = wrapped(2)
    for px, _ in par.split(*batches((8,), 1)[0].part("float32")):
        par.backward(par(px))


def frozen() -> None:
    dist.DataParallel(mlp().requires_grad_(False))


MISTAKES: dict[str, tuple[Callable[[], Any], type[AlphaError], str]] = {
    "shards 0": (lambda: wrapped(0), ArgumentError, "shards >= 1"),
    "shards True": (lambda: wrapped(True), ArgumentError, "shards as an int"),
    "shards 2.5": (lambda: wrapped(2.5), ArgumentError, "shards as an int"),  # type: ignore[arg-type]
    "ranks that do not divide": (lambda: wrapped(3), DistributedError, "got 2 ranks and shards=3"),
    "no network": (lambda: dist.DataParallel(3), ArgumentError, "a network"),  # type: ignore[arg-type]
    "bucket": (lambda: dist.DataParallel(mlp(), bucket_cap_mb=0), ArgumentError, "bucket_cap_mb > 0"),
    "frozen": (frozen, ArgumentError, "require grad"),
    "empty batch": (lambda: wrapped().split(alpha.ones(0, 90)), ArgumentError, "none on any rank"),
    "nothing to split": (lambda: wrapped().split(), ArgumentError, "got none"),
    "no tensor": (lambda: wrapped().split([1, 2]), ArgumentError, "axis of rows"),  # type: ignore[arg-type]
    "no axis": (lambda: wrapped().split(alpha.ones(())), ArgumentError, "axis of rows"),
    "rows": (lambda: wrapped().split(alpha.ones(2, 90), alpha.ones(3)), ShapeError, "as many rows"),
    "two wrappers": (twice, DistributedError, "wrapped already"),
    "a parameter added": (parameter_added, DistributedError, "got 6"),
    "mixed dtypes": (two_dtypes, DtypeError, "float32 and float64"),
    "two engines": (two_engines, EngineError, "cpu and numpy"),
    "other seeds": (other_seeds, DistributedError, "the seed .* different on rank 1"),
    "other shapes": (other_shapes, DistributedError, r"parameters different on rank 1 .*\(3, 2\)"),
    "other modes": (other_modes, DistributedError, "training mode"),
    "step in the loop": (step_before_the_end, DistributedError, "all shards of the batch"),
    "step after leaving early": (step_after_leaving_early, DistributedError, "got 0 of 2"),
    "split after leaving early": (split_after_leaving_early, DistributedError, "do not leave it early"),
    "step after no_sync": (step_after_no_sync, DistributedError, "no_sync"),
    "clipping too early": (clip_within_no_sync, DistributedError, "left alone"),
    "no backward": (no_backward, DistributedError, "got none for shard"),
    "two backwards": (two_backwards, DistributedError, "a second one"),
    "outside the loop": (outside_the_loop, DistributedError, "outside the loop"),
    "another dtype": (loss_of_another_dtype, DtypeError, "loss of float32"),
    "several elements": (loss_of_several_elements, GraphError, "got none"),
    "pickle": (lambda: pickle.dumps(wrapped()), ArgumentError, "pickle .module"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_errors_and_no_hang(name: str) -> None:
    call, error, text = MISTAKES[name]
    with pytest.raises(error, match=text) as caught:
        dist.run_in_threads(call, 2, timeout=20)
    assert " expected " in str(caught.value)
    assert ", got " in str(caught.value)


def test_without_init_nothing_is_wrapped() -> None:
    with pytest.raises(DistributedError, match=r"has called dist\.init"):
        wrapped()


def test_after_an_error_in_the_loop_the_process_is_usable() -> None:
    """Its random numbers are the process's again, too."""

    def run() -> str:
        alpha.manual_seed(3)
        par = wrapped(2)
        batch = batches((8,), 1)[0].part("float32")
        try:
            for _ in par.split(*batch):
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            seed = alpha.random.seed()
        assert seed == 3
        with pytest.raises(DistributedError, match="leave it early"):
            par.split(*batch)
        for px, py in par.split(*batch):
            par.backward(F.cross_entropy(par(px), py))
        assert current("run").open is None
        return digest(*[param.grad for param in par.parameters()])

    assert len(set(on_ranks(1, run))) == 1


def test_stopping_is_agreed_on() -> None:
    def run() -> list[bool]:
        par = wrapped(2)
        seen = []
        for step in range(4):
            if step == 1 and dist.rank() == 1:
                par.request_stop()
            for px, py in par.split(*batches((8,), 1)[0].part("float32")):
                par.backward(F.cross_entropy(par(px), py))
            seen.append(par.stopping)
        return seen

    assert on_ranks(2, run) == [[False, True, True, True]] * 2
