"""DataParallel: a network trained on several ranks, with the same bits on any number of them."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from alpha import steps
from alpha.arguments import number, whole
from alpha.distributed import lifeline
from alpha.distributed.agreement import compare, facts_of
from alpha.distributed.buffers import Buffers
from alpha.distributed.gradients import Layout
from alpha.distributed.loop import Held, Loop
from alpha.distributed.nccl import reach_gpus
from alpha.distributed.shards import Division, rows_of
from alpha.distributed.turns import Ahead, Turn
from alpha.distributed.world import World, current, find
from alpha.dtypes import is_float
from alpha.errors import ArgumentError, DistributedError, DtypeError, EngineError, described
from alpha.nn.module import Module
from alpha.optim.hooks import register_optimizer_step_pre_hook
from alpha.tensor import Tensor

_wrappers: weakref.WeakValueDictionary[int, DataParallel] = weakref.WeakValueDictionary()
"""The wrapper of each parameter, by its id."""


class DataParallel(Module):
    """A network whose gradients are the means over a batch that several ranks share.

    The global batch is cut into shards; each rank has as many of them, one after another, and the gradients of all are
    added by one binary tree over their numbers. So with ``shards=4`` weights, optimizer state and buffers have the same
    bits on 1, 2 and 4 ranks. A step is a loop over this rank's shards::

        for px, py in par.split(x, y):
            par.backward(F.cross_entropy(par(px), py))
        opt.step()

    Losses are means over rows. Random numbers that are drawn in the loop depend on the seed, the step and the shard.
    BatchNorm's statistics are each shard's own, and its running statistics change once a step. Wrapping takes the
    weights and buffers of rank 0; all ranks do it together.

    Args:
        module: the network; it keeps its place in memory, and its parameters are trained.
        shards: into how many parts each global batch is cut, a multiple of the number of ranks. By default each rank is
            one, and the bits then depend on the number of ranks.
        bucket_cap_mb: MB of gradients that travel together, while backward goes on.

    Attributes:
        module: the network.
        world: the ranks.
        rows: of the last global batch, on all ranks together.
        stopping: whether some rank was asked to stop, by ``request_stop`` or by a Ctrl-C that the launcher passed on.
            It becomes true on all ranks in the same ``split``, so that all can end after the same step.
    """

    def __init__(self, module: Module, shards: int | None = None, bucket_cap_mb: float = 8.0) -> None:
        super().__init__()
        world = current("DataParallel")
        if not isinstance(module, Module):
            raise ArgumentError(f"[DataParallel] expected a network, got {described(module)}")
        wanted = world.size if shards is None else whole("DataParallel", "shards", shards, 1)
        cap = number("DataParallel", "bucket_cap_mb", bucket_cap_mb)
        if not cap > 0:
            raise ArgumentError(f"[DataParallel] expected bucket_cap_mb > 0, got {cap}")
        if wanted % world.size:
            raise DistributedError(
                f"[DataParallel] expected a number of ranks that divides the shards, got {world.size} ranks and "
                f"shards={wanted}: start as many ranks as divide {wanted}, or change shards"
            )
        self.module, self.shards = module, wanted
        self._loss: Tensor | None = None
        self.rows = 0
        self.stopping = self._asked_to_stop = False
        self.world = world
        self._params = _trained(module)
        self._names = [id(param) for param in self._params]
        engine = self._params[0].engine
        lifeline.tell(shards=wanted)
        compare(world, facts_of(module, engine, wanted))
        reach_gpus(world, engine)
        _take_from_main(world, [*self._params, *module.buffers()])
        self._cap = max(1, int(cap * 1e6))
        self._prepare()

    @property
    def trained(self) -> list[Tensor]:
        """The parameters whose gradients travel."""
        return list(self._params)

    def give_to(self, owners: Mapping[Tensor, int]) -> None:
        """From now on each parameter's gradient goes to one rank alone; ``optim.Sharded`` asks for it."""
        self._layout = Layout(self._params, self._cap, self.world.size, owners)

    def _prepare(self) -> None:
        """Makes what follows from the network."""
        self._layout = Layout(self._params, self._cap, self.world.size)
        self._state = Buffers(self.module)
        self._is_held = False
        self._held: Held | None = None
        self.ahead: dict[int, Ahead] = {}
        self._asks_empty = any(getattr(layer, "is_synchronized", False) for layer in self.module.modules())
        self._loop: Loop | None = None
        for param in self._params:
            _wrappers[id(param)] = self

    def __deepcopy__(self, memo: dict[int, Any]) -> DataParallel:
        """A copy of the network, wrapped for the same ranks; what waits within ``no_sync`` is not copied."""
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        shared = ("world", "shards", "_loss", "rows", "stopping", "_asked_to_stop", "_cap", "training")
        vars(made).update({name: getattr(self, name) for name in shared})
        made.module = copy.deepcopy(self.module, memo)
        made._params = [param for param in made.module.parameters() if param.requires_grad]
        made._names = [id(param) for param in made._params]
        made._prepare()
        return made

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise ArgumentError("[DataParallel] expected a network to pickle, got its wrapper: pickle .module")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the network."""
        return self.module(*args, **kwargs)

    def split(self, *tensors: Tensor) -> Iterator[Any]:
        """Loops over this rank's shards of a global batch, as parts of tensors that share their first axis.

        Each part gets one ``backward``. The loop's end waits for all ranks and sets the parameters' gradients; leaving
        it early is an error at the next step. A shard without rows is left out, as is the loop where a rank has no
        rows, but it takes part with weight 0.

        Args:
            tensors: this rank's part of the batch, as a ``DataLoader`` hands it out.

        Returns:
            an iterator over parts: a tensor for one tensor, tuples for several.
        """
        rows = rows_of(tensors)
        self._check_ready()
        turn = Turn(self, self._params[0].engine, rows)
        self.note_division(turn.division)
        self._loop = self.world.open = Loop(self, turn)
        return self._loop.parts(tensors)

    def request_stop(self) -> None:
        """Lets ``stopping`` become true on all ranks in the next ``split``, such as after a Ctrl-C on this one."""
        self._asked_to_stop = True

    @property
    def loss(self) -> float | None:
        """The mean of the losses over the last global batch, once its loop is over; waits for the device."""
        return None if self._loss is None else float(self._loss)

    def backward(self, loss: Tensor) -> None:
        """Computes the gradients of a shard's loss, its mean over the shard's rows; they are sent while it goes on."""
        if self._loop is None:
            raise DistributedError(
                "[DataParallel.backward] expected a shard's loss, got one outside the loop over par.split(...): use "
                "loss.backward() where nothing is shared"
            )
        self._loop.backward(loss)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """``with par.no_sync():`` adds up the gradients of the batches in the block, and sends nothing.

        The next loop over ``split`` outside sends the sum with its own. Until then each rank's ``.grad`` is of its own
        shards, and a step is an error; a ``zero_grad`` drops what was added up.
        """
        before, self._is_held = self._is_held, True
        try:
            yield
        finally:
            self._is_held = before

    # -- what loops tell ---------------------------------------------------------------------------------------------

    def is_asked_to_stop(self) -> bool:
        """Whether this rank was asked to stop."""
        return self._asked_to_stop or lifeline.interrupt_requested()

    def note_division(self, division: Division) -> None:
        """Takes what is known once a batch is shared out."""
        self.stopping = self.stopping or division.stops
        self.rows = division.rows

    def note_loss(self, loss: Tensor) -> None:
        """Takes the loss of a loop that is over, which a replay of it writes to the same place."""

        def set_loss() -> None:
            self._loss = loss

        steps.run_now_and_on_replay(set_loss)

    # -- what loops and steps check --------------------------------------------------------------------------------

    def _check_ready(self) -> None:
        world = self.world
        if find() is not world:
            raise DistributedError(
                "[split] expected the ranks with which DataParallel was made, got others: make it anew"
            )
        if self._loop is not None:
            left = self._loop
            self._loop = world.open = None
            raise DistributedError(
                f"[split] expected the loop before to go over all of its shards, got {left.passed} of "
                f"{len(left.shards)}: do not leave it early"
            )
        found = [id(param) for param in self.module.parameters() if param.requires_grad]
        if sorted(set(found)) != sorted(self._names):
            raise DistributedError(
                f"[split] expected the {len(self._names)} parameters with which DataParallel was made, got "
                f"{len(set(found))}, or others: wrap the network after it is whole"
            )

    def _check_step(self) -> None:
        """DistributedError if an optimizer steps with gradients that are not yet, or not all, there."""
        if self._loop is not None:
            raise DistributedError(
                f"[step] expected all shards of the batch to be through, got {self._loop.passed} of "
                f"{len(self._loop.shards)}: call step() behind the loop over par.split(...), and do not leave it early"
            )
        if self._held is not None and self._held.is_in_force():
            raise DistributedError(
                "[step] expected gradients of all ranks, got those of this one that were added up within no_sync(): "
                "let the last loop over par.split(...) before a step be outside of it"
            )


def _check_steps(optimizer: Any, args: Any, kwargs: Any) -> None:
    """Before any optimizer's step: asks the wrappers of its parameters."""
    if _wrappers:
        params = [param for group in optimizer.param_groups for param in group["params"]]
        for wrapper in {id(w): w for param in params if (w := _wrappers.get(id(param))) is not None}.values():
            wrapper._check_step()


register_optimizer_step_pre_hook(_check_steps)


def wrapper_of(param: Tensor) -> DataParallel | None:
    """The wrapper of the network that a parameter is of."""
    return _wrappers.get(id(param))


def _trained(module: Module) -> list[Tensor]:
    """The parameters that are trained, each once; errors where they do not go together."""
    params: list[Tensor] = [param for param in module.parameters() if param.requires_grad]
    if not params:
        raise ArgumentError("[DataParallel] expected a network with parameters that require grad, got none")
    for param in params:
        if id(param) in _wrappers:
            raise DistributedError(
                "[DataParallel] expected a network that is wrapped once, got one with a parameter of a network that is "
                "wrapped already: use that wrapper"
            )
    engines = {tensor.engine.name for tensor in [*module.parameters(), *module.buffers()]}
    if len(engines) > 1:
        raise EngineError(
            f"[DataParallel] expected a network on one engine, got {' and '.join(sorted(engines))}: move it with "
            ".to(engine)"
        )
    dtypes = {str(param.dtype) for param in params}
    if len(dtypes) > 1 or not is_float(params[0].dtype):
        raise DtypeError(
            f"[DataParallel] expected parameters of one dtype of real numbers, got {' and '.join(sorted(dtypes))}: "
            "convert them with .to(dtype)"
        )
    return params


def _take_from_main(world: World, tensors: list[Tensor]) -> None:
    """Gives tensors the values that they have on rank 0."""
    if world.size == 1:
        return
    arrays = [np.array(tensor.engine.to_numpy(tensor.detach()), order="C") for tensor in tensors]
    data = np.concatenate([array.reshape(-1).view(np.uint8) for array in arrays])
    world.broadcast(data, 0, "start").finish()
    start = 0
    for tensor, array in zip(tensors, arrays, strict=True):
        values = data[start : start + array.nbytes].view(array.dtype).reshape(array.shape).copy()
        start += array.nbytes
        tensor.engine.copy(tensor.engine.from_numpy(values), tensor.detach())
        tensor.storage.touch()
