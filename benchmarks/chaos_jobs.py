"""The jobs that chaos kills: their inputs, and what must come out, worked out here without Headrace."""

from __future__ import annotations

import json
import pickle
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.benchmark import DATA
from benchmarks.generators import customers, feature_matrix, write_churn_model, write_customers
from benchmarks.watching import rows_of

if TYPE_CHECKING:
    from pathlib import Path

KEY = "customer_id"
FILES = 8
PARTS = 4
"""So few that a part fills slowly, and rows wait for it in segments."""
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One folder that a job fills: which rows it shall hold in the end, and their answers."""

    folder: str
    """Within the job's output; "" for the output itself."""
    answer: str | None
    """The column of answers; None for dead letters, which have none."""
    expected: dict[int, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosJob:
    """One job of `programs/chaos_job.py` over so many rows."""

    name: str
    rows: int
    secs_a_row: float
    """How long the model, or the row function, takes."""
    child: str
    """What the processes beside the main one are."""
    patience_secs: float = 2.0
    """Finished work as old as this must be safe: rows are flushed after 0.1 s, at the latest after 1 s."""

    @property
    def source(self) -> Path:
        """The folder of its input."""
        return DATA / f"chaos-{self.name}-{self.rows}"

    def write_input(self) -> None:
        """Write the input, once."""
        write_churn_model(DATA / "churn.pkl")
        if not self._reads_json:
            write_customers(self.source, rows=self.rows, files=FILES)
            return
        if self.source.exists():
            return
        self.source.mkdir(parents=True)
        each = self.rows // FILES
        for number in range(FILES):
            rows = customers(each, first_id=number * each).to_pylist()
            (self.source / f"part-{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def command(self, out: Path, calls: Path) -> list[str]:
        """Return the command that runs it."""
        program = [sys.executable, "-m", "benchmarks.programs.chaos_job", self.name]
        places = [str(path) for path in (self.source, DATA / "churn.pkl", out, calls)]
        return [*program, *places, str(self.secs_a_row), str(self.rows // PARTS)]

    def outputs(self) -> list[Output]:
        """Return what must come out."""
        ids = range(self.rows)
        if self._reads_json:
            return [Output(folder="", answer="answer", expected={i: 3 * i for i in ids})]
        scores = self._scores()
        if self.name == "csv-model":
            return [Output(folder="", answer="score", expected=scores)]
        good = {i: score for i, score in scores.items() if i % 97 != 13}
        bad: dict[int, Any] = {i: None for i in ids if i % 97 == 13}
        return [
            Output(folder="all", answer="score", expected=good),
            Output(folder="good", answer="score", expected={i: s for i, s in good.items() if s > 0.5}),
            Output(folder="all/_dead_letters", answer=None, expected=bad),
        ]

    @property
    def _reads_json(self) -> bool:
        return self.name in ("json-rows", "paid-rows")

    def _scores(self) -> dict[int, float]:
        model = pickle.loads((DATA / "churn.pkl").read_bytes())
        each = self.rows // FILES
        tables = [customers(each, first_id=number * each) for number in range(FILES)]
        return {
            int(key): float(score)
            for table in tables
            for key, score in zip(table[KEY].to_pylist(), model.predict_proba(feature_matrix(table))[:, 1], strict=True)
        }


@dataclass(slots=True)
class Faults:
    """What was wrong with an output in the end."""

    lost: int = 0
    twice: int = 0
    wrong: int = 0


def faults_of(out: Path, outputs: list[Output]) -> Faults:
    """Compare what is there with what must be there."""
    faults = Faults()
    for output in outputs:
        found = rows_of(out / output.folder, KEY, output.answer)
        counts = Counter(key for key, _ in found)
        faults.lost += len(output.expected.keys() - counts.keys())
        faults.twice += sum(count - 1 for count in counts.values())
        faults.wrong += sum(
            key not in output.expected or not _same(answer, output.expected[key]) for key, answer in found
        )
    return faults


def _same(answer: Any, expected: Any) -> bool:
    return answer == expected or (isinstance(expected, float) and abs(answer - expected) <= TOLERANCE)
