"""Sharded: an optimizer whose state is shared out among ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from alpha.arguments import flag
from alpha.changes import Changes
from alpha.distributed import owners
from alpha.distributed.tensors import gather
from alpha.distributed.world import World, current
from alpha.errors import ArgumentError, DistributedError, described
from alpha.optim.hooks import Hooked
from alpha.optim.optimizer import Optimizer
from alpha.tensor import Tensor, dense_strides


class Sharded(Optimizer):
    """An optimizer of which each rank keeps the state of some parameters only, and updates those.

    Parameters are shared out whole, so that a rank's state is at most 1 / n of all and the largest tensor's. After a
    step ranks hand each other the parameters that they have updated. The bits are those of the optimizer itself.
    Rajbhandari et al., "ZeRO: Memory optimizations toward training trillion parameter models", SC 2020: stage 1, and
    with ``gradients`` stage 2.

    All ranks make it, step, and call ``state_dict`` together; the state is whole on all ranks, and is the optimizer's
    own, which loads on any number of ranks and without this class.

    Args:
        optimizer: one whose step updates each parameter by itself, which has not stepped yet.
        gradients: let each rank keep the gradients of its own parameters alone. They must be those of a
            ``DataParallel``; the others' ``.grad`` stays None, which ``clip_grad_norm_`` knows of.

    Attributes:
        optimizer: the one given.
    """

    def __init__(self, optimizer: Optimizer, gradients: bool = False) -> None:
        world = current("Sharded")
        if not isinstance(optimizer, Optimizer) or isinstance(optimizer, Sharded):
            raise ArgumentError(f"[Sharded] expected an optimizer, got {described(optimizer)}")
        if type(optimizer).step is not Optimizer.step:
            raise ArgumentError(
                f"[Sharded] expected an optimizer that updates each parameter by itself, got "
                f"{type(optimizer).__name__}, whose step looks at all: use it as it is"
            )
        if optimizer.state:
            raise ArgumentError(
                "[Sharded] expected an optimizer without state, got one that has stepped: wrap it when it is made, and "
                "load the state into the wrapper"
            )
        Hooked.__init__(self)
        self.optimizer, self._world = optimizer, world
        self._shares_gradients = flag("Sharded", "gradients", gradients)
        self._ranks: dict[Tensor, int] = {}
        self._known = owners.Owners(world, self._ranks)
        self._share_out()

    # -- what is the optimizer's ---------------------------------------------------------------------------------------

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """The optimizer's."""
        return self.optimizer.defaults

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The optimizer's."""
        return self.optimizer.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The optimizer's: of this rank's parameters."""
        return self.optimizer.state

    @property
    def steps(self) -> int:
        """The optimizer's."""
        return self.optimizer.steps

    @steps.setter
    def steps(self, value: int) -> None:
        self.optimizer.steps = value

    @property
    def state_of(self) -> str:
        """The class whose state this object saves and loads."""
        return type(self.optimizer).__name__

    @property
    def _name(self) -> str:
        return self.optimizer._name

    def check_options(self, options: dict[str, Any]) -> None:
        self.optimizer.check_options(options)

    def add_param_group(self, param_group: Mapping[str, Any]) -> Self:
        """Adds a group to the optimizer, and shares its parameters out."""
        self.optimizer.add_param_group(param_group)
        self._share_out()
        return self

    # -- who has what --------------------------------------------------------------------------------------------------

    def _share_out(self) -> None:
        """Gives parameters that have no owner yet, the largest first, to the rank that has least."""
        loads = [0] * self._world.size
        params = self._all()
        for param in params:
            if param in self._ranks:
                loads[self._ranks[param]] += param.nbytes
        for param in sorted((p for p in params if p not in self._ranks), key=lambda p: -p.nbytes):
            rank = loads.index(min(loads))
            self._ranks[param] = rank
            loads[rank] += param.nbytes
        if self._shares_gradients and self._world.size > 1:
            self._share_gradients(params)

    def _share_gradients(self, params: list[Tensor]) -> None:
        from alpha.distributed.data_parallel import wrapper_of

        wrappers = {id(wrapper): wrapper for wrapper in map(wrapper_of, params)}
        wrapper = next(iter(wrappers.values()))
        if len(wrappers) > 1 or wrapper is None or {id(p) for p in wrapper.trained} != {id(p) for p in params}:
            raise DistributedError(
                "[Sharded] expected the parameters of one DataParallel, all of them, for gradients=True, got others: "
                "make the optimizer of par.parameters()"
            )
        wrapper.give_to(self._ranks)
        owners.register(self._known)

    def _is_ours(self, param: Tensor) -> bool:
        return self._ranks[param] == self._world.rank

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates this rank's parameters, and takes the others from their ranks; all ranks call it together."""
        result: Any = self if closure is None else self.evaluated(closure)
        others = [(p, p.grad) for p in self._all() if not self._is_ours(p) and p.grad is not None]
        try:
            for param, _ in others:
                param.grad = None
            self.optimizer.step()
        finally:
            for param, gradient in others:
                param.grad = gradient
        self._hand_round()
        return result

    def _hand_round(self) -> None:
        if self._world.size == 1:
            return
        kinds: dict[tuple[Any, Any], list[Tensor]] = {}
        for param in sorted(self._all(), key=lambda p: self._ranks[p]):  # stable: in the same order on all ranks
            kinds.setdefault((param.engine, param.dtype), []).append(param)
        for params in kinds.values():
            self._hand_round_some(params)

    def _hand_round_some(self, params: list[Tensor]) -> None:
        """Hands round parameters of one engine and dtype, those of each rank together."""
        engine, lengths = params[0].engine, [0] * (self._world.size + 1)
        for param in params:
            lengths[self._ranks[param] + 1] += param.numel()
        bounds = np.cumsum(lengths).tolist()
        flat, start = engine.empty((bounds[-1],), params[0].dtype), 0
        places = []
        for param in params:
            places.append(flat.strided(start, param.shape, dense_strides(param.shape, param.memory_order())))
            start += param.numel()
            if self._is_ours(param):
                engine.copy(param.detach(), places[-1])
        gather(self._world, flat, bounds, "weights")
        for param, values in zip(params, places, strict=True):
            if not self._is_ours(param):
                engine.copy(values, param.detach())
                param.storage.touch()

    # -- state ---------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's whole state, gathered from all ranks: all call it together."""
        made = self.optimizer.state_dict()
        if self._world.size > 1:
            made["state"] = _gathered(self._world, made["state"])
        found: dict[str, Any] = self._replaced(self._state_dict_post_hooks, made)
        return found

    def stage_state(self, state: Mapping[str, Any], changes: Changes) -> None:
        """Checks a whole state, and adds to the changes what loading this rank's part of it does."""
        self.optimizer.stage_state(state, Changes())  # whether all of it fits
        kept = {number for number, param in enumerate(self._all()) if self._is_ours(param)}
        numbers = [number for group in state["param_groups"] for number in group["params"]]
        ours = {number for place, number in enumerate(numbers) if place in kept}
        part = {number: values for number, values in state["state"].items() if number in ours}
        self.optimizer.stage_state({**state, "state": part}, changes)

    def __repr__(self) -> str:
        return f"Sharded({self.optimizer!r})"


def _gathered(world: World, state: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The state of all ranks' parameters, tensors as arrays on the host."""
    from alpha.conversion import tensor

    found: dict[int, dict[str, Any]] = {}
    for rank in range(world.size):
        listed = [
            [number, key, [list(value.shape), str(value.dtype)] if isinstance(value, Tensor) else value]
            for number, values in state.items()
            for key, value in values.items()
        ]
        described_there = world.shared(listed if rank == world.rank else None, rank, "save")
        for number, key, value in described_there:
            if not isinstance(value, list):
                found.setdefault(number, {})[key] = value
                continue
            shape, dtype = tuple(value[0]), np.dtype(value[1])
            array = np.empty(shape, dtype)
            if rank == world.rank:
                np.copyto(array, np.asarray(state[number][key].detach()))
            world.broadcast(array.reshape(-1), rank, "save").finish()
            found.setdefault(number, {})[key] = tensor(array, engine="cpu")
    return dict(sorted(found.items()))
