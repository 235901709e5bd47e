"""The memories of one run: which model stages have one, where it lies, and when it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.commit.home import Home
from headrace.engine.identity import answers_identity
from headrace.engine.recall import Memory, Recall
from headrace.errors import PlanError
from headrace.plan.graph import nodes_behind
from headrace.plan.nodes import Write

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.model.answer_store import AnswerStore
    from headrace.model.versions import Version
    from headrace.plan.graph import Plan
    from headrace.plan.nodes import RunInference
    from headrace.plan.steps import OnError


class Memories:
    """Opens the stores of answers that a plan's model stages use.

    Answers of `durability="row"` lie beside the journal of the first local output behind the stage, and go when all
    outputs are finished. Rows that the caller collects are not gone on with by a later run, so that nothing is kept.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._rows: dict[str, AnswerStore] = {}
        self._caches: dict[str, AnswerStore] = {}

    def recall_of(
        self, node: RunInference, *, on_error: OnError, version: Callable[[], Version | None] | None = None
    ) -> Recall | None:
        """Return what answers a stage's rows from memory; None where it has no memory.

        `version` says which version of the model is in use, where that changes.

        Raises:
            PlanError: its answers are to be durable, and no output can keep them.
            SinkError: its cache cannot be used.
        """
        from headrace.model.answer_store import AnswerStore

        own = equal = None
        name = self._plan.name_of(node)
        if node.durability == "row" and (folder := self._folder_for(node)) is not None:
            store = self._rows.setdefault(folder, AnswerStore(folder, durable=True))
            own = Memory(store, name, by_row=True, filled=store.exists)
        if node.cache is not None:
            store = self._caches.setdefault(node.cache.folder, node.cache.store())
            store.open()
            equal = Memory(store, answers_identity(node.spec, name, changing=version is not None), by_row=False)
        if own is None and equal is None:
            return None
        return Recall(node.spec, name=name, own=own, equal=equal, nulls=on_error == "null", version=version)

    def finish(self) -> None:
        """Remove what only an unfinished job needs."""
        for store in self._rows.values():
            store.remove()
        self._rows = {}
        self.close()

    def close(self) -> None:
        """Close the files, which stay."""
        for store in [*self._rows.values(), *self._caches.values()]:
            store.close()

    def _folder_for(self, node: RunInference) -> str | None:
        outputs = [o for o in self._plan.outputs if isinstance(o, Write) and node in nodes_behind(self._plan, o)]
        homes = [Home(output.sink.folder) for output in outputs]
        folder = next((home.answers for home in homes if home.root is not None), None)
        if outputs and folder is None:
            raise PlanError(
                f"step {self._plan.name_of(node)!r} has durability='row', which keeps answers beside a local output,"
                f" and {outputs[0].sink.name} is not local; write to a local folder, or pass cache=PredictionCache(…)"
            )
        return folder
