"""Launches of the CPU engine: what they compute, what they decline, and that they leave nothing behind."""

from __future__ import annotations

import ctypes
import gc
import pickle
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.launches
from alpha.cpu import launches, workers
from alpha.cpu.engine import CPUEngine
from alpha.cpu.job_slot import JOB_SLOT, NO_MORE, SHARE
from alpha.cpu.launch_code import MOST_TENSORS
from alpha.cpu.launches import Call, call_of, constant, learn, of_number, of_result, of_tensor, parts, verdict
from alpha.cpu.loops.machine import Entries
from alpha.cpu.workers import Workers
from alpha.errors import ArgumentError, OutOfMemoryError
from alpha.expressions.program import Program
from alpha.launches import ENGINE, KEY, NUMBER, OPTIONAL, SEVERAL, TENSOR, Launches
from alpha.tensor import Storage, Tensor


@pytest.fixture
def engine() -> CPUEngine:
    return CPUEngine(memory="64MB", threads=1)


def _program() -> tuple[Any, Program]:
    """x * y + a, and its program, which has not been launched yet."""
    function = alpha.pointwise(lambda x, y, a: x * y + a)
    return function, function.trace((alpha.ones(1), alpha.ones(1), 1.0)).program


def _pair(engine: CPUEngine, *shape: int) -> tuple[Tensor, Tensor]:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return alpha.tensor(values, engine=engine), alpha.tensor(values[..., ::-1].copy(), engine=engine)


def _known(known: Launches) -> Call:
    """The only call that launches know."""
    (entry,) = known.known.values()
    found: Call = entry.call
    return found


def test_a_launch_computes_what_the_engine_does(engine: CPUEngine) -> None:
    function, program = _program()
    for shape in ((32,), (5, 7), (3, 1), (40_000,)):
        x, y = _pair(engine, *shape)
        assert program.launches.launch(x, y, 2.0) is None  # nothing is known of such tensors yet
        wanted = function(x, y, 2.0)
        for number in (2.0, 2):
            found = program.launches.launch_outside(x, y, number)
            np.testing.assert_array_equal(found.numpy(), wanted.numpy())
            assert found.storage is not wanted.storage
            assert found.address == found.storage.address
            for name in set(Tensor.__slots__) - {"__weakref__", "address", "storage", "_array"}:
                assert getattr(found, name) == getattr(wanted, name), name


def test_several_results_come_as_a_tuple(engine: CPUEngine) -> None:
    x, y = _pair(engine, 33)
    x.requires_grad_()
    y.requires_grad_()
    function = alpha.pointwise(lambda x, y: alpha.exp(x * -0.01) * y)
    grads = []
    for _ in range(3):
        function(x, y).backward(alpha.ones(33, engine=engine))
        assert x.grad is not None and y.grad is not None
        grads.append((x.grad.numpy().copy(), y.grad.numpy().copy()))
        x.grad = y.grad = None
    for one, other in grads[1:]:
        np.testing.assert_array_equal(one, grads[0][0])
        np.testing.assert_array_equal(other, grads[0][1])
    np.testing.assert_allclose(grads[0][1], np.exp(x.detach().numpy() * -0.01), rtol=1e-6)


def test_what_a_launch_declines(engine: CPUEngine) -> None:
    function, program = _program()
    x, y = _pair(engine, 4, 6)
    function(x, y, 1.0)
    assert program.launches.launch(x, y, 1.0) is not None
    elsewhere = alpha.tensor(x.numpy(), engine=CPUEngine(threads=1))
    unfinished: Any = object.__new__(Tensor)
    for given in (
        (x, y), (x, y, 1.0, 1.0), (x, 1.0, y), (x, None, 1.0), (x, y, "1"), (x, y, True), (x, y, np.float64(1)),
        (x, y, 10**400), (x, alpha.ones(6, 4, engine=engine), 1.0), (x, y.double(), 1.0), (x, elsewhere, 1.0),
        (x, y.transpose(0, 1), 1.0), (x, unfinished, 1.0), (x, y.numpy(), 1.0), (),
    ):  # fmt: skip
        assert program.launches.launch(*given) is None, given
    leaf, of_leaf = x.clone().requires_grad_(), alpha.ones(2, 4, 6, engine=engine).requires_grad_()[0]
    view = alpha.ones(2, 4, 6, engine=engine)[0]
    for tensor in (leaf, of_leaf, view):
        assert program.launches.launch(tensor, y, 1.0) is not None
        assert (program.launches.launch_outside(tensor, y, 1.0) is None) == (tensor is not view)
    view.add_(1)  # and so its place in the graph may be another
    assert program.launches.launch_outside(view, y, 1.0) is None
    parameter = alpha.nn.Parameter(x)
    assert type(program.launches.launch(parameter, y, 1.0)) is Tensor
    with pytest.raises(TypeError):
        program.launches.launch(x, y, number=1.0)


def test_a_launch_forgets_old_layouts_for_new_ones(engine: CPUEngine) -> None:
    function, program = _program()
    for size in range(1, 2 * launches.MOST_ENTRIES):
        x, y = _pair(engine, size)
        wanted = x.numpy() * y.numpy() + 1
        for _ in range(2):
            np.testing.assert_array_equal(function(x, y, 1.0).numpy(), wanted)
        assert len(program.launches.known) <= launches.MOST_ENTRIES


def test_more_layouts_than_a_launch_knows_are_not_learnt_at_each_call(engine: CPUEngine) -> None:
    function, program = _program()
    pairs = [_pair(engine, size) for size in range(1, launches.MOST_ENTRIES + 9)]
    for x, y in pairs:
        function(x, y, 1.0)
    known, (x, y) = program.launches.launch, pairs[-1]
    assert len(program.launches.known) == launches.MOST_ENTRIES
    for _ in range(launches.MISSES_UNTIL_RESET - 9):
        assert program.launches.launch(x, y, 1.0) is None
        function(x, y, 1.0)
    assert program.launches.launch is known
    function(x, y, 1.0)
    assert len(program.launches.known) == 1 and program.launches.launch(x, y, 1.0) is not None


def test_a_tensor_that_changes_while_the_result_is_made_is_declined(engine: CPUEngine) -> None:
    x = alpha.ones(8, engine=engine)
    function = alpha.pointwise(lambda x: x * 3 + 1)
    function(x)
    call = _known(function.trace((x,)).program.launches)
    other = alpha.ones(9, engine=engine)

    def make(given: CPUEngine) -> Storage:
        x.storage = other.storage
        return given.allocate(64)

    changing = Launches(TENSOR)
    learn(changing, engine, lambda: call._replace(make=make), x)
    assert changing.launch(x) is None


def test_errors_and_interrupts_while_the_result_is_made(engine: CPUEngine) -> None:
    x = alpha.ones(300_000, engine=engine)
    function = alpha.pointwise(lambda x: x * 5 + 1)
    program = function.trace((x,)).program
    held = [function(x)]
    with pytest.raises(OutOfMemoryError):
        while True:
            held.append(program.launches.launch(x))
    held.clear()
    assert program.launches.launch(x) is not None
    call = _known(program.launches)

    def interrupt(_: CPUEngine) -> Storage:
        raise KeyboardInterrupt

    interrupted = Launches(TENSOR)
    learn(interrupted, engine, lambda: call._replace(make=interrupt), x)
    with pytest.raises(KeyboardInterrupt):
        interrupted.launch(x)


def test_launches_leave_nothing_behind(engine: CPUEngine) -> None:
    function, program = _program()
    x, y = _pair(engine, 32)
    function(x, y, 1.0)
    call = _known(program.launches)
    kept = (x, y, x.storage, x.shape, call, call.like, call.kept, engine, Tensor, Storage)
    gc.collect()
    before, in_use = [sys.getrefcount(one) for one in kept], engine.memory.in_use
    for _ in range(1000):
        program.launches.launch(x, y, 1.0)
        program.launches.launch(x, None, 1.0)
        program.launches.launch(x, y, 10**400)
    gc.collect()
    assert [sys.getrefcount(one) for one in kept] == before
    assert engine.memory.in_use == in_use


def test_an_interpreter_that_keeps_attributes_elsewhere_has_no_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "method", lambda *_: None)
    function, program = _program()
    x = alpha.ones(11)
    for _ in range(2):
        np.testing.assert_array_equal(function(x, x, 1.0).numpy(), np.full(11, 2, np.float32))
    assert program.launches.launch(x, x, 1.0) is None
    assert isinstance(_known(program.launches), Call)


# -- kernels of other operations ---------------------------------------------------------------------------------


class _Kernel:
    """A kernel in Python, which notes its jobs, or does something else."""

    def __init__(self, words: int, act: Callable[[int, int], None] | None = None) -> None:
        self.jobs: list[tuple[int, ...]] = []

        def note(slot: int, job: int) -> None:
            self.jobs.append((slot, *(ctypes.c_int64 * words).from_address(job)))

        self._function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(act or note)
        address = ctypes.cast(self._function, ctypes.c_void_p).value or 0
        self.entries = Entries(address, address, takes_share=True)


def test_a_job_is_made_of_its_words(engine: CPUEngine) -> None:
    kernel, known = _Kernel(8), Launches(NUMBER, OPTIONAL, KEY, SEVERAL, TENSOR)
    x, y = _pair(engine, 3, 4)
    part = x[1:, 2:]
    job = (
        constant(-7), of_result(), of_tensor(0), of_tensor(1), of_tensor(2), of_tensor(3), of_number(0), of_result(1),
    )  # fmt: skip
    learn(
        known,
        engine,
        lambda: call_of(kernel, job, (y,), 12, 1, None, scratch=(64,)),
        1.5,
        None,
        3,
        (x, part),
        y,
    )
    found = known.launch(2.5, None, 3, (x, part), y)
    assert (found.shape, found.strides, found.dtype) == (y.shape, y.strides, y.dtype)
    ((slot, *words, scratch),) = kernel.jobs
    number = int.from_bytes(struct.pack("d", 2.5), "little")
    assert (slot, *words) == (0, -7, found.address, 0, x.address, x.address + 4 * 6, y.address, number)
    assert part.address == words[3] + 4 * 6 and scratch not in words
    assert known.launch(2.5, x, 3, (x, part), y) is None
    assert known.launch(2.5, None, 3, (x, part, y), y) is None
    assert known.launch(2.5, None, 3, [x, part], y) is None  # a list may change meanwhile
    assert known.launch(2.5, None, 3, (x, None), y) is None
    assert len(kernel.jobs) == 1


def test_several_results_some_of_which_are_not_there(engine: CPUEngine) -> None:
    kernel, known = _Kernel(3), Launches(TENSOR)
    x, y = _pair(engine, 5)
    job = (of_result(0), of_result(1), of_result(2))
    learn(known, engine, lambda: call_of(kernel, job, (x, None, y.double()), 5, 1, None), x)
    first, second, third = known.launch(x)
    assert second is None and first.shape == third.shape == (5,) and str(third.dtype) == "float64"
    assert kernel.jobs == [(0, first.address, 0, third.address)]


def test_in_place_the_first_tensor_is_returned(engine: CPUEngine) -> None:
    kernel, known = _Kernel(2), Launches(TENSOR, TENSOR, in_place=True)
    x, y = _pair(engine, 4)
    learn(known, engine, lambda: call_of(kernel, (of_tensor(0), of_tensor(1)), (), 4, 1, None), x, y)
    assert known.launch(x, y) is x and kernel.jobs == [(0, x.address, y.address)]
    for given in ((x, x), (x, x.detach()), (x[:], y), (x.clone().requires_grad_(), y)):
        assert known.launch(*given) is None


def test_a_kernel_can_make_its_launch_decline(engine: CPUEngine) -> None:
    def refuse(_: int, job: int) -> None:
        place = ctypes.c_int64.from_address(job).value
        assert ctypes.c_int64.from_address(place).value == 0
        ctypes.c_int64.from_address(place).value = x.address == ctypes.c_int64.from_address(job + 8).value

    kernel, known = _Kernel(2, refuse), Launches(TENSOR)
    x, y = _pair(engine, 4)
    learn(known, engine, lambda: call_of(kernel, (verdict(), of_tensor(0)), (x,), 4, 1, None), x)
    in_use = engine.memory.in_use
    assert known.launch(x) is None and engine.memory.in_use == in_use
    assert known.launch(y) is not None


KEYS: list[tuple[Any, tuple[Any, ...]]] = [
    (None, (0, False, ())),
    (True, (1, 1.0, False)),
    (2, (2.0, 3, "2", True)),
    (1.5, (1.25, 1)),
    (0.0, (-0.0, 0, False)),
    (float("nan"), (0.0, None)),
    ("sum", ("mean", b"sum")),
    ((0, 1), ((1, 0), (0,), (0, 1, 2), [0, 1], (False, True), (0.0, 1.0))),
    ((), (None, 0, (0,))),
    (1 << 70, ((1 << 70) + 1,)),
]


@pytest.mark.parametrize(("key", "others"), KEYS)
def test_keys_are_equal_and_of_one_type(engine: CPUEngine, key: Any, others: tuple[Any, ...]) -> None:
    kernel, known = _Kernel(1), Launches(TENSOR, KEY)
    x, _ = _pair(engine, 4)
    learn(known, engine, lambda: call_of(kernel, (constant(1),), (x,), 4, 1, None), x, key)
    for same in (key, pickle.loads(pickle.dumps(key))):
        assert known.launch(x, same) is not None
    for other in others:
        assert known.launch(x, other) is None, other


def test_dtypes_are_keys(engine: CPUEngine) -> None:
    kernel, known = _Kernel(1), Launches(TENSOR, KEY)
    x, _ = _pair(engine, 4)
    learn(known, engine, lambda: call_of(kernel, (constant(1),), (x,), 4, 1, None), x, np.dtype(np.float32))
    assert known.launch(x, np.dtype("float32")) is not None and known.launch(x, alpha.float32) is not None
    for other in (np.dtype(np.float64), np.float32, "float32", np.dtype(">f4"), None):
        assert known.launch(x, other) is None, other


def test_an_engine_is_told_where_there_is_no_tensor(engine: CPUEngine) -> None:
    kernel, known = _Kernel(2), Launches(ENGINE, NUMBER)
    call = call_of(kernel, (of_number(0), of_result()), (engine.empty((3,)),), 3, 1, None)
    learn(known, engine, lambda: call, engine, 1.5)
    other, before = CPUEngine(threads=1), sys.getrefcount(engine)
    for one in (engine, other):
        found = known.launch(one, 2.5)
        assert found.engine is one and found.shape == (3,) and found.storage.pool is one.memory
        assert kernel.jobs[-1][1:] == (struct.unpack("q", struct.pack("d", 2.5))[0], found.address)
    del found
    for given in (None, "cpu", alpha.engine("numpy"), alpha.ones(3), 7):
        assert known.launch(given, 2.5) is None
    assert sys.getrefcount(engine) == before


@pytest.mark.parametrize("key", [(0, True), (0.5,), [1], (1, (2,)), np.int64(1)])
def test_what_is_no_key_is_not_learnt(engine: CPUEngine, key: Any) -> None:
    known = Launches(TENSOR, KEY)
    x, _ = _pair(engine, 4)
    learn(known, engine, lambda: pytest.fail("asked for a call"), x, key)
    assert not known.known and known.launch(x, key) is None


# -- several threads ---------------------------------------------------------------------------------------------


@pytest.fixture
def private_workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    """Workers of this test alone, on which launches run; none has been started."""
    made, before = Workers(), int(workers.SLOT[0])
    monkeypatch.setattr(workers, "WORKERS", made)
    workers.SLOT[0] = made._slot
    yield made
    workers.SLOT[0] = before
    made.stop()


def _field(made: Workers, offset: int) -> ctypes.c_int64:
    """A field of the workers' slot."""
    return ctypes.c_int64.from_address(made._slot + offset)


def _prepared(engine: CPUEngine, kernel: _Kernel) -> Callable[[], Any]:
    """A launch of a kernel with three tasks, whose job is the address of memory for parts."""
    known, x = Launches(TENSOR), alpha.ones(8, engine=engine)
    learn(known, engine, lambda: call_of(kernel, (parts(),), (x,), launches.LONG, 3, None, parts=64), x)
    return lambda: known.launch(x)


def test_a_launch_runs_on_the_workers(engine: CPUEngine, private_workers: Workers) -> None:
    come: list[tuple[int, bool, int]] = []

    def wait_for_another(share: int, job: int) -> None:
        place = ctypes.c_int64.from_address(job).value
        come.append((share, place != 0, place and ctypes.c_int64.from_address(place).value))
        latest = time.monotonic() + 1
        while len(come) < 2 and time.monotonic() < latest:
            time.sleep(1e-3)

    launch = _prepared(engine, _Kernel(1, wait_for_another))
    engine.configure(threads=2)
    assert launch() is None and not come  # no worker has been started
    private_workers.sharing(0, b"", 2)
    most, first = 0, private_workers._slot + JOB_SLOT.shares
    for _ in range(20):  # a worker that the system does not let run in time is not waited for
        come.clear()
        assert launch() is not None
        assert {share for share, *_ in come} in ({first}, {first, first + SHARE.nbytes})
        assert all(told == [True, 0] for _, *told in come)
        most = max(most, len(come))
    assert most == 2
    assert _field(private_workers, JOB_SLOT.busy).value == 0
    engine.configure(threads=3)
    assert launch() is None
    _field(private_workers, JOB_SLOT.ready).value = NO_MORE
    assert launch() is not None


def test_a_launch_runs_alone_while_another_job_has_the_workers(engine: CPUEngine, private_workers: Workers) -> None:
    kernel = _Kernel(1)
    launch = _prepared(engine, kernel)
    engine.configure(threads=2)
    private_workers.sharing(0, b"", 2)
    busy = _field(private_workers, JOB_SLOT.busy)
    busy.value = 1
    assert launch() is not None and kernel.jobs == [(0, 0)] and busy.value == 1
    other = threading.Thread(target=private_workers.share, args=(kernel.entries.shared, struct.pack("q", 5), 2))
    other.start()
    other.join(0.05)
    assert other.is_alive() and len(kernel.jobs) == 1  # the others' jobs wait
    busy.value = 0
    other.join(20)
    assert not other.is_alive() and busy.value == 0
    first = private_workers._slot + JOB_SLOT.shares
    assert set(kernel.jobs[1:]) <= {(first, 5), (first + SHARE.nbytes, 5)} and len(kernel.jobs) > 1


@pytest.mark.parametrize("threads", [1, 2])
def test_without_a_slot_a_launch_runs_alone(engine: CPUEngine, private_workers: Workers, threads: int) -> None:
    """As at the interpreter's end; on an engine of one thread always."""
    kernel = _Kernel(1)
    launch = _prepared(engine, kernel)
    engine.configure(threads=threads)
    private_workers.sharing(0, b"", 2)
    if threads > 1:
        workers.SLOT[0] = 0
    assert launch() is not None and kernel.jobs == [(0, 0)]


def test_several_threads_give_the_same_bits(engine: CPUEngine) -> None:
    rng = np.random.default_rng(0)
    x, y = (alpha.tensor(rng.standard_normal((400, 1000), np.float32), engine=engine) for _ in range(2))
    function: Any = alpha.pointwise(lambda x, y: x * y + alpha.exp(x))
    calls: list[Callable[[], Any]] = [
        lambda: function(x, y), lambda: x + y, lambda: alpha.sum(x), lambda: alpha.sum(x, 0), lambda: alpha.sum(x, 1),
        lambda: alpha.var(x), lambda: alpha.var(x, 0), lambda: alpha.softmax(x, -1), lambda: alpha.cumsum(x, 1),
        lambda: x.transpose(0, 1).contiguous(), lambda: alpha.concat([x, y], 1), lambda: alpha.norm(x),
        lambda: alpha.layer_norm(x, (1000,), x[0], y[0]), lambda: alpha.mean(x, 0),
        lambda: _in_place(x, lambda out: out.add_(y)),
    ]  # fmt: skip
    wanted = [call().numpy().copy() for call in calls]
    for threads in (2, 3):
        engine.configure(threads=threads)
        for call, expected in zip(calls, wanted, strict=True):
            for _ in range(3):  # the long way, and launches
                np.testing.assert_array_equal(call().numpy(), expected)


def test_launches_in_many_threads(engine: CPUEngine) -> None:
    engine.configure(threads=2)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            x = alpha.full((1 << 17,), float(number), engine=engine)
            for _ in range(100):
                assert bool(((x + x).numpy() == 2 * number).all())
                assert alpha.sum(x).item() == number << 17
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert ctypes.c_int64.from_address(workers.WORKERS._slot + JOB_SLOT.busy).value == 0


# -- copies ------------------------------------------------------------------------------------------------------


def forget_all() -> None:
    """Makes room for what a test has the launches of alpha's operations learn."""
    for found in vars(alpha.launches).values():
        for one in found.values() if isinstance(found, dict) else [found]:
            if isinstance(one, Launches):
                one.forget()


def _in_place(x: Tensor, change: Callable[[Tensor], Any]) -> Tensor:
    """A tensor of x's values after a change in place, which is noted."""
    out = alpha.ones(x.shape, engine=x.engine)
    for write in (lambda: out.copy_(x), lambda: change(out)):
        version = out.version
        write()
        assert out.version == version + 1
    return out


def _operations(engine: CPUEngine) -> dict[str, Callable[[], Tensor]]:
    """Calls that are launches after their first."""
    x, y = _pair(engine, 3, 4, 5)
    rows, columns = (alpha.tensor(np.array(n), engine=engine) for n in ([2, -1, 0], [4, 0, -5, 1]))
    along = alpha.tensor(np.arange(12).reshape(3, 4, 1) % 5, engine=engine)
    images = alpha.tensor(np.arange(2 * 6 * 6 * 8, dtype=np.float32).reshape(2, 6, 6, 8), engine=engine)
    labels = alpha.tensor(np.arange(12) % 5, engine=engine)
    table, zero = x.reshape(12, 5), alpha.tensor(np.float32(0), engine=engine)
    return {
        "transposed": lambda: x.transpose(0, 2).contiguous(),
        "part": lambda: alpha.clone(x[:, 1:]),
        "concat": lambda: alpha.concat([x, y], 1),
        "concat, from the end": lambda: alpha.concat((x, y[:1], x), -3),
        "stack": lambda: alpha.stack([x, y], -1),
        "stack of views": lambda: alpha.stack([x.transpose(0, 1), y.transpose(0, 1)]),
        "flip": lambda: alpha.flip(x, [0, -1]),
        "pad": lambda: alpha.pad(x, [1, 2, 0, 1], value=-1.5),
        "pad, reflect": lambda: alpha.pad(x, (1, 2, 0, 1), "reflect"),
        "index_select": lambda: alpha.index_select(x, 0, rows),
        "index_select, from the end": lambda: alpha.index_select(x, -1, columns),
        "getitem": lambda: x[rows],
        "embedding": lambda: alpha.embedding(along, table),
        "gather": lambda: alpha.gather(x, -1, along),
        "take_along_dim": lambda: alpha.take_along_dim(x, along, 2),
        "setitem": lambda: _in_place(x, lambda out: out.__setitem__(rows, y)),
        "setitem by a mask": lambda: _in_place(x, lambda out: out.__setitem__(x > 9, zero)),
        "max_pool2d": lambda: alpha.max_pool2d(images, 2),
        "sum": lambda: alpha.sum(x),
        "sum, from the end": lambda: alpha.sum(x, -2, True),
        "mean": lambda: alpha.mean(x, (0, 2)),
        "prod": lambda: alpha.prod(x, 1),
        "norm": lambda: alpha.norm(x, dim=-1),
        "max": lambda: alpha.max(x),
        "min": lambda: alpha.min(x, keepdim=True),
        "var": lambda: alpha.var(x, 1),
        "std": lambda: alpha.std(x, (-1, 1), unbiased=False, keepdim=True),
        "cumsum": lambda: alpha.cumsum(x, -2),
        "softmax": lambda: alpha.softmax(x, -1),
        "log_softmax": lambda: alpha.log_softmax(x, 1),
        "layer_norm": lambda: alpha.layer_norm(x, (4, 5), x[0], y[0]),
        "nll_loss": lambda: alpha.nll_loss(table, labels, reduction="sum"),
        "group_norm": lambda: alpha.group_norm(images, 4),
        "rms_norm": lambda: alpha.rms_norm(x, (5,), table[0], 1e-5),
        "full": lambda: alpha.full((3, 4), 1.5, engine=engine),
        "full, of bools": lambda: alpha.full(3, True, engine=engine),
        "zeros": lambda: alpha.zeros(3, 4, dtype=alpha.int32, engine=engine),
        "ones": lambda: alpha.ones((3, 4), engine=engine),
        "full_like": lambda: alpha.full_like(x, -1),
        "avg_pool2d": lambda: alpha.avg_pool2d(images, 3, stride=1, padding=1, count_include_pad=False),
    }


@pytest.mark.parametrize("name", _operations(CPUEngine()))
def test_operations_are_launches(engine: CPUEngine, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    forget_all()
    call = _operations(engine)[name]
    first = call()
    called = (
        "copied", "copy", "concat", "stack", "flip", "pad", "index_select", "gather", "gather_along", "scatter",
        "max_pool2d", "avg_pool2d", "reduce", "mean", "euclidean_norm", "variance", "cumsum", "softmax", "row_norm",
        "nll_loss", "group_norm", "full", "full_like",
    )  # fmt: skip
    for method in called:
        monkeypatch.setattr(CPUEngine, method, lambda *_: pytest.fail("went the long way"))
    found = call()
    assert (found.shape, found.strides, found.dtype) == (first.shape, first.strides, first.dtype)
    np.testing.assert_array_equal(found.numpy(), first.numpy())
    assert found.storage is not first.storage


def test_a_tensor_in_the_graph_is_for_its_function(engine: CPUEngine) -> None:
    x, y = _pair(engine, 3, 4)
    calls: list[Callable[[Tensor], Tensor]] = [
        alpha.clone,
        lambda t: alpha.concat([y, t]),
        lambda t: alpha.flip(t, 0),
        lambda t: alpha.pad(t, (1, 1)),
    ]
    for call in calls:
        call(x)
        leaf = x.detach().requires_grad_()
        call(leaf).sum().backward()
        assert leaf.grad is not None and (leaf.grad.numpy() == 1).all()


def test_indices_out_of_range_are_errors_after_a_launch_too(engine: CPUEngine) -> None:
    x, y = _pair(engine, 3, 4)
    good, bad = (alpha.tensor(np.array(n), engine=engine) for n in ([0, -3, 2], [0, 3, 1]))
    below = alpha.tensor(np.array([0, -1, 2]), engine=engine)
    calls: list[Callable[[Tensor], Tensor]] = [
        lambda index: alpha.index_select(x, 0, index),
        lambda index: x[index],
        lambda index: alpha.gather(x, 0, index.reshape(3, 1)),
    ]
    for call in calls:
        call(good)
        with pytest.raises(IndexError):
            call(bad)
    alpha.embedding(good.abs(), x.reshape(4, 3))
    with pytest.raises(IndexError):
        alpha.embedding(below, x.reshape(4, 3))
    x[good] = y
    before = x.numpy().copy()
    with pytest.raises(IndexError):
        x[bad] = y * 2
    np.testing.assert_array_equal(x.numpy(), before)


def test_a_label_out_of_range_is_an_error_after_a_launch_too(engine: CPUEngine) -> None:
    x = alpha.tensor(np.zeros((3, 4), np.float32), engine=engine)
    for labels, reduction in (([0, 3, 1], "mean"), ([0, -100, 2], "mean"), ([0, 1, 3], "sum")):
        alpha.nll_loss(x, alpha.tensor(np.array(labels), engine=engine), reduction=reduction)
        wrong = alpha.tensor(np.array([0, 4, 9]), engine=engine)
        with pytest.raises(ArgumentError, match=r"got 4 at row 1"):
            alpha.nll_loss(x, wrong, reduction=reduction)


def test_many_tensors_are_not_for_a_launch(engine: CPUEngine) -> None:
    parts = [alpha.full((2, 3), k, engine=engine) for k in range(MOST_TENSORS + 1)]
    for some in (parts, parts[1:]):
        for _ in range(2):
            wanted = np.concatenate([part.numpy() for part in some], 1)
            np.testing.assert_array_equal(alpha.concat(some, 1).numpy(), wanted)
