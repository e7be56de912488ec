"""Modules that hold modules: Sequential, ModuleList, ModuleDict."""

from __future__ import annotations

import operator
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Self

from alpha.errors import ArgumentError, IndexingError
from alpha.nn import fusion
from alpha.nn.arguments import sequence
from alpha.nn.module import Module


class _Container(Module):
    """Base of containers: their modules are attributes, named by position or by a given name."""

    def _held(self) -> dict[str, Module]:
        return {name: value for name, value in vars(self).items() if isinstance(value, Module)}

    def _replace(self, modules: dict[Any, Any]) -> None:
        """Replaces all modules by these, by name; if one of them is invalid, raises an error and keeps the old ones."""
        others = {name: value for name, value in vars(self).items() if not isinstance(value, Module)}
        for name, module in modules.items():
            self._check_name(name, "add_module", {**others, **self._held()})
            if not isinstance(module, Module):
                raise ArgumentError(f"[add_module] expected a Module for {name!r}, got {type(module).__name__}")
        self.__dict__ = others | modules  # one assignment: an interrupt finds it before or after

    def __len__(self) -> int:
        return len(self._held())


class _Row(_Container):
    """Modules in a row."""

    def _put(self, modules: Iterable[Module]) -> None:
        """Replaces the row by these modules, named by their positions."""
        self._replace({str(index): module for index, module in enumerate(modules)})

    def _name(self, index: int) -> str:
        names = list(self._held())
        try:
            place = operator.index(index)
        except TypeError as error:
            raise ArgumentError(
                f"[{type(self).__name__}] expected an integer or a slice as an index, got {index!r}"
            ) from error
        if not -len(names) <= place < len(names):
            raise IndexingError(f"[{type(self).__name__}] expected an index within {len(names)} modules, got {index}")
        return names[place]

    def append(self, module: Module) -> Self:
        """Adds a module at the end; returns self."""
        taken = [int(name) for name in self._held() if name.isdecimal()]
        self.add_module(str(max([len(self), *(number + 1 for number in taken)])), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Adds modules at the end: all of them, or none if one is no module; returns self."""
        held = self._held()
        first = max([len(held), *(int(name) + 1 for name in held if name.isdecimal())])
        self._replace({**held, **{str(first + index): module for index, module in enumerate(modules)}})
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Puts a module before a position and names all by their positions; returns self."""
        row = list(self)
        row.insert(index, module)
        self._put(row)
        return self

    def pop(self, index: int = -1) -> Any:
        """Takes the module at a position (by default the last) out and returns it."""
        module = self._held()[self._name(index)]
        del self[index]
        return module

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)

    def __getitem__(self, index: int) -> Any:
        return self._held()[self._name(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(self._name(index), module)

    def __delitem__(self, index: int | slice) -> None:
        """Removes the module at a position, or those of a slice; the others are numbered again."""
        held = self._held()
        gone = set(list(held)[index]) if isinstance(index, slice) else {self._name(index)}
        left = {name: module for name, module in held.items() if name not in gone}
        if all(name.isdecimal() for name in held):
            self._put(left.values())
        else:
            self._replace(left)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._held().values())


class Sequential(_Row):
    """Modules that run one after another: ``Sequential(a, b)(x)`` is ``b(a(x))``.

    Args:
        modules: the modules, or one dict of them by name. Indices, slices (again a Sequential) and ``append`` work as
            on a list.
    """

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            self._replace(dict(modules[0]))
        else:
            self._put(modules)

    def __getitem__(self, index: int | slice) -> Any:
        """The module at a position; for a slice, a Sequential of those modules under their present names."""
        if isinstance(index, slice):
            return Sequential(dict(list(self._held().items())[index]))
        return super().__getitem__(index)

    def __add__(self, other: Any) -> Sequential:
        """A Sequential of the modules of both, named by their positions."""
        return Sequential(*self, *other) if isinstance(other, Sequential) else NotImplemented

    def __mul__(self, times: int) -> Sequential:
        """A Sequential of the same modules, repeated."""
        if isinstance(times, bool) or not isinstance(times, int):
            return NotImplemented
        if times < 1:
            raise ArgumentError(f"[Sequential] expected a positive number to multiply by, got {times}")
        return Sequential(*(list(self) * times))

    __rmul__ = __mul__

    def forward(self, x: Any) -> Any:
        """Runs the modules in order; those that ``fusion`` combines run as one operation."""
        return fusion.run(list(self._held().values()), x)


class ModuleList(_Row):
    """A list of modules. A plain list that is an attribute registers its modules too; this one also stands alone."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self._put(sequence(modules, "modules", "ModuleList"))

    def __getitem__(self, index: int | slice) -> Any:
        """The module at a position; for a slice, a ModuleList of those modules."""
        return ModuleList(list(self)[index]) if isinstance(index, slice) else super().__getitem__(index)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        """A ModuleList of the modules of both."""
        return ModuleList([*self, *other])


class ModuleDict(_Container):
    """A dict of modules by name."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        super().__init__()
        self.update({} if modules is None else modules)

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Adds or replaces modules by name, from a mapping, a ModuleDict or pairs: all, or none where one is wrong."""
        try:
            added = dict(modules.items() if isinstance(modules, Mapping | ModuleDict) else modules)
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"[ModuleDict] expected a mapping of names to modules, or pairs, got {type(modules).__name__}"
            ) from error
        self._replace({**self._held(), **added})

    def clear(self) -> None:
        """Takes all modules out."""
        self._replace({})

    def pop(self, name: str) -> Any:
        """Takes a module out and returns it."""
        module = self[name]
        del self[name]
        return module

    def keys(self) -> KeysView[str]:
        """The names."""
        return self._held().keys()

    def values(self) -> ValuesView[Module]:
        """The modules."""
        return self._held().values()

    def items(self) -> ItemsView[str, Module]:
        """Names with modules."""
        return self._held().items()

    def __getitem__(self, name: str) -> Any:
        return self._held()[self._known(name)]

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __delitem__(self, name: str) -> None:
        delattr(self, self._known(name))

    def _known(self, name: str) -> str:
        if name not in self:
            raise KeyError(f"[ModuleDict] expected one of {list(self)}, got {name!r}")
        return name

    def __iter__(self) -> Iterator[str]:
        return iter(self._held())

    def __contains__(self, name: object) -> bool:
        return name in self._held()
