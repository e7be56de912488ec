"""Optimizer: parameter groups, their state, and what every optimizer checks."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, ClassVar, Self

from alpha import graphs
from alpha.autograd import no_grad
from alpha.dtypes import is_float
from alpha.engine import Engine
from alpha.errors import AlphaError, ArgumentError, CheckpointError, GraphError, described
from alpha.tensor import Tensor
from optim.arguments import listed

Group = dict[str, Any]
State = dict[str, Any]


_LARGEST = sys.float_info.max


class Optimizer:
    """Base of the optimizers.

    ``param_groups`` is a list of dicts: the tensors under ``params``, the group's options (``lr``, ...) beside them.
    ``state`` maps a parameter to what the optimizer remembers of it.

    Args:
        params: tensors that require a gradient, or dicts with ``params`` and the options in which a group differs.
        defaults: the options of the groups that do not name them.
    """

    state_tensors: ClassVar[tuple[str, ...]] = ()
    """Names of the state's entries that are tensors shaped as their parameter."""

    def __init__(self, params: Iterable[Any], defaults: Group) -> None:
        self.defaults = defaults
        self.param_groups: list[Group] = []
        self.state: dict[Tensor, State] = {}
        self._changes = 0  # how often groups or state tensors became others
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
        self.param_groups.append(complete)
        self._changes += 1
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
        self.at_least("lr", options["lr"], 0)
        self.at_least("weight_decay", options.get("weight_decay", 0.0), 0)

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
        """Drops every parameter's gradient, or fills it with zeros."""
        for group in self.param_groups:
            for param in group["params"]:
                if set_to_none:
                    param.grad = None
                elif param.grad is not None:
                    param.grad.zero_()
        return self

    def step(self) -> Self:
        """Updates every parameter that has a gradient, in place."""
        graphs.guard(self._structure)
        with no_grad():
            for group in self.param_groups:
                params = [p for p in group["params"] if p.grad is not None]
                for engine in dict.fromkeys(p.engine for p in params):
                    self.update(engine, [p for p in params if p.engine is engine], group)
        return self

    def _structure(self) -> Hashable:
        """What a captured step is good for: the same tensors, and the same choice of kernels."""
        switches = ("momentum", "nesterov", "centered")
        return self._changes, tuple(bool(group.get(switch)) for group in self.param_groups for switch in switches)

    def update(self, engine: Engine, params: list[Tensor], options: Group) -> None:
        """One step of some parameters of one engine and one group; a subclass's part."""
        raise NotImplementedError(f"[{self._name}] expected a subclass with update, got none: write one")

    def entry(self, param: Tensor, key: str) -> Tensor:
        """A tensor of a parameter's state, made of zeros when first asked for."""
        state = self.state.setdefault(param, {})
        if key not in state:
            state[key] = param.engine.empty_like(param)
            param.engine.fill(state[key], 0)
        return state[key]  # type: ignore[no-any-return]

    # -- state -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Options and state, parameters by their number in order of the groups; tensors are not copied."""
        numbers = {id(p): i for i, p in enumerate(self._all())}
        groups = [{**group, "params": [numbers[id(p)] for p in group["params"]]} for group in self.param_groups]
        state = {numbers[id(p)]: dict(values) for p, values in self.state.items()}
        return {"optimizer": self._name, "state": state, "param_groups": groups}

    def load_state_dict(self, state: Mapping[str, Any]) -> Self:
        """Takes back what ``state_dict`` gave (tensors or arrays), as copies; CheckpointError where it does not fit."""
        groups, entries = self._fit(state)
        params = self._all()
        self.state = {params[number]: self._adopt(params[number], values) for number, values in entries.items()}
        for group, loaded in zip(self.param_groups, groups, strict=True):
            group.update({key: value for key, value in loaded.items() if key != "params"})
        self._changes += 1
        return self

    def _all(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def _fit(self, state: Mapping[str, Any]) -> tuple[list[Group], dict[int, State]]:
        """The groups and the state of a state_dict, after checking that both fit this optimizer."""
        if not isinstance(state, Mapping) or not {"state", "param_groups"} <= set(state):
            raise self._misfit("a state_dict of state and param_groups", f"{type(state).__name__}")
        kind = state.get("optimizer", self._name)
        if kind != self._name:
            raise self._misfit(f"the state of {self._name}", f"that of {kind}")
        groups, own = state["param_groups"], self.param_groups
        sizes, wanted = [len(g["params"]) for g in groups], [len(g["params"]) for g in own]
        if sizes != wanted:
            raise self._misfit(f"groups of {wanted} parameters", f"{sizes}")
        for group in groups:
            # A scheduler keeps initial_lr beside the options.
            options = set(group) - {"params", "initial_lr"}
            if options != set(self.defaults):
                raise self._misfit(f"the options {sorted(self.defaults)}", f"{sorted(options)}")
            try:
                self.check_options(group)
            except AlphaError as error:
                raise self._misfit("options in range", f"{error}") from error
        # Groups may number their parameters as they like; ours count on.
        order = [number for group in groups for number in group["params"]]
        entries = {order.index(number): dict(values) for number, values in state["state"].items() if number in order}
        params = self._all()
        for number, values in entries.items():
            self._fit_entry(params[number], values)
        return groups, entries

    def _fit_entry(self, param: Tensor, values: State) -> None:
        for key, value in values.items():
            if key in self.state_tensors:
                if tuple(getattr(value, "shape", ())) != param.shape:
                    raise self._misfit(f"{key} of shape {param.shape}", f"{getattr(value, 'shape', value)}")
            elif not _is_number(value):
                raise self._misfit(f"a state of {', '.join(self.state_tensors)} and numbers", f"{key}")

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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
