"""Which GPU each copy of each model goes to: decided from what steps ask and what a machine has, before anything runs.

Pure: asks and an inventory in, a place for each copy out, or an error that says what is missing. The engine gives each
copy a process that sees the GPUs of its place alone, so that every framework finds the right one by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import PlanError
from headrace.metrics.quantities import amount, count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.model.inventory import Gpu, Inventory

Place: TypeAlias = "tuple[Gpu, ...]"
"""The GPUs that one copy of a model has, or shares with others."""

SLACK = 1e-6
"""Three thirds of a GPU are one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What one model asks of the machine."""

    step: str
    num_gpus: float | None = None
    """Of each copy: whole GPUs, or a part of one. None: it needs none, and takes what it finds."""
    accelerator: str | None = None
    min_ram_bytes: int = 0
    """Of each copy."""
    copies: int | None = 1
    """None: one for each GPU that is free."""
    processes: bool = True
    """Whether copies have processes of their own, so that each can be given a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where the copies of one model are.

    >>> Placed(places=((),)).environment(0)
    {'CUDA_VISIBLE_DEVICES': ''}
    """

    places: tuple[Place, ...]
    asked: bool = True
    """Whether the step said how many GPUs it needs; otherwise its copies take turns over what there is."""

    def environment(self, number: int) -> dict[str, str]:
        """Return what the process of a copy finds in its environment."""
        place = self.places[number % len(self.places)]
        return {"CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in place)}

    def told(self, device: str) -> str:
        """Write where a model is that says it is on `device`; a process that sees one GPU calls it the first.

        >>> from headrace.model.inventory import Gpu
        >>> placed = Placed(places=((Gpu(index=3, uuid="GPU-c", name="L4"),),))
        >>> placed.told("cuda:0"), placed.told("cpu")
        ('GPU 3 (L4)', 'cpu, though it has GPU 3 (L4)')
        """
        if not device.lower().startswith("cpu"):
            return str(self)
        return f"{device}, though it has {self}" if any(self.places) else device

    def __str__(self) -> str:
        copies = [" + ".join(map(str, place)) or "no GPU" for place in self.places]
        times = {place: copies.count(place) for place in copies}
        return ", ".join(place if n == 1 else f"{n} × {place}" for place, n in times.items())


def plan_placement(asks: Sequence[Ask], inventory: Inventory, *, memory_bytes: int) -> dict[str, Placed]:
    """Place the copies of all models; those that ask for nothing and have no processes are left out.

    Steps that say `num_gpus` get it, or the plan is refused: no GPU is promised twice. What is left goes to steps that
    leave their `copies` open, one each in turn, at most one of a step to a GPU. Others in processes take turns over the
    GPUs, those first of which the least is promised.

    >>> from headrace.model.inventory import Gpu, Inventory
    >>> two = Inventory(gpus=(Gpu(index=0, uuid="GPU-a", name="L4"), Gpu(index=1, uuid="GPU-b", name="L4")))
    >>> asks = [Ask(step="detect", num_gpus=0.5, copies=None), Ask(step="embed", num_gpus=1)]
    >>> {step: str(placed) for step, placed in plan_placement(asks, two, memory_bytes=10**9).items()}
    {'detect': 'GPU 1 (L4)', 'embed': 'GPU 0 (L4)'}

    Raises:
        PlanError: a step asks for what is not there, or all together for more than there is.
    """
    _check_memory(asks, memory_bytes)
    asking = [ask for ask in asks if ask.num_gpus is not None]
    kinds = {ask.step: _of_kind(ask, inventory) for ask in asking}
    board = next((b for tight in (False, True) if (b := _seated(asking, kinds, inventory, tight=tight))), None)
    if board is None:
        raise _too_few(asking, kinds, inventory)
    room_bytes = memory_bytes - sum(ask.min_ram_bytes * (ask.copies or 1) for ask in asks)
    _fill(asking, kinds, board, room_bytes)
    for ask in asks:
        if ask.num_gpus is None and ask.processes and inventory.gpus:
            board.take_turns(ask)
    return {
        ask.step: Placed(places=tuple(board.places[ask.step]), asked=ask.num_gpus is not None)
        for ask in asks
        if ask.step in board.places
    }


class _Board:
    """Who has how much of each GPU, while places are given out."""

    def __init__(self, gpus: Sequence[Gpu], *, tight: bool) -> None:
        self.gpus, self._tight = gpus, tight
        self.used = dict.fromkeys(gpus, 0.0)
        self.places: dict[str, list[Place]] = {}

    def seat(self, ask: Ask, candidates: Sequence[Gpu], *, elsewhere: bool = False) -> bool:
        """Give a copy its place, if there is one; `elsewhere`: on GPUs that have no copy of the same model."""
        assert ask.num_gpus is not None
        mine = self.places.setdefault(ask.step, [])
        here = [gpu for place in mine for gpu in place]
        share = min(1.0, ask.num_gpus)
        number = max(1, int(ask.num_gpus)) if ask.num_gpus else 0
        free = [gpu for gpu in candidates if self.used[gpu] + share <= 1 + SLACK and not (elsewhere and gpu in here)]
        if len(free) < number:
            return False
        # Copies of one model keep apart; beyond that the emptiest GPU is taken, or the fullest where room is scarce.
        free.sort(key=lambda gpu: (0 if self._tight else here.count(gpu), self.used[gpu] * (-1 if self._tight else 1)))
        place = tuple(sorted(free[:number], key=self.gpus.index))
        for gpu in place:
            self.used[gpu] += share
        mine.append(place)
        return True

    def take_turns(self, ask: Ask) -> None:
        """Spread copies that promise nothing of how much they need."""
        order = sorted(self.gpus, key=lambda gpu: self.used[gpu])
        free = [gpu for gpu in order if self.used[gpu] < 1 - SLACK] or order
        self.places[ask.step] = [(free[n % len(free)],) for n in range(ask.copies or len(free))]


def _seated(
    asks: Sequence[Ask], kinds: Mapping[str, Sequence[Gpu]], inventory: Inventory, *, tight: bool
) -> _Board | None:
    """Place what has to be: as many copies as are asked for, else one. The largest first, then the most particular."""
    board = _Board(inventory.gpus, tight=tight)
    for ask in sorted(asks, key=lambda ask: (len(kinds[ask.step]), -(ask.num_gpus or 0))):
        for _ in range(ask.copies or 1):
            if not board.seat(ask, kinds[ask.step]):
                return None
    return board


def _fill(asks: Sequence[Ask], kinds: Mapping[str, Sequence[Gpu]], board: _Board, room_bytes: int) -> None:
    """Give what is left to those who take any number of copies, one each in turn."""
    open_ones = [ask for ask in asks if ask.copies is None and ask.num_gpus]
    while open_ones:
        ask = open_ones.pop(0)
        if ask.min_ram_bytes <= room_bytes and board.seat(ask, kinds[ask.step], elsewhere=True):
            room_bytes -= ask.min_ram_bytes
            open_ones.append(ask)


def _of_kind(ask: Ask, inventory: Inventory) -> tuple[Gpu, ...]:
    """Return the GPUs that a step may have.

    Raises:
        PlanError: there are not enough of them, even for this step alone.
    """
    assert ask.num_gpus is not None
    if not ask.num_gpus:
        return ()
    fits = tuple(gpu for gpu in inventory.gpus if ask.accelerator is None or gpu.is_kind(ask.accelerator))
    asked = _asked(ask)
    if not inventory.gpus:
        raise PlanError(
            f"step {ask.step!r} asks for {asked}, and {inventory.missing}; to run it anyway leave num_gpus= and"
            " accelerator= out: device='auto' takes what there is"
        )
    if not fits:
        there = ", ".join(map(str, inventory.gpus))
        raise PlanError(f"step {ask.step!r} asks for {asked}, and there is none of that kind; here: {there}")
    if ask.num_gpus > len(fits):
        raise PlanError(
            f"step {ask.step!r} asks for {asked} for one copy of its model, and there {_are(len(fits))};"
            f" {inventory.missing if len(fits) == len(inventory.gpus) else 'others are of another kind'}"
        )
    return fits


def _check_memory(asks: Sequence[Ask], memory_bytes: int) -> None:
    needed = {ask.step: ask.min_ram_bytes * (ask.copies or 1) for ask in asks if ask.min_ram_bytes}
    if sum(needed.values()) > memory_bytes:
        told = ", ".join(f"{amount(nbytes)} for step {step!r}" for step, nbytes in needed.items())
        raise PlanError(
            f"min_ram= asks for {told}, and this run has {amount(max(0, memory_bytes))} for models; run it on a larger"
            " machine, pass a larger memory_limit=, or fewer model_copies="
        )


def _too_few(asks: Sequence[Ask], kinds: Mapping[str, Sequence[Gpu]], inventory: Inventory) -> PlanError:
    told = ", ".join(
        f"{ask.copies or 1} × {_asked(ask)} for step {ask.step!r}" for ask in asks if ask.num_gpus and kinds[ask.step]
    )
    return PlanError(
        f"the models ask for {told}, and there {_are(len(inventory.gpus))}: {', '.join(map(str, inventory.gpus))}; pass"
        " fewer model_copies=, or parts of a GPU (num_gpus=0.5), so that models share one"
    )


def _asked(ask: Ask) -> str:
    return f"num_gpus={ask.num_gpus:g}" + (f" of kind {ask.accelerator!r}" if ask.accelerator else "")


def _are(gpus: int) -> str:
    return f"{'is' if gpus == 1 else 'are'} {count(gpus, 'GPU')}"
