"""Notes on a model stage's batches, kept in the journals of the outputs behind it."""

from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING

from headrace.model.learnt import Learnt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine.commit.journal import Journal
    from headrace.plan.nodes import InferenceSpec


class Notes:
    """One stage's entry. What was learnt with another handler, device or machine, or of other weights, is not read."""

    def __init__(self, journals: Sequence[Journal], name: str, spec: InferenceSpec) -> None:
        self._journals = journals
        self._key = f"batches of {name}"
        handler, limits = spec.handler, spec.limits
        devices = [str(getattr(handler, which, None)) for which in ("device", "providers")]
        self._about = [type(handler).__name__, *devices, platform.node(), str((limits.weight_column, limits.padded))]

    def read(self) -> Learnt:
        """Return what an earlier run has learnt, or nothing."""
        for journal in self._journals:
            text = journal.file.meta(self._key)
            if text is not None and (entry := json.loads(text))["about"] == self._about:
                return Learnt.from_json(entry["learnt"])
        return Learnt()

    def write(self, learnt: Learnt) -> None:
        """Replace the entry; cheap, since it becomes durable with the next commit."""
        text = json.dumps({"about": self._about, "learnt": learnt.to_json()})
        for journal in self._journals:
            with journal.file.transaction():
                journal.file.set_meta(self._key, text)
