"""RuleOptimizer: an optimizer whose step is one pass of an update rule over each parameter."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

from alpha.changes import at_once, putting
from alpha.engine import Engine
from alpha.optim.arguments import plain
from alpha.optim.optimizer import IN_TENSORS, Optimizer
from alpha.optim.state import Group, State
from alpha.tensor import Tensor
from alpha.update_rules import UpdateRule
from alpha.updates import Plan


class RuleOptimizer(Optimizer):
    """Base of the optimizers whose state, beside tensors, counts a parameter's steps, and perhaps more numbers.

    All parameters of a group whose numbers are equal are updated by one call of the engine.
    """

    @abstractmethod
    def rule(self, options: Group, numbers: State) -> UpdateRule:
        """The next step's rule, from a group's options and a parameter's numbers before the step."""

    @abstractmethod
    def tensors(self, options: Group) -> Sequence[str]:
        """Names of the state's tensors, in the order of the rule's rows."""

    def first_numbers(self, options: Group) -> State:
        """The numbers of a parameter that has not been updated yet."""
        return {"step": 0}

    def next_numbers(self, options: Group, numbers: State) -> State:
        """The numbers after a step."""
        return {"step": numbers["step"] + 1}

    def prepare(self, plan: Plan, engine: Engine, params: list[Tensor], options: Group) -> None:
        current = plain_options(options)
        # Parameters that had no gradient at times are behind in their numbers.
        alike: dict[tuple[Any, ...], list[Tensor]] = {}
        first = self.first_numbers(current)
        none = tuple(first.values())
        for param in params:
            state = self.state.get(param)
            key = tuple(map(state.get, first, none)) if state else none
            alike.setdefault(key, []).append(param)
        for values, chosen in alike.items():
            numbers = dict(zip(first, values, strict=True))
            rows = self.rows(plan, chosen, *self.tensors(current), **self.next_numbers(current, numbers))
            engine.optimizer_step(rows, self.rule(current, numbers), partial(self._next, chosen, options), plan)

    def _next(self, params: list[Tensor], options: Group) -> UpdateRule:
        """What a captured step asks for before it runs again: counts it, and gives its rule."""
        current, state = plain_options(options), self.state[params[0]]
        numbers = {name: state.get(name, value) for name, value in self.first_numbers(current).items()}
        counted = self.next_numbers(current, numbers)
        at_once([putting(self.state[param], name, value) for param in params for name, value in counted.items()])
        return self.rule(current, numbers)


def plain_options(options: Group) -> Group:
    """A group's options, numbers instead of tensors of one."""
    tensors = [name for name in IN_TENSORS if isinstance(options.get(name), Tensor)]
    return {**options, **{name: plain(options[name]) for name in tensors}} if tensors else options
