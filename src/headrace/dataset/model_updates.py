"""Where a step's model gets newer versions from: checked when the pipeline is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace.errors import PlanError
from headrace.model.handler import ModelHandler
from headrace.model.keyed import KeyedModelHandler
from headrace.model.updates import ModelMetadata, WatchFilePattern

if TYPE_CHECKING:
    from collections.abc import Iterator


class AnnouncedByRows:
    """The rows of a dataset as announcements: columns `model_id` and, if it is there, `model_name`."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[ModelMetadata]:
        """Run the dataset; yield its rows as they come."""
        for row in self._dataset.iter_rows():
            if "model_id" not in row:
                raise PlanError(f"updates= has columns {', '.join(row)}; it needs model_id, with the path of a version")
            yield ModelMetadata(row["model_id"], row.get("model_name"))


def updates_of(handler: Any, watch: Any, updates: Any) -> WatchFilePattern | Iterable[ModelMetadata] | None:
    """Return what a step looks after for newer versions of its model; None where the model stays.

    Raises:
        PlanError: that is not told clearly, or the handler cannot load another version.
    """
    if watch is None and updates is None:
        return None
    if watch is not None and updates is not None:
        raise PlanError("watch= looks for versions of the model, and updates= announces them; pass one of the two")
    if isinstance(watch, str):
        watch = WatchFilePattern(watch)
    if watch is not None and not isinstance(watch, WatchFilePattern):
        raise PlanError(f"watch is {watch!r}; pass headrace.WatchFilePattern('models/*.pkl'), or the pattern as text")
    if isinstance(handler, KeyedModelHandler):
        raise PlanError("a KeyedModelHandler has many models, which do not change while a run goes on; leave"
                        " watch= and updates= out")  # fmt: skip
    if isinstance(handler, ModelHandler):
        handler.with_model("")  # what is no handler at all will be told by the check
    if watch is not None:
        return watch
    if hasattr(updates, "iter_rows"):
        return AnnouncedByRows(updates)
    if isinstance(updates, (str, ModelMetadata)) or not isinstance(updates, Iterable):
        raise PlanError(f"updates is {updates!r}; pass an iterable of headrace.ModelMetadata, or a dataset of them")
    return updates
