"""Optimizer: parameter groups, their state, and what every optimizer checks."""

from __future__ import annotations

import operator
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from difflib import get_close_matches
from functools import wraps
from typing import Any, ClassVar, Self, TypeVar, overload

from alpha import steps, updates
from alpha.arguments import listed
from alpha.autograd import enable_grad, no_grad
from alpha.changes import Action, appending, at_once, clear_gradients, fill_with_zeros, putting, setting
from alpha.dtypes import is_float
from alpha.engine import Engine
from alpha.errors import ArgumentError, GraphError, described
from alpha.optim.arguments import is_number, is_scalar, plain
from alpha.optim.hooks import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from alpha.optim.state import OF_SCHEDULERS, Group, State, Stateful
from alpha.tensor import Tensor

__all__ = [
    "Optimizer",
    "gradients",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
]

_LARGEST = sys.float_info.max
IN_TENSORS = ("lr", "weight_decay")
"""Options that may be a tensor of one number, which is read in each step."""

Loss = TypeVar("Loss")


class Optimizer(Stateful):
    """Base of the optimizers.

    ``param_groups`` is a list of dicts: the tensors under ``params``, the group's options (``lr``, ...) beside them.
    ``state`` maps a parameter to what the optimizer remembers of it. ``steps`` counts the calls of ``step`` that were
    done, those before a checkpoint that was loaded too.

    The options ``foreach`` and ``fused`` of many optimizers choose between PyTorch's implementations. Here there is
    one, which updates all parameters in one pass, and the options have no effect. ``capturable`` and ``differentiable``
    must be False: ``alpha.graph`` captures a step without a switch, and a step is never differentiated.

    Args:
        params: tensors that require a gradient, pairs of a name and such a tensor (``named_parameters()``), or dicts
            with ``params`` and the options in which a group differs. A group may have other entries, which stay there.
        defaults: the options of the groups that do not name them.
    """

    switches: ClassVar[tuple[str, ...]] = ()
    """Names of the options that are True or False."""
    not_negative: ClassVar[tuple[str, ...]] = ("lr", "weight_decay")
    """Names of the options that are finite numbers from 0 on; an optimizer need not have them all."""
    unit_pairs: ClassVar[tuple[str, ...]] = ()
    """Names of the options that are pairs of numbers in [0, 1)."""

    def __init__(self, params: Iterable[Any], defaults: Group) -> None:
        super().__init__()
        self.defaults = defaults
        self.param_groups: list[Group] = []
        self.state: defaultdict[Tensor, State] = defaultdict(dict)
        self._decided: tuple[int, list[Any], Any] = (-1, [], None)  # the latest options and what they decide
        self._changes = 0  # how often groups or state tensors became others
        self.steps = 0
        given: list[Any] = [params] if isinstance(params, Tensor | Mapping) else listed(self._name, "params", params)
        if not given:
            raise ArgumentError(f"[{self._name}] expected parameters, got none: pass module.parameters()")
        groups = given if isinstance(given[0], Mapping) else [{"params": given}]
        for group in groups:
            self.add_param_group(group)

    def __init_subclass__(cls, **options: Any) -> None:
        """A ``step`` of one's own is counted, and calls the hooks, as the step of this class does."""
        super().__init_subclass__(**options)
        if "step" in vars(cls):
            cls.step = _counted(vars(cls)["step"])  # type: ignore[method-assign]

    def add_param_group(self, param_group: Mapping[str, Any]) -> Self:
        """Adds a group: a dict with ``params`` and options; ArgumentError, and nothing changes, where it is wrong."""
        if not isinstance(param_group, Mapping) or "params" not in param_group:
            raise ArgumentError(
                f'[{self._name}] expected a parameter group {{"params": [...], ...}}, got {described(param_group)}'
            )
        for key in set(param_group) - set(self.defaults) - OF_SCHEDULERS - {"params"}:
            meant = get_close_matches(str(key), [*self.defaults, "params"], 1, 0.8)
            if meant:
                raise ArgumentError(
                    f"[{self._name}] expected options among {', '.join(self.defaults)}, got {key}: write {meant[0]}, "
                    "or give what is no option another name"
                )
        params, names = self._params_and_names(param_group["params"])
        complete: Group = {"params": params, **self.defaults, **{k: v for k, v in param_group.items() if k != "params"}}
        if names:
            complete["param_names"] = names
        self._check_params(params)
        if self.param_groups and ("param_names" in self.param_groups[0]) != ("param_names" in complete):
            raise ArgumentError(f"[{self._name}] expected groups that all have names or all have none, got both")
        self.check_options(complete)
        at_once([appending(self.param_groups, complete), setting(self, "_changes", self._changes + 1)])
        return self

    def _params_and_names(self, params: Any) -> tuple[list[Any], list[str]]:
        """A group's parameters, and their names where it consists of pairs of both."""
        given = [params] if isinstance(params, Tensor) else listed(self._name, "params", params)
        pairs = [entry for entry in given if isinstance(entry, tuple) and len(entry) == 2]
        if not pairs:
            return given, []
        if len(pairs) != len(given) or not all(isinstance(name, str) for name, _ in pairs):
            raise ArgumentError(
                f"[{self._name}] expected a name for each parameter or for none, got {len(pairs)} pairs among "
                f"{len(given)} parameters: pass named_parameters()"
            )
        return [param for _, param in pairs], [name for name, _ in pairs]

    def _check_params(self, params: list[Any]) -> None:
        seen = {id(p) for group in self.param_groups for p in group["params"]}
        for param in params:
            if not isinstance(param, Tensor) or not is_float(param.dtype):
                kind = param.dtype if isinstance(param, Tensor) else type(param).__name__
                raise ArgumentError(f"[{self._name}] expected float tensors as parameters, got {kind}")
            if not param.is_leaf:
                raise GraphError(f"[{self._name}] expected leaf tensors, got a function's result of {param.shape}")
            if id(param) in seen:
                raise ArgumentError(
                    f"[{self._name}] expected each parameter once, got one of shape {param.shape} twice: remove it "
                    "from one of the groups"
                )
            seen.add(id(param))

    def check_options(self, options: Group) -> None:
        """ArgumentError unless a group's options are in range."""
        for option in self.not_negative:
            self.at_least(option, options.get(option, 0.0), 0)
        for option in self.switches:
            self.switch(option, options[option])
        for option in self.unit_pairs:
            pair = options[option]
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise ArgumentError(f"[{self._name}] expected {option} as a pair, got {described(pair)}")
            for one in pair:
                self.below_one(option, one)
        for option in ("foreach", "fused"):
            if options.get(option) is not None:
                self.switch(option, options[option])
        for option in ("capturable", "differentiable"):
            if options.get(option, False) is not False:
                raise ArgumentError(
                    f"[{self._name}] expected {option}=False, got {described(options[option])}: alpha.graph captures "
                    "any step, and none is differentiated"
                )

    def at_least(self, option: str, value: Any, least: float) -> None:
        """ArgumentError unless an option is a finite number that is large enough."""
        found = plain(value) if isinstance(value, Tensor) and option in IN_TENSORS else value
        if not is_number(found) or not least <= found <= _LARGEST:
            raise ArgumentError(f"[{self._name}] expected {option} >= {least}, got {described(value)}")

    def in_range(self, option: str, value: Any, least: float, most: float) -> None:
        """ArgumentError unless an option is a number within bounds."""
        if not is_number(value) or not least <= value <= most:
            raise ArgumentError(f"[{self._name}] expected {option} in [{least}, {most}], got {described(value)}")

    def below_one(self, option: str, value: Any) -> None:
        """ArgumentError unless an option lies in [0, 1)."""
        if not is_number(value) or not 0 <= value < 1:
            raise ArgumentError(f"[{self._name}] expected {option} in [0, 1), got {described(value)}")

    def switch(self, option: str, value: Any) -> None:
        """ArgumentError unless an option is True or False."""
        if not isinstance(value, bool):
            raise ArgumentError(f"[{self._name}] expected {option} as True or False, got {described(value)}")

    # -- working -----------------------------------------------------------------------------------------------------

    def zero_grad(self, set_to_none: bool = True) -> Self:
        """Drops every parameter's gradient, or fills it with zeros: of all, or if interrupted of none."""
        if set_to_none:
            clear_gradients(self._all())
        else:
            fill_with_zeros(gradients(self._all()))
        return self

    @overload
    def step(self, closure: None = None) -> Self: ...

    @overload
    def step(self, closure: Callable[[], Loss]) -> Loss: ...

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient, in place, and counts ``steps`` on; returns the optimizer.

        A ``closure`` is called first, with gradients enabled: it computes the loss and its gradients, and what it
        returns is returned.

        All is prepared before anything is updated. So where an error or a KeyboardInterrupt leaves it, parameters,
        state and ``steps`` are either all as before or all as after: an interrupt that comes while the update runs is
        raised after its end. A loop that goes on after Ctrl-C sees by ``steps`` whether to repeat the step::

            before = optimizer.steps
            try:
                train_on(batch)
            except KeyboardInterrupt:
                repeat = optimizer.steps == before

        (An optimizer that overrides ``update`` itself is as interruptible as that is.)
        """
        if type(self).step is not Optimizer.step or not self._has_step_hooks:
            return self._step(closure)
        args, kwargs = self._before_step((self,) if closure is None else (self, closure), {})
        result = type(self)._step(*args, **kwargs)
        self._after_step(args, kwargs)
        return result

    def _step(self, closure: Callable[[], Any] | None = None) -> Any:
        """A step without hooks."""
        result: Any = self
        if closure is not None:
            result = self.evaluated(closure)
        steps.guard(self._structure)
        counted: list[Action] = [setting(self, "steps", self.steps + 1)]
        plan = updates.Plan()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            engines = dict.fromkeys([p.storage.engine for p in params])
            for engine in engines:
                chosen = params if len(engines) == 1 else [p for p in params if p.storage.engine is engine]
                if type(self).update is Optimizer.update:
                    self.prepare(plan, engine, chosen, group)
                else:
                    with no_grad():
                        self.update(engine, chosen, group)
        watched = steps.is_watched()
        plan.actions += [] if watched else counted
        plan.make()
        if watched:  # counted again by each replay
            steps.run_now_and_on_replay(self._count_step)
        return result

    def evaluated(self, closure: Any) -> Any:
        """What a closure returns, called with gradients enabled; ArgumentError unless it can be called."""
        if not callable(closure):
            raise ArgumentError(
                f"[{self._name}.step] expected a function that computes the loss and its gradients, got "
                f"{described(closure)}"
            )
        with enable_grad():
            return closure()

    def _steps_itself(self) -> bool:
        return type(self).step is not Optimizer.step or type(self).update is not Optimizer.update

    def _count_step(self) -> None:
        self.steps += 1

    def _structure(self) -> Hashable:
        """What a captured step is good for: the same tensors, and the same kernels.

        Which kernels a rule needs rests on which numbers are 0, and on options that are no numbers. Where a subclass
        has an ``update`` of its own the numbers count too: replays repeat what it computed of them.
        """
        if type(self).update is not Optimizer.update:
            return self._changes, self._options()
        given = [value for group in self.param_groups for key, value in group.items() if key != "params"]
        changes, before, decisions = self._decided
        if changes != self._changes or len(before) != len(given) or not all(map(operator.is_, before, given)):
            decisions = [{key: _decision(value) for key, value in group.items()} for group in self._options()]
            if all(type(value) in _UNCHANGING for value in given):
                self._decided = self._changes, given, decisions
        return self._changes, decisions

    def _options(self) -> list[Group]:
        """The groups without their parameters."""
        return [{key: value for key, value in group.items() if key != "params"} for group in self.param_groups]

    def update(self, engine: Engine, params: list[Tensor], options: Group) -> None:
        """One step of some parameters of one engine and one group; subclasses override this."""
        plan = updates.Plan()
        self.prepare(plan, engine, params, options)
        plan.make()

    def prepare(self, plan: updates.Plan, engine: Engine, params: list[Tensor], options: Group) -> None:
        """Adds to a plan what ``update`` would do, and changes nothing yet."""
        raise NotImplementedError(f"[{self._name}] expected a subclass with update, got none: write one")

    def entry(self, param: Tensor, key: str) -> Tensor:
        """A tensor of a parameter's state, made of zeros when first asked for."""
        state = self.state.setdefault(param, {})
        if key not in state:
            state[key] = self._fresh(param, key)
        return state[key]  # type: ignore[no-any-return]

    def prepared(self, plan: updates.Plan, param: Tensor, *keys: str, **numbers: Any) -> list[Tensor]:
        """Tensors of a parameter's state, of zeros where they are new. The plan enters those, and the numbers."""
        state = self.state.get(param, _NOTHING)
        found = {key: state[key] if key in state else self._fresh(param, key) for key in keys}
        entered = {key: tensor for key, tensor in found.items() if key not in state} | numbers
        if param in self.state:
            plan.actions += [putting(state, key, value) for key, value in entered.items()]
        else:
            plan.actions.append(putting(self.state, param, entered))
        return list(found.values())

    def _fresh(self, param: Tensor, key: str) -> Tensor:
        """Zeros in a state tensor's shape, and in the parameter's memory order where that is its shape too."""
        shape = self.state_shape(param, key)
        with param.engine.lasting():
            out = param.engine.empty_like(param) if shape == param.shape else param.engine.empty(shape, param.dtype)
        param.engine.fill(out, 0)
        return out

    def rows(self, plan: updates.Plan, params: list[Tensor], *keys: str, **numbers: Any) -> list[updates.Row]:
        """For ``Engine.optimizer_step``: each parameter, its gradient, and its state's tensors as ``prepared``."""
        pairs = zip(params, gradients(params), strict=True)
        if not keys:
            return list(pairs)
        rows: list[updates.Row] = []
        entries = list(numbers.items())
        for p, gradient in pairs:
            state = self.state.get(p, _NOTHING)
            try:
                rows.append((p, gradient, *map(state.__getitem__, keys)))  # faster than ``prepared``
            except KeyError:  # not all of it is there yet
                rows.append((p, gradient, *self.prepared(plan, p, *keys, **numbers)))
            else:
                plan.actions += [(dict.__setitem__, state, key, value) for key, value in entries]
        return rows

    def __repr__(self) -> str:
        options = [", ".join(f"{k}={v}" for k, v in g.items() if k != "params") for g in self.param_groups]
        return f"{self._name}({'; '.join(options)})"


def gradients(params: Iterable[Tensor]) -> list[Tensor]:
    """The gradients of the parameters that have one."""
    return [p.grad for p in params if p.grad is not None]


_NOTHING: State = {}
"""The state of a parameter that has none."""

_UNCHANGING = (int, float, bool, str, tuple, type(None))
"""Types of options that stay what they are."""


def _decision(value: Any) -> Hashable:
    """What a rule may decide on: of a number whether it is 0."""
    if isinstance(value, tuple | list):
        return tuple(map(_decision, value))
    if is_number(value):
        return bool(value != 0)
    return True if is_scalar(value) else value


def _counted(step: Callable[..., Any]) -> Callable[..., Any]:
    """A subclass's step, which also counts ``steps`` and calls the hooks, where it is the step of the whole object."""

    @wraps(step)
    def counted(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if type(self).step is not counted:
            return step(self, *args, **kwargs)
        before = self.steps
        args, kwargs = self._before_step((self, *args), kwargs)
        result = step(*args, **kwargs)
        if self.steps == before:
            self.steps += 1
        self._after_step(args, kwargs)
        return result

    return counted
