"""alpha.graph: a training step captured once and then replayed by the engine alone, the same to the bit.

Capturing runs the step's Python once while the engine notes down the kernels it launches instead of running them. A
replay launches them all at once; no Python of the step runs, so what the host does in a step must be known: numbers
that change from step to step (``Capture.live``), effects on the host (``steps.run_now_and_on_replay``), gradients of
leaves (``steps.note_leaf``), and what other processes say (``Watch.conditions``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from alpha import casts, engines, random
from alpha.autograd import is_grad_enabled
from alpha.engine import Engine
from alpha.errors import ArgumentError, GraphError, described
from alpha.steps import Watch, holds, is_watched, watching
from alpha.tensor import Storage, Tensor

Step = Callable[..., Any]
_RECORDINGS = 4
"""Captures kept for inputs of the same shapes: they differ in the gradients that the step found."""


# -- what an engine that captures implements -----------------------------------------------------------------------


class Capture(ABC):
    """What an engine notes down while it captures a step; ``engine.capture`` at that time.

    Attributes:
        redraws: the step's random words.
    """

    redraws: Redraws

    @abstractmethod
    def keep(self, *tensors: Tensor | Storage) -> None:
        """Keeps memory that the captured work uses from being freed; every launch calls it with its arguments."""

    @abstractmethod
    def live(self, values: Any, refresh: Callable[[], bytes] | None) -> Tensor:
        """Device memory holding ``values`` (bytes, or an array's) at the first launch and ``refresh()`` at later ones.

        ``refresh`` returns as many bytes; without it the values stay.
        """

    @abstractmethod
    def host(self, effect: Callable[[], object]) -> None:
        """Has an effect on the host take place before each later launch, in the order of these calls and ``live``'s."""

    @abstractmethod
    def behind(self, effect: Callable[[], object]) -> None:
        """Has an effect on the host take place behind each launch, the first included."""


class Redraws:
    """The random words of a captured step: in each replay others, which whoever draws them first reserves.

    What draws them again in the step, such as the gradient of an attention, or a checkpoint's second call, gets those.
    """

    def __init__(self) -> None:
        self._drawn: dict[tuple[int, int], tuple[int, int]] = {}

    def refresh(
        self, seed: int, offset: int, words: int, is_again: bool = False
    ) -> Callable[[], tuple[int, int]] | None:
        """What gives a replay its seed and offset for words that the capture drew from these.

        None where they stay: what was drawn outside the step is drawn again.
        """
        place = seed, offset
        if place in self._drawn:
            return lambda: self._drawn[place]
        if is_again or random.is_drawing_again():
            return None
        self._drawn[place] = place

        def draw() -> tuple[int, int]:
            found = self._drawn[place] = random.reserve(words)
            return found

        return draw


class Recording(ABC):
    """A captured step."""

    @abstractmethod
    def launch(self) -> bool:
        """Submits the captured work; False where values that it finds lead the step elsewhere: then nothing is done.

        What the step itself would find wrong with them it may raise.
        """


class Recorder(ABC):
    """Captures the steps of one function on one engine, in memory that their captures share."""

    @abstractmethod
    def rehearse(self) -> AbstractContextManager[Any]:
        """``with recorder.rehearse() as rehearsal:`` runs what is launched within, and notes what ``capture`` takes."""

    @abstractmethod
    def capture(self, rehearsal: Any = None) -> AbstractContextManager[Recording]:
        """``with recorder.capture(rehearsal) as recording:`` captures what is launched within instead of running it.

        ``rehearsal``: what ``rehearse`` gave for the same work, if it was rehearsed.
        """


# -- alpha.graph ---------------------------------------------------------------------------------------------------


def graph(step: Step, warmup: int = 2) -> GraphedStep:
    """A step (forward, backward and update) that a device replays as one submission: ``step = alpha.graph(step)``.

    The first ``warmup`` calls run the step as it is; the next one captures it, and from then on a call copies its
    arguments into the capture's and replays. Losses and parameters are those of the step itself, to the bit. On the CPU
    engine the kernels are called one after another by one native loop, and what NumPy computes, between its parts.

    The step takes tensors of one engine by position and returns tensors (None, or tuples, lists and dicts of them);
    the caller gets copies outside the graph. Other shapes or dtypes are captured for themselves. Optimizers, the
    schedulers in ``optim``, Dropout and BatchNorm go on counting, and an optimizer's options may change at any time
    (what switches a buffer on or off has the step run as it is once, and captured anew). Other Python in the step runs
    in the first calls only, so state of your own must be tensors changed in place (``average.mul_(0.9)``). Gradients
    are where the step left them, ``parameter.grad``, and other tensors made in the step hold their values until the
    next call.

    Args:
        step: the function.
        warmup: calls before the capture, at least 1: kernels are compiled and state is made then.

    Random numbers are drawn anew in each replay, from where the process's sequence stands; what draws the same ones
    again, such as backward of a checkpoint or of an attention, gets those of its replay.

    Errors: GraphError where the step reads a value (``item()``, ``numpy()``, ``if tensor``), takes data from the host,
    seeds, draws from a generator of its own, has a result whose shape depends on values, or calls what the engine
    cannot note down, which it names: in the last call before the capture, at the place; ArgumentError for arguments or
    results that are no tensors.
    """
    return GraphedStep(step, warmup)


class GraphedStep:
    """What ``alpha.graph`` returns; calls are those of the step."""

    def __init__(self, step: Step, warmup: int = 2) -> None:
        if not callable(step):
            raise ArgumentError(f"[graph] expected a function, got {described(step)}")
        if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 1:
            raise ArgumentError(
                f"[graph] expected warmup >= 1, got {described(warmup)}: the last such call is a rehearsal"
            )
        self._step = step
        self._warmup = warmup
        self._recorders: dict[Engine, Recorder | None] = {}
        self._plans: dict[Hashable, _Plan] = {}

    def __call__(self, *inputs: Tensor) -> Any:
        engine = _engine_of(inputs)
        if engine not in self._recorders:
            self._recorders[engine] = engine.recorder()
        recorder = self._recorders[engine]
        if is_watched():  # within another step: a part of that one
            return self._step(*inputs)
        if recorder is None:
            return _each_tensor(_detached, self._step(*inputs))
        shapes = tuple([(x.shape, x.memory_order(), x.dtype) for x in inputs])
        settings = engine.precision, engine.checking, engine.threads, is_grad_enabled(), casts.THREAD.casts
        key = (engine, *settings, shapes)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans.setdefault(key, _Plan(self._step, engine, recorder))
        return plan.call(inputs, self._warmup)

    @property
    def captures(self) -> int:
        """Captures made so far, of all shapes."""
        return sum(plan.captures for plan in self._plans.values())

    def __repr__(self) -> str:
        return f"<alpha.graph of {getattr(self._step, '__qualname__', self._step)}, {self.captures} captures>"


class _Plan:
    """A step for inputs of the same shapes: the calls so far, its last rehearsal, its captures.

    A capture follows a call that ran the step as it is with all the same guards: what that made for good (an
    optimizer's state) would be made anew in every replay if the capture were the first to need it.
    """

    def __init__(self, step: Step, engine: Engine, recorder: Recorder) -> None:
        self.step, self.engine, self.recorder = step, engine, recorder
        self.calls = self.captures = 0
        self.keeps = True
        self.is_due = False  # whether the last call was a rehearsal of values that no capture is for
        self.rehearsal: Watch | None = None
        self.noted: Any = None  # by the recorder, of the rehearsal
        self.inputs: list[Tensor] = []
        self.recorded: list[_Recorded] = []

    def call(self, inputs: Sequence[Tensor], warmup: int) -> Any:
        self.calls += 1
        if self.calls < warmup:
            return _each_tensor(_detached, self.step(*inputs))
        conditions = self.rehearsal.conditions if self.rehearsal is not None else []
        try:
            return self.replay(inputs)
        finally:
            for condition in conditions:
                condition.forget()

    def replay(self, inputs: Sequence[Tensor]) -> Any:
        """Replays the step, after capturing it if need be; or rehearses it, where no capture fits."""
        values = self.values()
        fitting = [] if values is None else [one for one in self.recorded if one.fits(values)]
        if not self.agrees(values, bool(fitting)):
            return self.rehearse(inputs)
        if not self.inputs:
            with self.engine.lasting():
                self.inputs = [self.engine.empty_like(x) for x in inputs]
        for given, captured in zip(inputs, self.inputs, strict=True):
            self.engine.copy(given, captured)
            captured.storage.touch()
        for recorded in fitting:
            if recorded.launch():
                return recorded.results()
        if not fitting or self.is_due:
            self.is_due = False
            recorded = self.capture()
            if recorded.launch():
                return recorded.results()
        self.is_due = True  # values lead elsewhere than in all captures
        return self.rehearse(inputs)

    def values(self) -> list[Hashable] | None:
        """The values of the conditions that the rehearsal set; None where the step must run as it is."""
        found = []
        for condition in self.rehearsal.conditions if self.rehearsal is not None else ():
            value = condition.evaluate()
            if value is None:
                return None
            found.append(value)
        return found

    def agrees(self, values: list[Hashable] | None, is_captured: bool) -> bool:
        """Whether the call is a replay, or a capture of the step as it was rehearsed, for all who share the step."""
        then = self.rehearsal
        if then is None or values is None:
            return False
        is_ready = is_captured or (holds(then.guards) and values == [one.value for one in then.conditions])
        return then.conditions[0].agree(is_ready) if then.conditions else is_ready

    def rehearse(self, inputs: Sequence[Tensor]) -> Any:
        """Runs the step as it is, and refuses what no capture could hold."""
        with self.recorder.rehearse() as noted, watching(Watch(self.engine, keeps=self.keeps)) as watch:
            result = _each_tensor(_detached, self.step(*inputs))
        watch.leaves = dict.fromkeys(watch.leaves)  # their old gradients are of no more use
        self.rehearsal, self.noted = watch, noted
        return result

    def capture(self) -> _Recorded:
        """Captures the step, which then is as good as run on the host, and waits to be launched."""
        watch = Watch(self.engine, self.rehearsal, self.keeps)
        before: dict[Tensor, Tensor | None] = {}
        if self.rehearsal is not None:
            before = {leaf: leaf.grad for leaf in self.rehearsal.leaves}
        versions = [] if self.rehearsal is None else self.rehearsal.versions()
        state = random.get_state()
        try:
            with self.recorder.capture(self.noted) as recording, watching(watch):
                result = _each_tensor(_detached, self.step(*self.inputs))
        except BaseException:
            random.set_state(state)
            for leaf, grad in before.items():
                leaf.grad = grad
            raise
        self.captures += 1
        # A step that writes to its weights is captured anew, without what is made of them being kept.
        self.keeps = self.keeps and self.rehearsal is not None and versions == self.rehearsal.versions()
        leaves = [_Leaf(leaf, before.get(leaf, found), found) for leaf, found in watch.leaves.items()]
        recorded = _Recorded(self.engine, recording, result, leaves, watch)
        self.recorded = [recorded, *self.recorded[: _RECORDINGS - 1]]
        return recorded


class _Leaf:
    """A leaf that a captured step gives a gradient: where it lies, and the gradients before, on the way and after.

    Args:
        leaf: the tensor.
        before: its gradient when the step began.
        found: the gradient that the first new one was added to, None where the step or somebody before cleared it.
    """

    __slots__ = ("_after", "_found", "_had_gradient", "_storage", "leaf")

    def __init__(self, leaf: Tensor, before: Tensor | None, found: Tensor | None) -> None:
        self.leaf, self._after, self._storage = leaf, leaf.grad, leaf.storage
        self._had_gradient, self._found = before is not None, found

    def fits(self) -> bool:
        """Whether a replay does now what the step would do: adds to the same memory, or starts from none."""
        if self.leaf.storage is not self._storage:
            return False
        grad = self.leaf.grad
        if self._found is not None:
            return grad is not None and grad.storage is self._found.storage
        return grad is None or self._had_gradient

    def restore(self) -> None:
        """Puts the gradient where the step puts it."""
        self.leaf.grad = self._after


class _Recorded:
    """One capture with what belongs to it on the host."""

    def __init__(self, engine: Engine, recording: Recording, result: Any, leaves: list[_Leaf], watch: Watch) -> None:
        self.engine, self.recording, self.result, self.leaves = engine, recording, result, leaves
        self.guards, self.values = watch.guards, [condition.value for condition in watch.conditions]

    def fits(self, values: list[Hashable]) -> bool:
        if values != self.values or not holds(self.guards):
            return False
        for leaf in self.leaves:  # noqa: SIM110  # it is asked before each replay, and a generator costs more
            if not leaf.fits():
                return False
        return True

    def launch(self) -> bool:
        """Launches; False where values lead the step elsewhere."""
        before = random.sequence()
        try:
            if not self.recording.launch():
                return False
        finally:
            random.end_own_sequence(before)
        for leaf in self.leaves:
            leaf.restore()
        return True

    def results(self) -> Any:
        """Copies of the results: the next launch writes over the captured ones."""
        return _each_tensor(self._copied, self.result)

    def _copied(self, captured: Tensor) -> Tensor:
        return captured.clone() if captured.storage.engine is self.engine else captured


def _engine_of(inputs: Sequence[Any]) -> Engine:
    """The engine of a step's arguments; ArgumentError for what is no tensor, EngineError for several engines."""
    for value in inputs:
        if not isinstance(value, Tensor):
            raise ArgumentError(
                f"[graph] expected tensors as the step's arguments, got {type(value).__name__}: a replay knows no "
                "others; bind them with functools.partial, or graph a step for each"
            )
        if value.requires_grad:
            raise GraphError(
                "[graph] expected arguments outside the graph, got one that requires grad: .detach() it, or make it "
                "within the step"
            )
    if not inputs:
        return engines.default_engine()
    engine: Engine = inputs[0].engine
    engine.check_owner("graph", *inputs)
    return engine


def _each_tensor(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """A step's result with each tensor in it changed; ArgumentError for a part that is neither tensor nor None."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple | list):
        parts = [_each_tensor(change, part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {key: _each_tensor(change, part) for key, part in value.items()}
    if value is None:
        return None
    raise ArgumentError(
        f"[graph] expected a step that returns tensors, or tuples, lists and dicts of them, got "
        f"{type(value).__name__}: return the tensor, and read it outside the step"
    )


def _detached(value: Tensor) -> Tensor:
    return value.detach()
