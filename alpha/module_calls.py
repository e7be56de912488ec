"""Modules as functions of their parameters: called with others, and several of them stacked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from alpha.arguments import flag
from alpha.errors import ArgumentError
from alpha.functions.joining import stack
from alpha.tensor import Tensor

if TYPE_CHECKING:
    from alpha.nn import Module


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: Any = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Calls a module with other parameters and buffers, by name; the module keeps its own.

    Args:
        module: whose ``forward`` is called.
        parameter_and_buffer_dicts: tensors by the names of ``named_parameters`` and ``named_buffers``, or several such
            mappings.
        args, kwargs: of the module; one tensor may stand for itself.
        tie_weights: whether a tensor that the module has under several names is replaced under all of them.
        strict: ArgumentError where a parameter or a buffer has no other.
    """
    several = parameter_and_buffer_dicts
    several = several if isinstance(several, tuple | list) else (several,)
    replaced: dict[str, Any] = {}
    for mapping in several:
        replaced.update(mapping)
    names = _names(module)
    if flag("functional_call", "tie_weights", tie_weights):
        groups: dict[int, list[str]] = {}
        for name, one in names.items():
            groups.setdefault(id(one), []).append(name)
        for group in groups.values():
            given = [replaced[name] for name in group if name in replaced]
            if any(one is not given[0] for one in given):
                raise ArgumentError(f"[functional_call] expected one tensor for {group}, which are one, got several")
            replaced.update(dict.fromkeys(group, given[0]) if given else {})
    if flag("functional_call", "strict", strict) and names.keys() - replaced.keys():
        missing = sorted(names.keys() - replaced.keys())
        raise ArgumentError(f"[functional_call] expected every parameter and buffer, got none for {missing}")
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replacing(module, replaced):
        return module(*arguments, **(kwargs or {}))


def _names(module: Module) -> dict[str, Tensor]:
    """A module's parameters and buffers under all of their names."""
    parameters: dict[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
    return parameters | dict(module.named_buffers(remove_duplicate=False))


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters and the buffers of several modules of one kind by name, each stacked along a new first axis.

    With ``vmap`` and ``functional_call`` they run as one. Parameters that require grad become leaves that do.
    """
    modules = list(models)
    if not modules or any(type(one) is not type(modules[0]) for one in modules):
        raise ArgumentError(f"[stack_module_state] expected modules of one class, got {[type(x) for x in modules]}")
    if len({one.training for one in modules}) > 1:
        raise ArgumentError("[stack_module_state] expected modules of one mode, got some in training: call train(mode)")
    parameters, buffers = (
        [dict(getattr(one, f"named_{kind}")()) for one in modules] for kind in ("parameters", "buffers")
    )
    stacked = {name: _stacked(name, [one[name] for one in parameters]) for name in parameters[0]}
    return stacked, {name: stack([one[name] for one in buffers]) for name in buffers[0]}


def _stacked(name: str, several: list[Tensor]) -> Tensor:
    """Parameters as one leaf."""
    if len({one.requires_grad for one in several}) > 1:
        raise ArgumentError(f"[stack_module_state] expected {name} to require grad in all modules or in none, got some")
    return stack([one.detach() for one in several]).requires_grad_(several[0].requires_grad)


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Makes every batch normalisation in a module use each batch's statistics alone, in place; returns the module.

    Running statistics are written to in training, which ``vmap`` over modules does not allow for.
    """
    from alpha.nn.norm import BatchNorm  # here: layers are made of these functions

    for module in root.modules():
        if isinstance(module, BatchNorm) and module.track_running_stats:
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


@contextmanager
def _replacing(module: Module, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """The module with other tensors under their names."""
    modules = dict(module.named_modules())
    before: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for name, value in tensors.items():
            owner, _, last = name.rpartition(".")
            table = vars(modules[owner]) if owner in modules else {}
            if not isinstance(table.get(last), Tensor):
                raise ArgumentError(
                    f"[functional_call] expected names of parameters and buffers of {type(module).__name__}, got "
                    f"{name!r}"
                )
            before.append((table, last, table[last]))
            table[last] = value
        yield
    finally:
        for table, last, value in reversed(before):
            table[last] = value
