"""Modules that hold modules: Sequential, ModuleList, ModuleDict."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Self

from nn import fusion
from nn.arguments import sequence
from nn.module import Module


class _Container(Module):
    """Its modules are attributes, named by position or by a given name."""

    def _held(self) -> dict[str, Module]:
        return {name: value for name, value in vars(self).items() if isinstance(value, Module)}

    def __len__(self) -> int:
        return len(self._held())


class _Row(_Container):
    """Modules in a row."""

    def _put(self, modules: Iterable[Module]) -> None:
        """Replaces the row by these modules, named by their positions."""
        row = list(modules)
        for name in self._held():
            delattr(self, name)
        for index, module in enumerate(row):
            self.add_module(str(index), module)

    def _name(self, index: int) -> str:
        names = list(self._held())
        if not -len(names) <= index < len(names):
            raise IndexError(f"[{type(self).__name__}] expected an index within {len(names)} modules, got {index}")
        return names[index]

    def append(self, module: Module) -> Self:
        """Adds a module at the end; returns self."""
        taken = [int(name) for name in self._held() if name.isdecimal()]
        self.add_module(str(max([len(self), *(number + 1 for number in taken)])), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Adds modules at the end; returns self."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Puts a module before a position and names all by their positions; returns self."""
        row = list(self)
        row.insert(index, module)
        self._put(row)
        return self

    def __getitem__(self, index: int) -> Any:
        return self._held()[self._name(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(self._name(index), module)

    def __delitem__(self, index: int | slice) -> None:
        row = list(self)
        del row[index]
        self._put(row)

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
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            self._put(modules)

    def __getitem__(self, index: int | slice) -> Any:
        """The module at a position; of a slice, a Sequential of those modules under the names they have here."""
        if isinstance(index, slice):
            return Sequential(dict(list(self._held().items())[index]))
        return super().__getitem__(index)

    def forward(self, x: Any) -> Any:
        """Runs the modules in order; those that ``fusion`` knows as one operation, as one."""
        return fusion.run(list(self._held().values()), x)


class ModuleList(_Row):
    """A list of modules. A plain list that is an attribute registers its modules too; this one also stands alone."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self._put(sequence(modules, "modules", "ModuleList"))

    def __getitem__(self, index: int | slice) -> Any:
        """The module at a position; of a slice, a ModuleList of those modules."""
        return ModuleList(list(self)[index]) if isinstance(index, slice) else super().__getitem__(index)


class ModuleDict(_Container):
    """A dict of modules by name."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update({} if modules is None else modules)

    def update(self, modules: Mapping[str, Module]) -> None:
        """Adds or replaces modules by name."""
        for name, module in modules.items():
            self[name] = module

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
