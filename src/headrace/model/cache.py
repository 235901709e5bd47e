"""The prediction cache: answers of models, kept for equal inputs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import PlanError
from headrace.metrics.quantities import nbytes_of

if TYPE_CHECKING:
    from headrace.model.answer_store import AnswerStore

MIN_BYTES = 2**20


@dataclass(frozen=True)
class PredictionCache:
    """Answers of models in a folder on a local disk, so that equal inputs are computed once, in all runs together.

    An answer is found again by the content of the model, the handler's settings, `inference_args` and the input: a
    model that is trained anew has answers of its own. Rows that fail are not kept. Several stages, runs and processes
    may share a folder; beyond `max_bytes` what was not used for longest leaves.

    A model that answers equal inputs differently (one that samples, say) gives equal rows the same answer with a cache.

    >>> import headrace as hr, tempfile
    >>> from headrace.handlers.function import FunctionModelHandler
    >>> calls = []
    >>> def length(batch):
    ...     calls.extend(batch)
    ...     return [len(text) for text in batch]
    >>> texts = hr.from_items([{"text": text} for text in ("a", "bb", "a")])
    >>> cache = hr.PredictionCache(tempfile.mkdtemp())
    >>> scored = texts.run_inference(FunctionModelHandler(length), inputs="text", version="1", cache=cache)
    >>> [row["prediction"] for row in scored.take()], sorted(calls)
    ([1, 2, 1], ['a', 'bb'])
    >>> [row["prediction"] for row in scored.take()], sorted(calls)
    ([1, 2, 1], ['a', 'bb'])
    """

    path: str | os.PathLike[str]
    max_bytes: int | str = "10GB"

    def __post_init__(self) -> None:
        try:
            path, size = os.fspath(self.path), nbytes_of(self.max_bytes)
        except (TypeError, ValueError) as error:
            raise PlanError(f"PredictionCache takes a folder and a number of bytes: {error}") from error
        if not path or "://" in path:
            raise PlanError(f"the cache {path!r} is no folder of this machine; a cache lies on a local disk")
        if os.path.exists(path) and not os.path.isdir(path):
            raise PlanError(f"the cache {path} is a file; name a folder, which is made where there is none")
        if size < MIN_BYTES:
            raise PlanError(f"max_bytes is {size:,}; a cache needs at least {MIN_BYTES:,}")

    @property
    def folder(self) -> str:
        """Where it lies."""
        return os.path.realpath(os.path.expanduser(self.path))

    def store(self) -> AnswerStore:
        """Return the store in the folder, still closed."""
        from headrace.model.answer_store import AnswerStore

        return AnswerStore(self.folder, durable=False, max_bytes=nbytes_of(self.max_bytes))
