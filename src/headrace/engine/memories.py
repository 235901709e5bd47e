"""The memories of one run: which model stages have one, where it lies, and when it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.identity import answers_identity
from headrace.errors import PlanError
from headrace.plan.graph import nodes_behind
from headrace.plan.nodes import Write
from headrace.sinks.folder import local_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.engine.commit.answer_mirror import AnswerMirror
    from headrace.engine.commit.claim import Claim
    from headrace.engine.commit.committer import Committer
    from headrace.engine.recall import Recall
    from headrace.model.answer_store import AnswerStore
    from headrace.model.versions import Version
    from headrace.plan.graph import Plan
    from headrace.plan.nodes import RunInference
    from headrace.plan.steps import OnError


class Memories:
    """Opens the stores of answers that a plan's model stages use.

    Answers of `durability="row"` lie beside the journal of the first output behind the stage, of a local one if there
    is one, and go when all outputs are finished. Rows that the caller collects are not gone on with by a later run, so
    that nothing is kept.
    """

    def __init__(self, plan: Plan, committers: Mapping[int, Committer]) -> None:
        """`committers` are those of the plan's outputs, and open by the time that a memory is asked for."""
        self._plan, self._committers = plan, committers
        self._rows: dict[int, AnswerStore | AnswerMirror] = {}
        """By the output beside which they lie."""
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
        if node.durability != "row" and node.cache is None:
            return None
        from headrace.engine.recall import Memory, Recall  # modules that few jobs need

        own = equal = None
        name = self._plan.name_of(node)
        if node.durability == "row" and (claim := self._claim_for(node)) is not None:
            if id(claim) not in self._rows:
                self._rows[id(claim)] = claim.home.open_answers(claim.journal)
            kept = self._rows[id(claim)]
            own = Memory(kept, name, by_row=True, filled=kept.exists)
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

    def _claim_for(self, node: RunInference) -> Claim | None:
        outputs = [o for o in self._plan.outputs if isinstance(o, Write) and node in nodes_behind(self._plan, o)]
        claims = [self._committers[id(output)].claim for output in outputs]
        keeping = [claim for claim in claims if claim.home.keeps_answers]
        if outputs and not keeping:
            raise PlanError(
                f"step {self._plan.name_of(node)!r} has durability='row', which keeps answers beside an output's files,"
                f" and {outputs[0].sink.name} has none; write to a folder or URL, or pass cache=PredictionCache(…)"
            )
        return min(keeping, key=lambda claim: local_path(claim.home.output or "") is None, default=None)
