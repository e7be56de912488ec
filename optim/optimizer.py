"""Optimizer: parameter groups, their state, and what every optimizer checks."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, ClassVar, Self

from alpha import steps, updates
from alpha.autograd import no_grad
from alpha.changes import Action, Changes, appending, at_once, clear_gradients, fill_with_zeros, putting, setting
from alpha.dtypes import is_float
from alpha.engine import Engine
from alpha.errors import AlphaError, ArgumentError, CheckpointError, GraphError, described
from alpha.functions.operands import listed
from alpha.tensor import Tensor

Group = dict[str, Any]
State = dict[str, Any]


_LARGEST = sys.float_info.max


class Optimizer:
    """Base of the optimizers.

    ``param_groups`` is a list of dicts: the tensors under ``params``, the group's options (``lr``, ...) beside them.
    ``state`` maps a parameter to what the optimizer remembers of it. ``steps`` counts the calls of ``step`` that were
    done, those before a checkpoint that was loaded too.

    Args:
        params: tensors that require a gradient, or dicts with ``params`` and the options in which a group differs.
        defaults: the options of the groups that do not name them.
    """

    state_tensors: ClassVar[tuple[str, ...]] = ()
    """Names of the state's entries that are tensors shaped as their parameter."""
    state_required: ClassVar[tuple[str, ...]] = ()
    """Names of the entries that a parameter's state always has."""
    switches: ClassVar[tuple[str, ...]] = ()
    """Names of the options that are True or False."""
    not_negative: ClassVar[tuple[str, ...]] = ("lr", "weight_decay")
    """Names of the options that are finite numbers from 0 on; an optimizer need not have them all."""

    def __init__(self, params: Iterable[Any], defaults: Group) -> None:
        self.defaults = defaults
        self.param_groups: list[Group] = []
        self.state: dict[Tensor, State] = {}
        self._changes = 0  # how often groups or state tensors became others
        self.steps = 0
        given: list[Any] = [params] if isinstance(params, Tensor | Mapping) else listed(self._name, "params", params)
        if not given:
            raise ArgumentError(f"[{self._name}] expected parameters, got none: pass module.parameters()")
        groups = given if isinstance(given[0], Mapping) else [{"params": given}]
        for group in groups:
            self.add_param_group(group)

    @property
    def _name(self) -> str:
        return type(self).__name__

    def add_param_group(self, group: Mapping[str, Any]) -> Self:
        """Adds a group: a dict with ``params`` and options; ArgumentError, and nothing changes, where it is wrong."""
        if not isinstance(group, Mapping) or "params" not in group:
            raise ArgumentError(
                f'[{self._name}] expected a parameter group {{"params": [...], ...}}, got {described(group)}'
            )
        unknown = sorted(set(group) - set(self.defaults) - {"params"})
        if unknown:
            raise ArgumentError(
                f"[{self._name}] expected options among {', '.join(self.defaults)}, got {', '.join(unknown)}"
            )
        params = group["params"]
        complete: Group = {
            "params": [params] if isinstance(params, Tensor) else list(params),
            **self.defaults,
            **{key: value for key, value in group.items() if key != "params"},
        }
        self._check_params(complete["params"])
        self.check_options(complete)
        at_once([appending(self.param_groups, complete), setting(self, "_changes", self._changes + 1)])
        return self

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

    def at_least(self, option: str, value: Any, least: float) -> None:
        """ArgumentError unless an option is a finite number that is large enough."""
        if not _is_number(value) or not least <= value <= _LARGEST:
            raise ArgumentError(f"[{self._name}] expected {option} >= {least}, got {described(value)}")

    def below_one(self, option: str, value: Any) -> None:
        """ArgumentError unless an option lies in [0, 1)."""
        if not _is_number(value) or not 0 <= value < 1:
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

    def step(self) -> Self:
        """Updates every parameter that has a gradient, in place, and counts ``steps`` on.

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
        return self

    def _count_step(self) -> None:
        self.steps += 1

    def _structure(self) -> Hashable:
        """What a captured step is good for: the same tensors, and the same kernels.

        Which kernels a rule needs rests on which numbers are 0, and on options that are no numbers. Where a subclass
        has an ``update`` of its own the numbers count too: replays repeat what it computed of them.
        """
        options = [{key: value for key, value in group.items() if key != "params"} for group in self.param_groups]
        if type(self).update is not Optimizer.update:
            return self._changes, options
        return self._changes, [{key: _decision(value) for key, value in group.items()} for group in options]

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
            state[key] = _zeros(param)
        return state[key]  # type: ignore[no-any-return]

    def prepared(self, plan: updates.Plan, param: Tensor, *keys: str, **numbers: Any) -> list[Tensor]:
        """Tensors of a parameter's state, of zeros where they are new. The plan enters those, and the numbers."""
        state = self.state.get(param)
        if state is not None:
            try:
                tensors = [state[key] for key in keys]
            except KeyError:
                pass
            else:
                plan.actions += [(dict.__setitem__, state, key, value) for key, value in numbers.items()]
                return tensors
        state = {} if state is None else state
        found = {key: state[key] if key in state else _zeros(param) for key in keys}
        entered = {key: tensor for key, tensor in found.items() if key not in state} | numbers
        if param in self.state:
            plan.actions += [putting(state, key, value) for key, value in entered.items()]
        else:
            plan.actions.append(putting(self.state, param, entered))
        return list(found.values())

    def rows(self, plan: updates.Plan, params: list[Tensor], *keys: str, **numbers: Any) -> list[updates.Row]:
        """For ``Engine.optimizer_step``: each parameter, its gradient, and its state's tensors as ``prepared``."""
        pairs = zip(params, gradients(params), strict=True)
        if not keys:
            return list(pairs)
        return [(p, gradient, *self.prepared(plan, p, *keys, **numbers)) for p, gradient in pairs]

    # -- state -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Options, state and ``steps``, parameters by their number in order of the groups; tensors are not copied."""
        numbers = {id(p): i for i, p in enumerate(self._all())}
        groups = [{**group, "params": [numbers[id(p)] for p in group["params"]]} for group in self.param_groups]
        state = {numbers[id(p)]: dict(values) for p, values in self.state.items()}
        return {"optimizer": self._name, "state": state, "param_groups": groups, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> Self:
        """Restores a state from ``state_dict`` (tensors or arrays), as copies; CheckpointError if it does not fit.

        An error or a KeyboardInterrupt finds all as before or all as after.
        """
        changes = Changes()
        self.stage_state(state, changes)
        changes.make()
        return self

    def stage_state(self, state: Mapping[str, Any], changes: Changes) -> None:
        """Checks a state and makes copies, and adds to the changes what ``load_state_dict`` does with them."""
        groups, entries = self._fit(state)
        params = self._all()
        adopted = {params[number]: self._adopt(params[number], values) for number, values in entries.items()}
        changes.set(self, "state", adopted)
        for group, loaded in zip(self.param_groups, groups, strict=True):
            for key, value in loaded.items():
                if key != "params":
                    changes.put(group, key, value)
        changes.set(self, "_changes", self._changes + 1)
        changes.set(self, "steps", state.get("steps", self.steps))

    def _all(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def _fit(self, state: Mapping[str, Any]) -> tuple[list[Group], dict[int, State]]:
        """The groups and the state of a state_dict, after checking that both fit this optimizer."""
        if not isinstance(state, Mapping) or not {"state", "param_groups"} <= set(state):
            raise self._misfit("a state_dict of state and param_groups", f"{type(state).__name__}")
        kind = state.get("optimizer", self._name)
        if kind != self._name:
            raise self._misfit(
                f"the state of {self._name}", f"that of {shown(kind) if not isinstance(kind, str) else kind}"
            )
        if not set(state) <= {"optimizer", "state", "param_groups", "steps"}:
            raise self._misfit("optimizer, state, param_groups and steps", shown(list(state)))
        if not is_count(state.get("steps", 0)):
            raise self._misfit("steps as a number of steps", shown(state["steps"]))
        order = self._fit_groups(state["param_groups"])
        if not isinstance(state["state"], Mapping):
            raise self._misfit("state by number of a parameter", f"{type(state['state']).__name__}")
        # Groups may number their parameters as they like; ours count on.
        entries: dict[int, State] = {}
        params = self._all()
        for number, values in state["state"].items():
            if type(number) is not int or number not in order or not isinstance(values, Mapping):
                raise self._misfit(
                    f"state by number of a parameter, of {sorted(order)}", f"{shown(number)}: {shown(values)}"
                )
            self._fit_entry(params[order[number]], values)
            entries[order[number]] = dict(values)
        return list(state["param_groups"]), entries

    def _fit_groups(self, groups: Any) -> dict[int, int]:
        """The place of each of the groups' parameters by its number."""
        expected_sizes = [len(group["params"]) for group in self.param_groups]
        if not isinstance(groups, list | tuple) or not all(
            isinstance(group, Mapping) and isinstance(group.get("params"), list | tuple) for group in groups
        ):
            raise self._misfit("param_groups as a list of dicts with params", shown(groups))
        sizes = [len(group["params"]) for group in groups]
        if sizes != expected_sizes:
            raise self._misfit(f"groups of {expected_sizes} parameters", f"{sizes}")
        for group in groups:
            self._fit_options(group)
        numbers = [number for group in groups for number in group["params"]]
        if not all(type(number) is int for number in numbers) or len(set(numbers)) < len(numbers):
            raise self._misfit("a number of its own for each parameter", shown(numbers))
        return {number: place for place, number in enumerate(numbers)}

    def _fit_options(self, group: Mapping[str, Any]) -> None:
        # A scheduler keeps initial_lr among the options.
        options = set(group) - {"params", "initial_lr"}
        if options != set(self.defaults):
            raise self._misfit(f"the options {sorted(self.defaults)}", f"{sorted(map(str, options))}")
        kinds = {**self.defaults, "initial_lr": 0.0}
        for key, value in group.items():
            if key != "params" and not _is_like(value, kinds[key]):
                raise self._misfit(f"{key} of the kind of {kinds[key]!r}", shown(value))
        try:
            self.check_options(dict(group))
        except AlphaError as error:
            raise self._misfit("options in range", f"{error}") from error

    def _fit_entry(self, param: Tensor, values: Mapping[Any, Any]) -> None:
        for key, value in values.items():
            if isinstance(key, str) and key in self.state_tensors:
                if tuple(getattr(value, "shape", ())) != param.shape or not hasattr(value, "dtype"):
                    raise self._misfit(f"{key} of shape {param.shape}", shown(getattr(value, "shape", value)))
                if not str(value.dtype).rpartition(".")[2].startswith("float"):
                    raise self._misfit(f"{key} of floats", f"{value.dtype}")
            elif not isinstance(key, str) or not (is_count(value) if key == "step" else _is_number(value)):
                raise self._misfit(
                    f"a state of {', '.join(self.state_tensors)} and numbers", f"{shown(key)}: {shown(value)}"
                )
        absent = [key for key in self.state_required if key not in values]
        if absent:
            raise self._misfit(f"a state with {', '.join(self.state_required)}", f"none for {', '.join(absent)}")

    def _adopt(self, param: Tensor, values: State) -> State:
        """A parameter's state from a state_dict's, tensors copied into the parameter's memory order and dtype."""
        out: State = {}
        for key, value in values.items():
            if key not in self.state_tensors:
                out[key] = value
                continue
            source = param.engine.from_numpy(value.numpy() if isinstance(value, Tensor) else value)
            out[key] = param.engine.empty_like(param)
            param.engine.copy(source, out[key])
        return out

    def _misfit(self, expected: str, got: str) -> CheckpointError:
        return CheckpointError(
            f"[{self._name}.load_state_dict] expected {expected}, got {got}: make the optimizer that was saved"
        )

    def __repr__(self) -> str:
        options = [", ".join(f"{k}={v}" for k, v in g.items() if k != "params") for g in self.param_groups]
        return f"{self._name}({'; '.join(options)})"


def gradients(params: Iterable[Tensor]) -> list[Tensor]:
    """The gradients of the parameters that have one."""
    return [p.grad for p in params if p.grad is not None]


def _zeros(param: Tensor) -> Tensor:
    """Zeros in a parameter's shape and memory order."""
    out = param.engine.empty_like(param)
    param.engine.fill(out, 0)
    return out


def _decision(value: Any) -> Hashable:
    """What a rule may decide on: of a number whether it is 0."""
    if isinstance(value, tuple | list):
        return tuple(map(_decision, value))
    decision: Hashable = value != 0 if _is_number(value) else value
    return decision


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    """Whether a value that was loaded can be a number of steps."""
    return type(value) is int and 0 <= value < 1 << 63


def _is_like(value: Any, default: Any) -> bool:
    """Whether a value that was loaded can be one of an option: of the kind of its default."""
    if isinstance(default, bool):
        return isinstance(value, bool)
    if _is_number(default):
        return is_finite(value)
    if isinstance(default, tuple):
        return isinstance(value, tuple | list) and len(value) == len(default) and all(map(is_finite, value))
    return True


def shown(value: Any) -> str:
    """A value that was loaded, for one line of an error."""
    return " ".join(repr(value)[:80].split())


def is_finite(value: Any) -> bool:
    """Whether a value is a number, and a finite one."""
    return _is_number(value) and abs(value) < 1e308
