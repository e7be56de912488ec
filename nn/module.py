"""Module: the base of every layer and network: its parts, modes, state and hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from alpha import Tensor, dtypes
from alpha.arguments import flag
from alpha.changes import Changes, at_once, clear_gradients, fill_with_zeros, setting
from alpha.errors import ArgumentError, PartError
from alpha.nn import state
from alpha.nn.arguments import text
from alpha.nn.hooks import Hooked, hooks_of
from alpha.nn.parameter import Buffer, Parameter
from alpha.nn.parts import Parts


def _no_forward(self: Module, *args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError(f"[{type(self).__name__}] expected a subclass with forward, got none: write one")


class LoadResult(NamedTuple):
    """What ``load_state_dict(strict=False)`` left out."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Module(Hooked):
    """A layer or a network: subclass it, make its parts in ``__init__`` and write ``forward``.

    Every attribute that is a ``Parameter``, ``Buffer`` or ``Module`` is part of it. Those in plain lists, tuples and
    dicts are not, as in PyTorch: wrap modules in ``nn.ModuleList`` or ``nn.ModuleDict``, parameters likewise.

    Attributes:
        training: whether it is in training mode (BatchNorm, Dropout); set by ``train`` and ``eval``.
    """

    forward: Callable[..., Any] = _no_forward
    # Defaults of the class, replaced on the instance: a subclass that forgets super().__init__() works all the same.
    training: bool = True
    _buffer_names: Mapping[str, bool] = MappingProxyType({})  # whether each buffer is part of the state_dict

    def __init__(self) -> None:
        """Takes no arguments, so that an argument which a layer does not have is an error."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the hooks before forward, ``forward``, and the hooks after it."""
        hooks = self._hooks
        return self.forward(*args, **kwargs) if hooks is None else hooks.call(self, args, kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        old = vars(self).get(name)
        if isinstance(old, Parameter) and value is not None and not isinstance(value, Parameter):
            raise ArgumentError(
                f"[{type(self).__name__}] expected a Parameter for {name}, got a {type(value).__name__}: wrap it in "
                f"nn.Parameter, change the values with {name}.copy_() under no_grad, or del the attribute first"
            )
        if isinstance(old, Module) and value is not None and not isinstance(value, Module | Parameter):
            raise ArgumentError(
                f"[{type(self).__name__}] expected a Module or None for {name}, got a {type(value).__name__}: wrap it "
                "in a Module, or del the attribute first"
            )
        if name in self._buffer_names or isinstance(value, Buffer):
            self._set_buffer(name, value)
        else:
            super().__setattr__(name, value)

    def _set_buffer(self, name: str, value: Any) -> None:
        """Sets an attribute that is a buffer; a Parameter or a Module takes its place, and the name is no buffer's."""
        if isinstance(value, Buffer):
            names = {**self._buffer_names, name: value.persistent}
            at_once([(dict.update, vars(self), {"_buffer_names": names, name: value})])
        elif isinstance(value, Parameter | Module):
            kept = {key: persistent for key, persistent in self._buffer_names.items() if key != name}
            at_once([(dict.update, vars(self), {"_buffer_names": kept, name: value})])
        elif value is None or isinstance(value, Tensor):
            super().__setattr__(name, value)
        else:
            raise ArgumentError(
                f"[{type(self).__name__}] expected a Tensor or None for the buffer {name}, got a "
                f"{type(value).__name__}: make it with alpha.tensor, or del the attribute first"
            )

    def __delattr__(self, name: str) -> None:
        if name in self._buffer_names and name in vars(self):
            kept = {key: persistent for key, persistent in self._buffer_names.items() if key != name}
            at_once([(dict.pop, vars(self), name), (dict.__setitem__, vars(self), "_buffer_names", kept)])
        else:
            super().__delattr__(name)

    # -- registration --------------------------------------------------------------------------------------------

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Makes a tensor that is not trained part of the module; ``persistent`` puts it into the state_dict."""
        self._check_name(name, "register_buffer", self._buffer_names)
        if tensor is not None and (not isinstance(tensor, Tensor) or isinstance(tensor, Parameter)):
            raise ArgumentError(
                f"[register_buffer] expected a Tensor or None for {name}, got {type(tensor).__name__}: a Parameter is "
                "registered by assigning it"
            )
        vars(self).update({"_buffer_names": {**self._buffer_names, name: persistent}, name: tensor})

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """``self.<name> = param``, for names made at run time."""
        self._check_name(name, "register_parameter", vars(self))
        if param is not None and not isinstance(param, Parameter):
            raise ArgumentError(
                f"[register_parameter] expected a Parameter or None for {name}, got {type(param).__name__}: wrap "
                "it in nn.Parameter"
            )
        setattr(self, name, param)

    def add_module(self, name: str, module: Module | None) -> None:
        """``self.<name> = module``, for names made at run time."""
        self._check_name(name, "add_module", vars(self))
        if module is not None and not isinstance(module, Module):
            raise ArgumentError(f"[add_module] expected a Module or None for {name!r}, got {type(module).__name__}")
        setattr(self, name, module)

    register_module = add_module

    def _check_name(self, name: str, function: str, known: Mapping[str, Any]) -> None:
        if not isinstance(name, str) or not name or "." in name:
            raise ArgumentError(f"[{function}] expected a name without dots, got {name!r}")
        internal = name in ("training", "_hooks", "_buffer_names")
        if internal or (name not in known and hasattr(self, name)):
            raise ArgumentError(
                f"[{function}] expected a name that {type(self).__name__} does not use yet, got {name!r}: choose one"
            )

    def _parts(self) -> Iterator[tuple[str, Parameter | Module]]:
        """The parameters and modules that are attributes."""
        for name, value in vars(self).items():
            if isinstance(value, Parameter | Module) and name not in self._buffer_names:
                yield name, value

    # -- what it is made of --------------------------------------------------------------------------------------

    @property
    def _modules(self) -> Parts:
        """The modules directly below by name; what is set or deleted in it is so in the module."""
        return Parts(self, lambda: {name: x for name, x in self._parts() if isinstance(x, Module)}, self.add_module)

    @property
    def _parameters(self) -> Parts:
        """The module's own parameters alike."""

        def found() -> dict[str, Parameter]:
            return {name: x for name, x in self._parts() if isinstance(x, Parameter)}

        return Parts(self, found, self.register_parameter)

    @property
    def _buffers(self) -> Parts:
        """The module's own buffers alike."""

        def found() -> dict[str, Tensor | None]:
            return {name: getattr(self, name, None) for name in self._buffer_names}

        return Parts(self, found, self.register_buffer)

    def get_submodule(self, target: str) -> Module:
        """The module of a dotted name, ``"layers.0.conv"``; the module itself for ``""``."""
        found, path = self, text(target, "target", "get_submodule")
        for name in path.split(".") if path else ():
            found = found._named_part("get_submodule", name, target, Module)
        return found

    def get_parameter(self, target: str) -> Parameter:
        """The parameter of a dotted name."""
        path, _, name = text(target, "target", "get_parameter").rpartition(".")
        found: Parameter = self.get_submodule(path)._named_part("get_parameter", name, target, Parameter)
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer of a dotted name."""
        path, _, name = text(target, "target", "get_buffer").rpartition(".")
        owner = self.get_submodule(path)
        found: Tensor = owner._named_part("get_buffer", name, target, Tensor)
        if name not in owner._buffer_names:
            raise PartError(f"[get_buffer] expected the name of a buffer, got {target!r}, which is none")
        return found

    def _named_part(self, function: str, name: str, target: str, kind: type) -> Any:
        """The part of a name; an error unless it is of a kind."""
        part = vars(self).get(name)
        if not isinstance(part, kind):
            what = "no attribute" if part is None else f"a {type(part).__name__}"
            raise PartError(
                f"[{function}] expected the name of a {kind.__name__}, got {target!r}: {name!r} is {what} of "
                f"{type(self).__name__}"
            )
        return part

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly below, each once, with their names."""
        seen: set[int] = set()
        for name, part in self._parts():
            if isinstance(part, Module) and id(part) not in seen:
                seen.add(id(part))
                yield name, part

    def children(self) -> Iterator[Module]:
        """The modules directly below, each once."""
        return (child for _, child in self.named_children())

    def named_modules(
        self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """The module itself (under the prefix) and all modules below with their dotted names.

        A module in two places comes once, or with ``remove_duplicate=False`` under each of its names; one that lies in
        itself is not entered again. Those in ``memo`` are left out, and those that come are added to it.
        """
        seen = {id(module) for module in memo or ()} if remove_duplicate else None
        for path, module in self._paths(prefix, (), seen):
            if memo is not None:
                memo.add(module)
            yield path, module

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """The module itself and all modules below, each once unless ``remove_duplicate`` is False."""
        return (module for _, module in self.named_modules(remove_duplicate=remove_duplicate))

    def _paths(self, prefix: str, above: tuple[Module, ...], seen: set[int] | None) -> Iterator[tuple[str, Module]]:
        """Below the modules ``above``; without those ``seen`` already, unless that is None."""
        if seen is not None:
            if id(self) in seen:
                return
            seen.add(id(self))
        yield prefix, self
        above = (*above, self)  # not entered again if a part refers back to it
        for name, part in self._parts():
            if isinstance(part, Module) and not (
                id(part) in seen if seen is not None else any(part is module for module in above)
            ):
                yield from part._paths(_join(prefix, name), above, seen)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """The parameters with their dotted names, each once (under its first name) or under each of its names."""
        seen: set[int] = set()
        for path, module in self._with_below(prefix, recurse, remove_duplicate):
            for name, part in module._parts():
                if isinstance(part, Parameter) and id(part) not in seen:
                    if remove_duplicate:
                        seen.add(id(part))
                    yield _join(path, name), part

    def _with_below(self, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterable[tuple[str, Module]]:
        """The module with its path, and if wanted all below."""
        return self.named_modules(None, prefix, remove_duplicate) if recurse else [(prefix, self)]

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, each once: what an optimizer takes."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The buffers with their dotted names, each once or under each of its names."""
        seen: set[int] = set()
        for path, module in self._with_below(prefix, recurse, remove_duplicate):
            for name in module._buffer_names:
                buffer = getattr(module, name, None)
                if buffer is not None and id(buffer) not in seen:
                    if remove_duplicate:
                        seen.add(id(buffer))
                    yield _join(path, name), buffer

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers, each once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    # -- modes and places, each returns self -----------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Sets training mode (or, with False, evaluation mode) here and below; returns self.

        A module below that overrides ``train`` gets that call. After an interrupt all others are as before or as after.
        """
        if not isinstance(mode, bool):
            raise ArgumentError(f"[train] expected True or False, got {mode!r}")
        modules = list(self.modules())
        at_once([setting(module, "training", mode) for module in modules])
        for module in modules[1:]:
            if type(module).train is not Module.train:
                module.train(mode)
        return self

    def eval(self) -> Self:
        """Sets evaluation mode here and below; returns self."""
        return self.train(False)

    def to(self, *target: Any, **options: Any) -> Self:
        """Moves parameters and buffers to a device, casts them to a dtype, or both; returns self.

        Arguments as for ``Tensor.to``. The Parameter objects stay the same, so an optimizer that holds them goes on
        working. A dtype of floats changes floating-point tensors alone; a memory format those that have as
        many axes as it. An error or an interrupt finds all as before or all as after.
        """
        state.move((*self.parameters(), *self.buffers()), state.destination(target, options))
        return self

    def float(self) -> Self:
        """``to(alpha.float32)``; returns self."""
        return self.to(dtypes.float32)

    def double(self) -> Self:
        """``to(alpha.float64)``; returns self."""
        return self.to(dtypes.float64)

    def half(self) -> Self:
        """``to(alpha.float16)``; returns self."""
        return self.to(dtypes.float16)

    def bfloat16(self) -> Self:
        """``to(alpha.bfloat16)``; returns self."""
        return self.to(dtypes.bfloat16)

    def cpu(self) -> Self:
        """``to("cpu")``; returns self."""
        return self.to("cpu")

    def cuda(self, device: int = 0) -> Self:
        """``to("cu32:0")``, or of another device; returns self."""
        return self.to(f"cu32:{device}")

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Calls ``fn(module)`` for every module below, each once, and then for this one; returns self."""
        for module in self._bottom_up(set()):
            fn(module)
        return self

    def _bottom_up(self, seen: set[int]) -> Iterator[Module]:
        seen.add(id(self))
        for child in self.children():
            if id(child) not in seen:
                yield from child._bottom_up(seen)
        yield self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Freezes (False) or trains (True) all parameters; returns self."""
        parameters = list(self.parameters())
        for parameter in parameters:
            parameter.detach().requires_grad_(requires_grad)  # raises where it may not
        at_once([setting(parameter, "requires_grad", requires_grad) for parameter in parameters])
        return self

    def zero_grad(self, set_to_none: bool = True) -> Self:
        """Drops all parameters' gradients (sets them to None), or overwrites them by zeros; returns self."""
        parameters = list(self.parameters())
        if flag("zero_grad", "set_to_none", set_to_none):
            clear_gradients(parameters)
        else:
            fill_with_zeros([one.grad for one in parameters if one.grad is not None])
        return self

    # -- state ---------------------------------------------------------------------------------------------------

    def state_dict(
        self, *, destination: dict[str, Tensor] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Tensor]:
        """Parameters and persistent buffers by dotted name, sharing the module's memory; a shared one by each name.

        Args:
            destination: a dict to add them to; by default a new one.
            prefix: what all names begin with, ``"net."``.
            keep_vars: whether they are the parameters themselves instead of tensors outside the graph.
        """
        return state.collect(self, {} if destination is None else destination, prefix, keep_vars)

    def _own_state(self) -> Iterator[tuple[str, Tensor]]:
        for name, part in self._parts():
            if isinstance(part, Parameter):
                yield name, part
        for name, persistent in self._buffer_names.items():
            buffer = getattr(self, name, None)
            if persistent and buffer is not None:
                yield name, buffer

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> LoadResult:
        """Copies values into parameters and buffers in place.

        Args:
            state_dict: tensors or NumPy arrays by dotted name.
            strict: whether missing and unexpected keys are errors; a wrong shape always is.

        Errors: one CheckpointError that lists missing, unexpected and misshaped keys; then nothing was loaded. After a
        KeyboardInterrupt either nothing was loaded, or everything.
        """
        changes = Changes()
        watched = any(hooks_of(module, "loaded") for module in self.modules())
        result = self.stage_state(state_dict, changes, strict and not watched)
        changes.make()
        if watched:
            state.call_loaded(self, result, strict)
        return result

    def stage_state(self, state_dict: Mapping[str, Any], changes: Changes, strict: bool = True) -> LoadResult:
        """Checks a state, and adds to the changes what ``load_state_dict`` does with it."""
        return LoadResult(*state.stage_module(self, state_dict, strict, changes))

    # -- to look at ----------------------------------------------------------------------------------------------

    def summary(self, input_shape: tuple[int, ...] | None = None) -> str:
        """A table of all modules with their own parameters and, given an input's shape, their results' shapes.

        Args:
            input_shape: shape with the batch, (1, 32, 32, 3); zeros of it are run through in evaluation mode.
        """
        from alpha.nn.summary import summarize  # here: it imports this module

        return summarize(self, input_shape)

    def extra_repr(self) -> str:
        """What the repr shows between the parentheses; for subclasses to write."""
        return ""

    def __repr__(self) -> str:
        return self._tree(())

    def _tree(self, above: tuple[Module, ...]) -> str:
        """The repr; a module that contains itself is shown without its parts."""
        name, extra = type(self).__name__, self.extra_repr()
        if any(self is module for module in above):
            return f"{name}(...)"
        above = (*above, self)
        children = [f"({key}): {text}" for key, text in self._texts(above)]
        if not children:
            return f"{name}({extra})"
        lines = [child.replace("\n", "\n  ") for child in children]
        return "\n  ".join([f"{name}(", *([extra] if extra else []), *lines]) + "\n)"

    def _texts(self, above: tuple[Module, ...]) -> list[tuple[str, str]]:
        """The names of the modules directly below and their reprs."""
        return [
            (key, child._tree(above) if type(child).__repr__ is Module.__repr__ else repr(child))
            for key, child in self._parts()
            if isinstance(child, Module)
        ]


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
