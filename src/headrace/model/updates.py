"""Where the newer versions of a model come from, while a run goes on."""

from __future__ import annotations

import os
from dataclasses import dataclass

from headrace.errors import PlanError

WATCH_SECS = 60.0


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """A version of a model that is ready: where it lies, and what its answers are to be called.

    >>> ModelMetadata("s3://models/churn/v7/model.pkl", "churn-v7").model_name
    'churn-v7'
    """

    model_id: str
    """Its path or URL, as Beam's users know it."""
    model_name: str | None = None
    """What the column `model_id` calls it, with its content's hash behind; None: the file's name."""

    def __post_init__(self) -> None:
        for name in ("model_id", "model_name"):
            value = getattr(self, name)
            if isinstance(value, os.PathLike):
                object.__setattr__(self, name, os.fspath(value))
            elif not (isinstance(value, str) and value) and (value is not None or name == "model_id"):
                raise PlanError(
                    f"ModelMetadata has {name}={value!r}; it is text: model_id a path or URL, model_name a name"
                )


@dataclass(frozen=True, slots=True)
class WatchFilePattern:
    """Files (or folders, where a model is one) of which the newest is the model, looked for every `interval_secs`.

    The newest is the one that was changed last, and among those changed at once the last by name. One that is still
    being written is left alone until its size and time have been the same at two looks; names that begin with "." or
    "_", or end as those of unfinished copies do (.tmp, .part, …), do not count unless the pattern ends like them.

    >>> WatchFilePattern("models/churn-*.pkl", interval_secs=5).pattern
    'models/churn-*.pkl'
    """

    pattern: str
    interval_secs: float = WATCH_SECS

    def __post_init__(self) -> None:
        if isinstance(self.pattern, os.PathLike):
            object.__setattr__(self, "pattern", os.fspath(self.pattern))
        if not isinstance(self.pattern, str) or not self.pattern:
            raise PlanError(f"WatchFilePattern takes a path or URL, such as 'models/*.pkl', not {self.pattern!r}")
        secs = self.interval_secs
        if not isinstance(secs, (int, float)) or isinstance(secs, bool) or not 0 < secs < float("inf"):
            raise PlanError(f"WatchFilePattern: interval_secs is {secs!r}; it is a number of seconds, more than 0")
