"""Ranks and what they do together: the tree of additions, operations over threads, errors of programs that disagree."""

from __future__ import annotations

import math
import os
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alpha
from alpha import distributed as dist
from alpha.distributed import tree
from alpha.distributed.threads import Hub, ThreadTransport
from alpha.distributed.world import World, current, entered, part
from alpha.errors import AlphaError, ArgumentError, DistributedError, DtypeError

RANKS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 64)


def bracketed(first: int, end: int) -> str:
    """A node's sum as text: what is added to what."""
    if end - first == 1:
        return str(first)
    cut = first + (end - first + 1) // 2
    return f"({bracketed(first, cut)}+{bracketed(cut, end)})"


# -- the tree --------------------------------------------------------------------------------------


@given(st.integers(1, 12), st.integers(1, 8))
def test_ranks_of_any_number_add_the_same_tree(ranks: int, per_rank: int) -> None:
    shards, sums = ranks * per_rank, {}
    for rank in range(ranks):
        first, end = rank * per_rank, (rank + 1) * per_rank
        stack: list[str] = []
        for shard, count in zip(range(first, end), tree.additions(first, end, shards), strict=True):
            stack.append(str(shard))
            for _ in range(count):
                second = stack.pop()
                stack[-1] = f"({stack[-1]}+{second})"
        nodes = tree.cover(first, end, shards)
        assert len(stack) == len(nodes)
        sums.update(zip(nodes, stack, strict=True))
    found = tree.total(sums, shards, lambda a, b, out: f"({a}+{b})")  # type: ignore[arg-type]
    assert found == bracketed(0, shards)


@pytest.mark.parametrize("power", range(7))
def test_a_rank_is_one_node_where_ranks_are_a_power_of_two(power: int) -> None:
    ranks = 2**power
    for per_rank in (1, 2, 3, 5, 6):
        for rank in range(ranks):
            assert len(tree.cover(rank * per_rank, (rank + 1) * per_rank, ranks * per_rank)) == 1


# -- operations ------------------------------------------------------------------------------------


def together(ranks: int) -> None:
    """Every operation once, on each rank."""
    world = current("together")
    rng = np.random.default_rng(world.rank)
    mine = rng.standard_normal(37).astype(np.float32)
    everybody = [np.random.default_rng(r).standard_normal(37).astype(np.float32) for r in range(ranks)]
    expected = tree.total({(r, r + 1): one.copy() for r, one in enumerate(everybody)}, ranks)
    found = dist.all_reduce(alpha.tensor(mine))
    assert np.array_equal(np.asarray(found), expected)
    for op, reduce in (("max", np.max), ("min", np.min)):
        found = dist.all_reduce(alpha.tensor(mine), op)
        assert np.array_equal(np.asarray(found), reduce(everybody, axis=0))
    mean = np.asarray(dist.all_reduce(alpha.tensor(mine).double(), "mean"))
    np.testing.assert_allclose(mean, np.mean(everybody, axis=0), rtol=1e-6, atol=1e-6)
    whole = dist.all_reduce(alpha.tensor([world.rank + 1], dtype=alpha.int64), "product")
    assert whole.item() == math.factorial(ranks) % 2**64 or ranks > 20
    tensor = alpha.full((2, 3), float(world.rank)).t()
    assert dist.broadcast(tensor, ranks - 1) is tensor
    assert np.array_equal(np.asarray(tensor), np.full((3, 2), ranks - 1.0))
    assert dist.broadcast(alpha.full((), float(world.rank)), 0).shape == ()
    empty = dist.all_reduce(alpha.zeros(0))
    assert empty.shape == (0,)
    assert world.table([world.rank, 7]).tolist() == [[r, 7] for r in range(ranks)]
    assert world.shared({"of": world.rank}, ranks // 2) == {"of": ranks // 2}
    dist.barrier()
    assert (dist.rank(), dist.world_size(), dist.is_main()) == (world.rank, ranks, world.rank == 0)
    assert part() == (world.rank, ranks)


@pytest.mark.parametrize("ranks", RANKS)
def test_operations_give_the_tree_of_all_ranks(ranks: int) -> None:
    dist.run_in_threads(together, ranks, ranks, timeout=30)


@settings(max_examples=30)
@given(st.sampled_from([2, 3, 4, 6, 8]), st.integers(1, 4), st.integers(0, 70))
def test_sums_of_shards_do_not_depend_on_the_ranks(ranks: int, per_rank: int, length: int) -> None:
    shards = ranks * per_rank
    rows = np.random.default_rng(length).standard_normal((shards, length)).astype(np.float32)
    expected = tree.total({(s, s + 1): rows[s].copy() for s in range(shards)}, shards)

    def run() -> bytes:
        world = current("run")
        first, end = world.rank * per_rank, (world.rank + 1) * per_rank
        parts = [_node(rows, node) for node in tree.cover(first, end, shards)]
        sums = np.stack(parts)
        world.sum(sums, shards=shards).finish()
        return sums[0].tobytes()

    assert set(dist.run_in_threads(run, ranks, timeout=30)) == {expected.tobytes()}


def _node(rows: np.ndarray[Any, Any], node: tuple[int, int]) -> np.ndarray[Any, Any]:
    if node[1] - node[0] == 1:
        return rows[node[0]]
    cut = tree.middle(node)
    total: np.ndarray[Any, Any] = _node(rows, (node[0], cut)) + _node(rows, (cut, node[1]))
    return total


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 8, 16])
def test_rounds_and_bytes_of_a_sum(ranks: int) -> None:
    """At most 2 log2(n) rounds, in which a rank sends at most 2 (n - 1) / n of the array."""

    def run() -> None:
        array = alpha.ones(ranks * 16)
        with dist.trace() as events:
            dist.all_reduce(array)
        sent = [event for event in events if event.name == "send"]
        rounds = len(sent) if ranks & (ranks - 1) == 0 else 2
        assert rounds <= 2 * math.log2(ranks)
        assert sum(event.nbytes for event in sent) <= 2 * (ranks - 1) / ranks * array.nbytes
        assert [event.name for event in events][-1] == "end"

    dist.run_in_threads(run, ranks, timeout=30)


def test_infinities_and_nan_are_added_without_a_warning() -> None:
    def run() -> list[float]:
        values = [math.inf, math.nan] if dist.rank() else [-math.inf, 1.0]
        return list(dist.all_reduce(alpha.tensor(values)).tolist())

    for found in dist.run_in_threads(run, 2, timeout=30):
        assert all(math.isnan(value) for value in found)


# -- one process -----------------------------------------------------------------------------------


def test_alone_is_rank_0_of_1() -> None:
    world = dist.init()
    try:
        assert (dist.rank(), dist.world_size(), dist.is_main(), dist.is_initialized()) == (0, 1, True, True)
        assert dist.all_reduce(alpha.ones(3)).tolist() == [1, 1, 1]
        assert dist.broadcast(alpha.ones(3)).tolist() == [1, 1, 1]
        dist.barrier()
        assert (world.rank, world.size) == (0, 1)
        with pytest.raises(DistributedError, match=r"\[init\] expected to be called once"):
            dist.init()
    finally:
        dist.shutdown()
    assert not dist.is_initialized()
    dist.shutdown()


def test_init_keeps_the_random_numbers_of_one_process() -> None:
    alpha.manual_seed(5)
    alpha.rand(3)
    before = alpha.random.get_state()
    dist.init()
    try:
        assert alpha.random.get_state() == before
    finally:
        dist.shutdown()


@pytest.mark.parametrize("call", [dist.rank, dist.world_size, dist.is_main, dist.barrier])
def test_without_init_there_are_no_ranks(call: Any) -> None:
    assert part() is None
    with pytest.raises(DistributedError, match=r"has called dist\.init"):
        call()


BAD = {
    "timeout": (lambda: dist.init(timeout=0), ArgumentError),
    "backend": (lambda: dist.init("carrier pigeon"), ArgumentError),
    "ranks": (lambda: dist.run_in_threads(lambda: None, 0), ArgumentError),
    "function": (lambda: dist.run_in_threads("x", 2), ArgumentError),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_arguments(name: str) -> None:
    call, error = BAD[name]
    with pytest.raises(error, match=r"^\[\w+\] expected .*, got"):
        call()


@pytest.mark.skipif(find_spec("nccl") is not None, reason="NCCL is here")
def test_without_nccl_it_is_missed_at_once() -> None:
    with pytest.raises(DistributedError, match=r"^\[init\] expected nccl4py, .*, got .*: pip install"):
        dist.init("nccl")
    assert not dist.is_initialized()


BAD_TENSORS: dict[str, tuple[Any, type[AlphaError]]] = {
    "no tensor": (lambda: dist.all_reduce([1.0]), DtypeError),  # type: ignore[arg-type]
    "in the graph": (lambda: dist.all_reduce(alpha.ones(2, requires_grad=True)), ArgumentError),
    "operation": (lambda: dist.all_reduce(alpha.ones(2), "median"), ArgumentError),
    "mean of integers": (lambda: dist.all_reduce(alpha.ones(2, dtype=alpha.int64), "mean"), DtypeError),
    "source": (lambda: dist.broadcast(alpha.ones(2), 2), ArgumentError),
    "source of another type": (lambda: dist.broadcast(alpha.ones(2), True), ArgumentError),
}


@pytest.mark.parametrize("name", BAD_TENSORS)
def test_wrong_tensors(name: str) -> None:
    call, error = BAD_TENSORS[name]
    with pytest.raises(error, match=r"^\[\w+\] expected .*, got"):
        dist.run_in_threads(call, 2, timeout=30)


# -- programs that disagree ------------------------------------------------------------------------


def _disagree(run: Any, ranks: int = 4) -> str:
    with pytest.raises(DistributedError) as caught:
        dist.run_in_threads(run, ranks, timeout=0.5)
    return str(caught.value)


def test_an_operation_that_a_rank_leaves_out() -> None:
    message = _disagree(lambda: dist.barrier() if dist.rank() != 2 else None)
    assert message.startswith(
        "[barrier] expected all ranks to take part in operation 0 (barrier of 8 bytes) within 0.5"
    )
    assert "got rank 2 in no operation" in message


def test_operations_in_another_order() -> None:
    def run() -> None:
        calls = [dist.barrier, lambda: dist.all_reduce(alpha.ones(3))]
        for call in calls if dist.rank() != 1 else reversed(calls):
            call()

    message = _disagree(run)
    assert "operation 0" in message
    assert "rank 1 at operation 0 (all_reduce of 12 bytes)" in message or "(barrier of 8 bytes)" in message


def test_arrays_of_another_size() -> None:
    message = _disagree(lambda: dist.all_reduce(alpha.ones(8 + 8 * (dist.rank() == 3))))
    assert "expected the same size on all ranks in operation 0" in message
    assert "bytes" in message


def test_the_first_error_of_a_rank_is_the_one_that_is_raised() -> None:
    def run() -> None:
        if dist.rank() == 1:
            raise KeyError("lost")
        dist.barrier()

    with pytest.raises(KeyError, match="lost"):
        dist.run_in_threads(run, 3, timeout=30)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_takes_part_in_nothing() -> None:
    with entered(World(ThreadTransport(Hub(2), 0), 1.0)):
        child = os.fork()
        if not child:
            try:
                dist.barrier()
            except DistributedError as error:
                os._exit(0 if "forked" in str(error) and part() is None else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
