"""An optimizer's state as a dict, and the checks by which such a dict is taken in again."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from alpha.changes import Changes
from alpha.errors import AlphaError, CheckpointError
from alpha.optim.arguments import is_count, is_finite, is_number, plain, shown
from alpha.optim.hooks import Hooked
from alpha.tensor import Tensor

Group = dict[str, Any]
State = dict[str, Any]

OF_SCHEDULERS = frozenset(["initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum", "swa_lr"])
"""Options that a scheduler, ours or PyTorch's, adds to a group."""


class Stateful(Hooked):
    """Base of ``Optimizer``: ``state_dict`` and ``load_state_dict``."""

    state_tensors: ClassVar[tuple[str, ...]] = ()
    """Names of the state's entries that are tensors, of the shape that ``state_shape`` says: the parameter's."""
    state_required: ClassVar[tuple[str, ...]] = ()
    """Names of the entries that a parameter's state always has."""
    later_options: ClassVar[dict[str, Any]] = {}
    """Options that a saved state may lack, and the values that they have then."""

    defaults: Group
    param_groups: list[Group]
    state: defaultdict[Tensor, State]
    steps: int
    _changes: int

    def check_options(self, options: Group) -> None:
        """ArgumentError unless a group's options are in range."""
        raise NotImplementedError

    @property
    def _name(self) -> str:
        return type(self).__name__

    def state_shape(self, param: Tensor, key: str) -> tuple[int, ...]:
        """The shape of a tensor of a parameter's state."""
        return param.shape

    def state_dict(self) -> dict[str, Any]:
        """Options, state and ``steps``, parameters by their number in order of the groups; tensors are not copied."""
        for hook in tuple(self._state_dict_pre_hooks.values()):
            hook(self)
        numbers = {id(p): i for i, p in enumerate(self._all())}
        groups = [{**group, "params": [numbers[id(p)] for p in group["params"]]} for group in self.param_groups]
        state = {numbers[id(p)]: dict(values) for p, values in self.state.items()}
        made = {"optimizer": self._name, "state": state, "param_groups": groups, "steps": self.steps}
        found: dict[str, Any] = self._replaced(self._state_dict_post_hooks, made)
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Self:
        """Restores a state from ``state_dict`` (tensors or arrays), as copies; CheckpointError if it does not fit.

        An error or a KeyboardInterrupt finds all as before or all as after. PyTorch's own state fits too.
        """
        changes = Changes()
        self.stage_state(state_dict, changes)
        changes.make()
        for hook in tuple(self._load_post_hooks.values()):
            hook(self)
        return self

    def stage_state(self, state: Mapping[str, Any], changes: Changes) -> None:
        """Checks a state and makes copies, and adds to the changes what ``load_state_dict`` does with them."""
        if self._load_pre_hooks and isinstance(state, Mapping):
            state = self._replaced(self._load_pre_hooks, dict(state))
        groups, entries = self._fit(state)
        params = self._all()
        adopted = {params[number]: self._adopt(params[number], values) for number, values in entries.items()}
        changes.set(self, "state", defaultdict(dict, adopted))
        for group, loaded in zip(self.param_groups, groups, strict=True):
            for key, value in {**self.later_options, **loaded}.items():
                if key != "params":
                    changes.put(group, key, _option(group.get(key), value))
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
        for group, ours in zip(groups, self.param_groups, strict=True):
            self._fit_options(group, ours)
        numbers = [number for group in groups for number in group["params"]]
        if not all(type(number) is int for number in numbers) or len(set(numbers)) < len(numbers):
            raise self._misfit("a number of its own for each parameter", shown(numbers))
        return {number: place for place, number in enumerate(numbers)}

    def _fit_options(self, group: Mapping[str, Any], ours: Group) -> None:
        loaded = {**self.later_options, **group}
        known = set(self.defaults) | set(ours) | OF_SCHEDULERS | {"params", "param_names"}
        if not set(self.defaults) <= set(loaded) <= known:
            raise self._misfit(f"the options {sorted(self.defaults)}", f"{sorted(map(str, set(group) - {'params'}))}")
        kinds = {**dict.fromkeys(OF_SCHEDULERS, 0.0), **ours, **self.defaults}
        for key, value in loaded.items():
            if key not in ("params", "param_names") and not _is_like(value, kinds[key]):
                raise self._misfit(f"{key} of the kind of {kinds[key]!r}", shown(value))
        names = group.get("param_names", [])
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise self._misfit("param_names as a list of names", shown(names))
        try:
            self.check_options({**ours, **{key: plain(value) for key, value in loaded.items()}})
        except AlphaError as error:
            raise self._misfit("options in range", f"{error}") from error

    def _fit_entry(self, param: Tensor, values: Mapping[Any, Any]) -> None:
        if self._is_state_open():
            return
        for key, value in values.items():
            if isinstance(key, str) and key in self.state_tensors:
                wanted = self.state_shape(param, key)
                if tuple(getattr(value, "shape", ())) != wanted or not hasattr(value, "dtype"):
                    raise self._misfit(f"{key} of shape {wanted}", shown(getattr(value, "shape", value)))
                if not str(value.dtype).rpartition(".")[2].startswith("float"):
                    raise self._misfit(f"{key} of floats", f"{value.dtype}")
            elif not isinstance(key, str) or not (is_count(_step(value)) if key == "step" else is_number(plain(value))):
                raise self._misfit(
                    f"a state of {', '.join(self.state_tensors)} and numbers", f"{shown(key)}: {shown(value)}"
                )
        absent = [key for key in self.state_required if key not in values]
        if absent:
            raise self._misfit(f"a state with {', '.join(self.state_required)}", f"none for {', '.join(absent)}")

    def _adopt(self, param: Tensor, values: State) -> State:
        """A parameter's state from a state_dict's, tensors copied into the parameter's memory order and dtype."""
        if self._is_state_open():
            return {key: _copied(param, value) for key, value in values.items()}
        out: State = {}
        for key, value in values.items():
            if key not in self.state_tensors:
                out[key] = _step(value) if key == "step" else plain(value)
                continue
            source = param.engine.from_numpy(_array(value))
            is_like = self.state_shape(param, key) == param.shape
            with param.engine.lasting():
                out[key] = param.engine.empty_like(param) if is_like else param.engine.empty(source.shape, param.dtype)
            param.engine.copy(source, out[key])
        return out

    def _is_state_open(self) -> bool:
        """Whether the state may hold anything: that of a step of one's own, which tells of no ``state_tensors``."""
        return self._steps_itself() and not self.state_tensors

    def _steps_itself(self) -> bool:
        """Whether a subclass has a ``step`` of its own."""
        raise NotImplementedError

    def _misfit(self, expected: str, got: str) -> CheckpointError:
        return CheckpointError(
            f"[{self._name}.load_state_dict] expected {expected}, got {got}: make the optimizer that was saved"
        )


def _step(value: Any) -> Any:
    """A number of steps; PyTorch's is a float in a tensor."""
    found = plain(value)
    return int(found) if isinstance(found, float) and found.is_integer() else found


def _option(ours: Any, value: Any) -> Any:
    """A loaded option as the group is to have it: a number in a tensor where ours is one in a tensor."""
    if isinstance(ours, Tensor):
        return ours.engine.from_numpy(np.full(ours.shape, plain(value), ours.dtype))
    if isinstance(value, list) and isinstance(ours, tuple):
        return tuple(value)
    return plain(value)


def _copied(param: Tensor, value: Any) -> Any:
    """A copy of an entry of an open state; tensors of floats get the parameter's dtype."""
    if isinstance(value, dict):
        return {key: _copied(param, one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_copied(param, one) for one in value])
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        array = _array(value)
        return param.engine.from_numpy(array.astype(param.dtype if array.dtype.kind == "f" else array.dtype))
    return copy.deepcopy(value)


def _array(value: Any) -> np.ndarray[Any, Any]:
    """The values of a tensor, ours or PyTorch's, or of an array."""
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def _is_like(value: Any, default: Any) -> bool:
    """Whether a value that was loaded can be one of an option: of the kind of its default."""
    if isinstance(default, bool):
        return isinstance(value, bool)
    if is_number(plain(default)):
        return is_finite(plain(value))
    if isinstance(default, tuple):
        return isinstance(value, tuple | list) and len(value) == len(default) and all(map(_is_like, value, default))
    return True
