"""One of the jobs that chaos kills. JOB SOURCE MODEL OUT CALLS SECS_A_ROW ROWS_A_PART"""

from __future__ import annotations

import sys
import time
from typing import Any

import headrace as hr
from benchmarks.calls import noted
from headrace.handlers.sklearn import SklearnModelHandler

FEATURES = ["age", "monthly_spend", "tenure_months", "tickets"]


class Scoring(SklearnModelHandler):
    """A model that takes its time, and notes what it was asked."""

    def __init__(self, path: str, calls: str, secs_a_row: float) -> None:
        super().__init__(path, proba_column=1)
        self.calls, self.secs_a_row = calls, secs_a_row

    def run_inference(self, batch: Any, model: Any) -> Any:
        with noted(self.calls, batch["customer_id"].to_pylist()):
            time.sleep(self.secs_a_row * batch.num_rows)
            return super().run_inference(batch.select(FEATURES), model)


class Slow:
    """A row function that waits for something outside, and notes what it was asked."""

    def __init__(self, calls: str, secs_a_row: float) -> None:
        self.calls, self.secs_a_row = calls, secs_a_row

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        with noted(self.calls, [row["customer_id"]]):
            time.sleep(self.secs_a_row)
            return {**row, "answer": 3 * row["customer_id"]}


class Paid(hr.ModelHandler):
    """A model whose every answer costs money, and is noted."""

    def __init__(self, calls: str, secs_a_row: float) -> None:
        self.calls, self.secs_a_row = calls, secs_a_row

    def load_model(self) -> None:
        """Load nothing."""

    def run_inference(self, batch: Any, model: None) -> Any:
        ids = [row["customer_id"] for row in batch]
        with noted(self.calls, ids):
            time.sleep(self.secs_a_row * len(ids))
            return [3 * i for i in ids]


def behind(row: dict[str, Any]) -> dict[str, Any]:
    """Hold rows up behind the model, so that many of its answers wait."""
    time.sleep(0.004)
    return row


def picky(row: dict[str, Any]) -> dict[str, Any]:
    """Fail at times; later rows bring a column that the first ones do not have, and come in a block of their own."""
    time.sleep(0.0003)
    number = row["customer_id"]
    if number % 97 == 13:
        raise ValueError("a row that nobody can use")
    return {**row, "remark": f"late {number}"} if number >= 500 else row


def main() -> None:
    """Run the job to its end, or to ours."""
    name, source, model, out, calls, secs_a_row, rows_a_part = sys.argv[1:]
    noting, parts = (calls, float(secs_a_row)), {"rows_per_part": int(rows_a_part)}
    rows = hr.read_json(f"{source}/*.jsonl")
    if name == "paid-rows":
        paid = rows.run_inference(
            Paid(*noting), output="answer", isolation="process", max_batch_size=20, durability="row"
        )
        paid.map(behind).write_json(out, **parts).run()
        return
    if name == "json-rows":
        rows.map(Slow, args=noting, isolation="process", concurrency=2).write_json(out, **parts).run()
        return
    customers = hr.read_csv(f"{source}/*.csv")
    if name == "two-sinks":
        customers = customers.map(picky, isolation="process", concurrency=1)
    inputs = ["customer_id", *FEATURES]
    scored = customers.run_inference(
        Scoring(model, *noting), inputs=inputs, output="score", isolation="process", max_batch_size=100
    )
    if name == "csv-model":
        scored.write_parquet(out, **parts).run()
    else:
        good = scored.filter(lambda row: row["score"] > 0.5)
        jobs = scored.write_parquet(f"{out}/all", **parts), good.write_csv(f"{out}/good", **parts)
        hr.run(*jobs, on_error="dead_letter")


if __name__ == "__main__":
    main()
