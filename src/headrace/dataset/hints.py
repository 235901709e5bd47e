"""What a step says of the machine that its model needs."""

from __future__ import annotations

import re
from typing import Any

from headrace.errors import PlanError
from headrace.metrics.quantities import nbytes_of
from headrace.plan.numbers import number

_ONE_DEVICE = re.compile(r"(cuda|gpu):\d+|cpu|mps")


def checked_hints(*, num_gpus: Any, accelerator: Any, min_ram: Any) -> dict[str, Any]:
    """Return what was given; who names a kind of accelerator asks for one of it.

    >>> checked_hints(num_gpus=None, accelerator="nvidia-l4", min_ram=None)
    {'num_gpus': 1, 'accelerator': 'nvidia-l4'}

    Raises:
        PlanError: it says nothing that can be met.
    """
    gpus = number("num_gpus", num_gpus, what="number of accelerators", optional=True)
    if gpus is not None and gpus > 1 and gpus != int(gpus):
        raise PlanError(f"num_gpus is {gpus:g}; a copy of a model has whole GPUs, or a part of one, such as 0.5")
    if accelerator is not None and (not isinstance(accelerator, str) or not re.fullmatch(r"[\w .-]+", accelerator)):
        raise PlanError(
            f"accelerator is {accelerator!r}; it is the name of a kind, such as 'nvidia-l4' (how many is num_gpus=)"
        )
    if accelerator is not None and gpus == 0:
        raise PlanError(f"num_gpus=0 asks for no accelerator; leave it or accelerator={accelerator!r} out")
    if min_ram is not None:
        try:
            nbytes_of(min_ram)
        except ValueError as error:
            raise PlanError(f"min_ram: {error}") from error
    if accelerator is not None and gpus is None:
        gpus = 1
    given = {"num_gpus": gpus, "accelerator": accelerator, "min_ram": min_ram}
    return {key: value for key, value in given.items() if value is not None}


def check_device(handler: Any, asked: str) -> None:
    """Raise where a handler names a device itself, and its step asks for GPUs: the one or the other would do nothing.

    Raises:
        PlanError: says which to leave out.
    """
    device = getattr(handler, "device", None)
    if not isinstance(device, str) or not _ONE_DEVICE.fullmatch(device):
        return
    raise PlanError(
        f"{type(handler).__name__} has device={device!r}, and {asked} has each copy's GPU chosen for it;"
        " leave one of them out"
    )
