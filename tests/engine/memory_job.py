"""One run under memory_limit="1GB", in a process of its own: `python -m tests.engine.memory_job run KIND FOLDER`.

Prints JSON: rows written, and the peak of this process, as the system counted it, or with its workers, as they were
seen every 50 ms, whichever is larger.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from headrace.dataset.job import Job

Isolation = Literal["thread", "process"]

CELL_BYTES = 200_000_000


class Length(hr.ModelHandler):
    """A model that answers with twice the length."""

    def load_model(self) -> int:
        return 2

    def run_inference(self, batch: Any, model: int, inference_args: Any = None) -> list[int]:
        return [int(value) * model for value in batch]


class SlowPart:
    """Takes its time over every batch, and keeps nothing."""

    def write(self, batch: pa.RecordBatch) -> None:
        time.sleep(0.02)

    def prepare(self) -> str:
        return "nothing"

    def discard(self) -> None: ...


class SlowSink:
    """A store that is slower than everything before it."""

    name, folder = "slow", None

    def check(self, schema: pa.Schema) -> None: ...
    def open_part(self, number: int, schema: pa.Schema, staging: str) -> SlowPart:
        return SlowPart()

    def publish(self, receipt: str) -> None: ...
    def holds_late_columns(self) -> bool:
        return True

    def rewrite(self, receipt: str, schema: pa.Schema, staging: str) -> None: ...


def noise() -> str:
    """Return a cell that nothing makes smaller by much."""
    codes = np.random.default_rng(0).integers(ord("0"), ord("Z"), CELL_BYTES, dtype=np.uint8)
    return codes.tobytes().decode()


def make_giant(folder: Path, source: str, kind: str, *_: str) -> None:
    """Write 2,000 rows, of which one has a cell of 200 MB."""
    path = folder / f"in.{source}"
    text = ("lorem ipsum dolor sit amet " * (CELL_BYTES // 27 + 1))[:CELL_BYTES]
    cell = noise() if kind == "noise" else text
    rows = [(i, cell if i == 1_000 else f"small {i}") for i in range(2_000)]
    if source == "parquet":
        pq.write_table(pa.table({"id": [i for i, _ in rows], "text": [text for _, text in rows]}), path)
        return
    form = '{},"{}"\n' if source == "csv" else '{{"id": {}, "text": "{}"}}\n'
    with open(path, "w") as file:
        file.write("id,text\n" if source == "csv" else "")
        for row in rows:
            file.write(form.format(*row))


def giant(folder: Path, source: str, kind: str, sink: str, isolation: Isolation = "thread") -> Job:
    """One cell of 200 MB among 2,000 rows, through a step and a model."""
    read = {"csv": hr.read_csv, "json": hr.read_json, "parquet": hr.read_parquet}[source]
    # Not left open: on a slow machine a worker process would join at some time, or not.
    ds = read(str(folder / f"in.{source}")).map(lambda row: {**row, "length": len(row["text"])}, isolation=isolation)
    ds = ds.run_inference(Length(), inputs="length", isolation=isolation)
    write = {"csv": ds.write_csv, "json": ds.write_json, "parquet": ds.write_parquet}[sink]
    return write(str(folder / "out"))


def slow(folder: Path) -> Job:
    """3 GB of rows that are made at once, and a sink that takes its time."""
    ds = hr.range(6_000_000).map_batches(
        lambda batch: {"id": batch["id"], "vector": np.repeat(batch["id"], 64).reshape(-1, 64)}, batch_size=8_192
    )
    return ds.write(SlowSink())


def fan(folder: Path) -> Job:
    """100 rows, each of which becomes 10,000."""
    ds = hr.range(100).flat_map(lambda row: ({"id": row["id"], "child": i, "text": "x" * 200} for i in range(10_000)))
    return ds.filter(lambda row: row["child"] >= 0).write_parquet(str(folder / "out"))


def make_tiny(folder: Path, number: str) -> None:
    """Write very many files of one row."""
    for i in range(int(number)):
        place = folder / "in" / f"{i // 1_000:04}"
        if i % 1_000 == 0:
            place.mkdir(parents=True)
        with open(place / f"{i}.jsonl", "w") as file:
            file.write(f'{{"id": {i}, "text": "number {i}"}}\n')


def tiny(folder: Path, number: str) -> Job:
    """A folder of very many files of one row."""
    return hr.read_json(str(folder / "in")).run_inference(Length(), inputs="id").write_parquet(str(folder / "out"))


def run(job: Job) -> None:
    """Run a job and print what it took."""
    began = time.perf_counter()
    result = job.run(memory_limit="1GB")
    taken = {
        "rows": result.rows_written,
        "peak_bytes": result.statistics.peak_memory_bytes,
        "secs": time.perf_counter() - began,
    }
    print(json.dumps({**taken, "pressed_secs": result.statistics.memory_pressure_secs}))


if __name__ == "__main__":
    phase, kind, folder, *arguments = sys.argv[1:]
    if phase == "make":  # in a process of its own, since it takes memory too
        globals()[f"make_{kind}"](Path(folder), *arguments)
    else:
        run(globals()[kind](Path(folder), *arguments))
