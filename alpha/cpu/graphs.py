"""Captured steps on the CPU: the tape of a step's kernels, its memory, what is checked ahead of it."""

from __future__ import annotations

import functools
import struct
import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, cast

import numpy as np

from alpha import caches, graphs, random, steps
from alpha.arenas import Observer, PrivatePool
from alpha.changes import deferred_interrupts
from alpha.composed import arrays
from alpha.cpu import tapes
from alpha.cpu.base import Array
from alpha.cpu.engine import CPUEngine
from alpha.dtypes import float64, uint8
from alpha.engine import Engine
from alpha.errors import ArgumentError, GraphError
from alpha.mempool import MemoryPool
from alpha.random import Draw
from alpha.records import RangeCheck
from alpha.tensor import Storage, Tensor

_PLACE = struct.Struct("QQ").pack
"""A seed and an offset, as jobs have them."""

_OUTSIDE = "take it out of the step, or call the step without alpha.graph"


class Capture(graphs.Capture, graphs.Recording):
    """One captured step: made by ``Recorder.capture``, launched ever after.

    Attributes:
        tape: what is noted of it.
        redraws: the step's random words.
    """

    def __init__(self, engine: StepEngine, pool: MemoryPool) -> None:
        self.engine, self.pool, self.tape, self.redraws = engine, pool, tapes.Tape(), graphs.Redraws()
        self._parts: list[Callable[[], object]] | None = None
        self._saving: list[Callable[[], object]] = []
        self._restoring: list[Callable[[], object]] = []
        self._plans: list[Any] = []
        self._ahead: list[Callable[[], None]] = []
        self._behind: list[Callable[[], object]] = []
        self._save, self._restore = tapes.Tape(), tapes.Tape()
        self._saved: dict[Storage, Storage] = {}
        self._launches = self._effects = 0
        self._may_undo = False  # whether a launch may turn out to be none when it has begun
        self._place: dict[str, int] = {}
        # Memory from outside the pool that the work uses, with its version when first seen; then, where the step
        # writes to it, how many versions a replay is worth.
        self._kept: dict[Storage, int] = {}
        self._written: list[tuple[Storage, int]] = []

    def keep(self, *tensors: Tensor | Storage) -> None:
        for tensor in tensors:
            storage = tensor.storage if isinstance(tensor, Tensor) else tensor
            if storage.pool is not self.pool:
                self._kept.setdefault(storage, storage.version)

    def live(self, values: Any, refresh: Callable[[], bytes] | None) -> Tensor:
        content = bytes(values) if isinstance(values, bytes | bytearray) else values.tobytes()
        storage = Storage(self.engine, self.engine.memory, len(content))
        self.keep(storage)
        tensor = Tensor(storage, 0, (len(content),), (1,), uint8)
        memory = CPUEngine.array(self.engine, tensor)
        memory[...] = np.frombuffer(content, np.uint8)
        if refresh is not None:
            self.host(lambda: memory.__setitem__(..., np.frombuffer(_as_long(refresh(), content), np.uint8)))
        return tensor

    def host(self, effect: Callable[[], object]) -> None:
        self._effects += 1
        self.tape.act(lambda: effect() if self._launches else None)  # what the first launch needs, the capture has done

    def behind(self, effect: Callable[[], object]) -> None:
        self._behind.append(effect)

    def ahead(self, check: Callable[[], None]) -> None:
        """Has values that a launch finds be checked before it begins."""
        self._ahead.append(check)

    def overwrites(self, tensor: Tensor) -> None:
        """Has a tensor be kept as it is before each launch, to be put back where that turns out to be none."""
        storage, words = tensor.storage, -(-tensor.numel() * tensor.itemsize // 8)
        self.keep(storage)
        if storage.pool is self.pool or storage in self._saved:
            return
        if not tensor.is_contiguous():
            steps.refuse(self.engine, "running statistics with gaps", "make them dense")
        kept = Storage(self.engine, self.engine.memory, 8 * words)
        self._saved[storage] = kept
        self._save.copy(tensor.address, kept.address, words)
        self._restore.copy(kept.address, tensor.address, words)

    def within(self, check: Callable[[], None]) -> None:
        """Has values be checked at this place of the step, before which it changes nothing that lasts."""
        changed = [one for one, seen in self._kept.items() if one.version != seen and one not in self._saved]
        if self._effects or changed:
            steps.refuse(
                self.engine, "indices or labels that are computed behind a change of what lasts", "compute them first"
            )

        def part() -> None:
            try:
                check()
            except Exception:
                self._undo()
                raise

        self._may_undo = True
        self.tape.act(part)

    def is_given(self, tensor: Tensor) -> bool:
        """Whether a tensor holds before a launch what it holds in the step."""
        storage = tensor.storage
        return storage.pool is not self.pool and self._kept.get(storage, storage.version) == storage.version

    def finish(self, plans: list[Any]) -> None:
        """Ends the capture. ``plans``: what kernels use by its address."""
        self._parts, self._plans = self.tape.finish(), plans
        self._saving, self._restoring = self._save.finish(), self._restore.finish()
        self._written = [(storage, storage.version - seen) for storage, seen in self._kept.items()]
        self._written = [(storage, count) for storage, count in self._written if count]

    def launch(self) -> bool:
        if self._parts is None:
            raise GraphError("[graph] expected a finished capture, got one that failed: capture the step again")
        try:
            for check in self._ahead:
                check()
            with deferred_interrupts():
                if self._may_undo:
                    self._place = random.get_state()
                for part in self._saving:
                    part()
                for part in self._parts:
                    part()
                if self._launches:
                    for storage, count in self._written:
                        storage.touch(count)
                self._launches += 1
                for effect in self._behind:
                    effect()
        except _OtherValuesError:
            return False
        return True

    def _undo(self) -> None:
        """Takes back what a launch has changed before a check."""
        for part in self._restoring:
            part()
        random.set_state(self._place)


class _OtherValuesError(GraphError):
    """Values lead the step elsewhere than in its capture."""


class Recorder(graphs.Recorder):
    """Captures steps into one private pool: they run one after another, and may share what is free between them."""

    def __init__(self, engine: CPUEngine) -> None:
        self._engine = engine
        self._pool = PrivatePool(engine.memory)

    @contextmanager
    def rehearse(self) -> Iterator[Observer]:
        observer, thread = Observer(), threading.get_ident()
        with _stepping(self._engine) as engine:
            try:
                engine.observers[thread] = observer
                yield observer
            finally:
                engine.observers.pop(thread, None)
                observer.stop()

    @contextmanager
    def capture(self, rehearsal: Observer | None = None) -> Iterator[Capture]:
        with _stepping(self._engine) as engine:
            if engine.capture is not None:
                raise GraphError(
                    f"[graph] expected one capture at a time on {engine.name}, got a second: wait for the first"
                )
            capture = Capture(engine, self._pool)
            requests = [] if rehearsal is None else rehearsal.requests
            with self._pool.planned(requests), caches.keeping() as plans:
                try:
                    engine.capture = capture
                    with tapes.taping(capture.tape):
                        yield capture
                finally:
                    engine.capture = None
        capture.finish(plans)


# -- the engine during a step --------------------------------------------------------------------------------------


class StepEngine(CPUEngine):
    """What a CPU engine is while a thread rehearses or captures a step on it.

    What the host would read is refused in the step. While it is captured its kernels, and the functions that ``act``
    would call, are noted (``alpha.cpu.tapes``), and what is made lives in the capture's memory. Other threads find the
    engine as ever.
    """

    has_launches = False  # they would run kernels that are to be noted
    observers: dict[int, Observer]
    stepping: int
    """How many threads are within a step."""

    def here(self) -> Capture | None:
        """The capture that this thread's work belongs to."""
        capture = self.capture
        return capture if isinstance(capture, Capture) and tapes.tape() is capture.tape else None

    # -- memory ----------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> Storage:
        capture = self.here()
        storage = Storage(self, self.memory if capture is None else capture.pool, nbytes)
        observer = self.observers.get(threading.get_ident())
        if observer is not None:
            observer.note(storage)
        return storage

    def synchronize(self) -> None:
        steps.refuse(self, "a wait for the device", "synchronise outside the step")

    def array(self, tensor: Tensor) -> Array:
        if steps.watch_of(self) is not None:
            steps.refuse(self, f"{_operation()}, which NumPy computes", _OUTSIDE)
        return super().array(tensor)

    def operand(self, tensor: Tensor) -> Array:
        if self.here() is None:
            return super().array(tensor)
        return np.asarray(tapes.Addressed(tensor)).view(tensor.dtype)

    def act(self, function: Callable[..., object], *arguments: Any) -> None:
        capture = self.here()
        if capture is None:
            super().act(function, *arguments)
        else:
            capture.tape.act(functools.partial(super().act, function, *map(tapes.unowned, arguments)))

    def _are_narrow(self, x: Tensor) -> bool:
        return steps.watch_of(self) is None and super()._are_narrow(x)

    def decided(self, answer: Tensor) -> bool:
        watch, capture = steps.watch_of(self), self.here()
        if watch is None:
            return super().decided(answer)
        findings = watch.findings.setdefault("decided", [])
        array = CPUEngine.array(self, answer)
        if capture is None:
            findings.append(bool(array[0]))
            return bool(findings[-1])
        found = bool(findings and findings.pop(0))

        def test() -> None:
            if bool(array[0]) != found:
                raise _OtherValuesError("[graph] expected a batch norm that saves what the captured one did")

        capture.within(test)
        return found

    def overwriting(self, tensor: Tensor) -> None:
        capture = self.here()
        if capture is not None:
            capture.overwrites(tensor)

    def launch(self, kernel: Callable[..., Any], *arguments: Any, tasks: int | None = None) -> Any:
        capture = self.here()
        if capture is None:
            return super().launch(kernel, *arguments, tasks=tasks)
        threads = self.threads if tasks is None else max(1, min(self.threads, tasks))
        capture.tape.launch(kernel, arguments, threads)
        return 0

    # -- the host --------------------------------------------------------------------------------------------------

    def from_numpy(self, array: Array) -> Tensor:
        steps.refuse(self, "data from the host", "make the tensor outside the step, and pass it as an argument")
        return super().from_numpy(array)

    def from_pieces(self, shape: Sequence[int], dtype: np.dtype[Any], pieces: Iterable[tuple[int, Array]]) -> Tensor:
        steps.refuse(self, "data from the host", "make the tensor outside the step, and pass it as an argument")
        return super().from_pieces(shape, dtype, pieces)

    def to_numpy(self, tensor: Tensor) -> Array:
        steps.refuse(self, "a value read by the host", "return the tensor, and read it outside the step")
        return super().to_numpy(tensor)

    def storing(self, source: Array, out: Tensor) -> tuple[Any, ...]:
        steps.refuse(self, "data from the host", "make the tensor outside the step, and pass it as an argument")
        return super().storing(source, out)

    def constant(self, key: Hashable, make: Callable[[], Array]) -> Tensor:
        with _aside():
            made = CPUEngine.from_numpy(self, make())
        capture = self.here()
        if capture is not None:
            capture.keep(made)
        return made

    # -- indices ---------------------------------------------------------------------------------------------------

    def _checked(
        self, index: Tensor, low: int, high: int, check: RangeCheck, ignore: int | None
    ) -> tuple[Tensor, bool]:
        watch, capture = steps.watch_of(self), self.here()
        if watch is None or not index.numel():
            return super()._checked(index, low, high, check, ignore)
        findings = watch.findings.setdefault("ignored", [])
        if capture is None:
            found = super()._checked(index, low, high, check, ignore)
            findings.append(found[1])
            return found
        is_given, rehearsed = capture.is_given(index), bool(findings and findings.pop(0))
        with _aside():
            find = self._finding(index.detach(), low, high, check, ignore)
            is_ignored = find() if is_given else rehearsed

        def test() -> None:
            if find() != is_ignored:
                raise _OtherValuesError("[graph] expected labels to ignore as in the captured step, got others")

        (capture.ahead if is_given else capture.within)(test)
        return super()._checked(index, low, high, check, ignore)[0], is_ignored

    def index_select(
        self, x: Tensor, index: Tensor, axis: int, check: RangeCheck | None = None, from_end: bool = True
    ) -> Tensor:
        if self.here() is not None and check is not None:
            length = x.shape[axis]
            index, check, from_end = self.check_range(index, -length if from_end else 0, length, check), None, False
        return super().index_select(x, index, axis, check, from_end)

    def gather_along(self, x: Tensor, index: Tensor, axis: int, check: RangeCheck | None = None) -> Tensor:
        if self.here() is not None and check is not None:
            length = x.shape[axis]
            index, check = self.check_range(index, -length, length, check), None
        return super().gather_along(x, index, axis, check)

    def check_none(self, count: Tensor, check: RangeCheck) -> None:
        if steps.watch_of(self) is None:
            super().check_none(count, check)
        else:
            arrays.check_none_later(self, count, check)

    def one_hot(self, labels: Tensor, classes: int, dtype: np.dtype[Any], check: RangeCheck) -> Tensor:
        if self.here() is not None:
            labels = self.check_range(labels, 0, classes, check)
        return super().one_hot(labels, classes, dtype, check)

    # -- numbers that change -----------------------------------------------------------------------------------------

    def random(self, draw: Draw) -> Tensor:
        steps.check_draw(self, draw)
        return super().random(draw)

    def redrawn(self, seed: int, offset: int, words: int, is_again: bool = False) -> Callable[[], bytes] | None:
        capture = self.here()
        refresh = None if capture is None else capture.redraws.refresh(seed, offset, words, is_again)
        return None if refresh is None else lambda: _PLACE(*refresh())

    # -- losses ------------------------------------------------------------------------------------------------------

    def nll_loss(
        self, rows: Tensor, labels: Tensor, ignore_index: int, reduction: str, check: RangeCheck
    ) -> tuple[Tensor, Tensor, Tensor | float]:
        if self.here() is None:
            return super().nll_loss(rows, labels, ignore_index, reduction, check)
        self.check_labels(labels, rows.shape[1], check, ignore_index)
        loss, followed = self._picked(rows, self._in_order(labels), ignore_index, reduction)
        if reduction != "mean":
            return loss, followed, 1.0
        factor, count = self.empty((), float64), followed.strided(len(followed), (), ())
        self.act(_divide, self.operand(count), self.operand(factor))
        return loss, followed, factor


def _divide(count: Array, factor: Array) -> None:
    """What the gradient of a mean over so many rows is multiplied by."""
    factor[...] = np.divide(1.0, count) if count else np.nan


@contextmanager
def _aside() -> Iterator[None]:
    """``with _aside():`` what this thread does is no part of the step, and is done now."""
    with tapes.paused(), steps.unwatched():
        yield


def _operation() -> str:
    """The operation of the engine that this thread is in, by its name."""
    frame, found = sys._getframe(2), "an operation"
    while frame is not None:
        module = str(frame.f_globals["__name__"])
        if not module.startswith(("alpha.cpu", "alpha.composed", "contextlib")):
            break
        code = frame.f_code
        name = code.co_name
        if (
            code is not _KEEPING
            and name != "guarded"
            and not name.startswith("_")
            and isinstance(frame.f_locals.get("self"), Engine)
        ):
            found = name
        if frame.f_back is None:
            break
        frame = frame.f_back
    return found


def _as_long(values: bytes, first: bytes) -> bytes:
    if len(values) != len(first):
        raise ArgumentError(f"[graph] expected {len(first)} bytes of new values, got {len(values)}: give as many")
    return values


# -- what a step uses ----------------------------------------------------------------------------------------------

_NOT_WORK = ("allocate", "capture", "check", "check_owner", "configure", "constant", "lasting", "recorder", "sync")


def _tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors in an operation's argument."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors_of(part)
    elif isinstance(value, dict):
        yield from _tensors_of(list(value.values()))
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _tensors_of(getattr(value, field.name))


def _keeping(name: str) -> Callable[..., Any]:
    """An operation that tells the capture which tensors it is given."""
    defined = StepEngine.__dict__.get(name)

    @functools.wraps(getattr(CPUEngine, name))
    def operation(self: StepEngine, *arguments: Any, **named: Any) -> Any:
        capture = self.here()
        if capture is not None:
            capture.keep(*_tensors_of(arguments), *_tensors_of(named))
        return (defined or getattr(CPUEngine, name))(self, *arguments, **named)

    return operation


_KEEPING = _keeping("copy").__code__

for _name in dir(Engine):
    if not _name.startswith("_") and _name not in _NOT_WORK and callable(getattr(CPUEngine, _name)):
        setattr(StepEngine, _name, _keeping(_name))


# -- entering and leaving ------------------------------------------------------------------------------------------

_lock = threading.Lock()


@contextmanager
def _stepping(engine: CPUEngine) -> Iterator[StepEngine]:
    """``with _stepping(engine) as engine:`` it is a ``StepEngine`` until no thread is in such a block any more."""
    with _lock:
        state = engine.__dict__
        state.setdefault("observers", {})
        state["stepping"] = state.get("stepping", 0) + 1
        object.__setattr__(engine, "__class__", StepEngine)
    try:
        yield cast(StepEngine, engine)
    finally:
        with _lock:
            state["stepping"] -= 1
            if not state["stepping"]:
                object.__setattr__(engine, "__class__", CPUEngine)
