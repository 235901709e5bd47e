"""A job for the committer's tests: input rows with known fates, in blocks, and what must come out."""

from __future__ import annotations

import glob
import itertools
import json
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from headrace.engine.commit.committer import Committer
from headrace.engine.commit.failed import FailedRow
from headrace.engine.commit.identity import JobIdentity
from headrace.engine.commit.retrying import RetriedRow
from headrace.records.block import Block, Unit, dense_block
from headrace.records.failure import RowFailure
from headrace.records.position import END
from headrace.sinks.parquet import ParquetSink

FAILS = -1


@dataclass(frozen=True)
class Job:
    """`fates[u][i]` is how many rows input row i of unit u becomes (0: filtered out), or FAILS."""

    fates: tuple[tuple[int, ...], ...]
    block_rows: int = 10
    late_column: bool = False

    @property
    def units(self) -> list[Unit]:
        return [Unit(u) for u in range(len(self.fates))]

    def source_blocks(self) -> list[Block]:
        blocks = []
        for unit in self.units:
            total = len(self.fates[unit.split])
            starts = list(range(0, total, self.block_rows)) or [0]
            for start in starts:
                stop = min(total, start + self.block_rows)
                batch = pa.record_batch({"id": np.arange(start, stop) + 1_000 * unit.split})
                block = dense_block(batch, split=unit.split, first=start)
                blocks.append(replace(block, end=END) if start == starts[-1] else block)
        return blocks

    def process(self, block: Block) -> Block:
        fates = [self.fates[block.unit.split][block.ordinal_of(i)] for i in range(block.num_rows)]
        parents = np.repeat(np.arange(len(fates)), [max(0, f) for f in fates])
        child = np.concatenate([np.arange(max(0, f)) for f in fates]) if fates else np.array([], dtype=np.int64)
        columns = {"id": block.batch.column(0).take(pa.array(parents)), "child": pa.array(child, pa.int64())}
        if self.late_column and block.unit.split > 0:
            columns["note"] = pa.array(["late"] * len(parents), pa.string())
        failures = [
            RowFailure(
                stage="map_1",
                ordinal=block.ordinal_of(i),
                row=json.dumps({"id": block.batch.column(0)[i].as_py()}),
                error_type="ValueError",
                message="bad row",
            )
            for i, fate in enumerate(fates)
            if fate == FAILS
        ]
        return block.derive(pa.record_batch(columns), parents, failures)

    def rows(self) -> list[tuple[int, int]]:
        return [
            (1_000 * u + i, child)
            for u, fates in enumerate(self.fates)
            for i, fate in enumerate(fates)
            for child in range(fate)
        ]

    def failed(self) -> list[int]:
        return [1_000 * u + i for u, fates in enumerate(self.fates) for i, fate in enumerate(fates) if fate == FAILS]

    def retried(self, *fates: int) -> Job:
        """Return the job with its failed rows ending otherwise: by `fates` in turn, from the first again."""
        turns = itertools.cycle(fates)
        after = tuple(tuple(next(turns) if fate == FAILS else fate for fate in unit) for unit in self.fates)
        return replace(self, fates=after)


def everything(failed: Sequence[FailedRow]) -> list[RetriedRow]:
    """Choose all failed rows for a retry."""
    return [RetriedRow(split=f.split, ordinal=f.ordinal, place=f.place, attempt=f.attempt) for f in failed]


def random_cuts(block: Block, rng: random.Random) -> list[Block]:
    if block.num_rows < 2:
        return [block]
    return block.cut(sorted(rng.sample(range(1, block.num_rows), rng.randint(0, min(3, block.num_rows - 1)))))


def work_left(committer: Committer, job: Job, rng: random.Random) -> list[Block]:
    """Return the processed blocks of what is missing, cut at random, in random order."""
    missing = [m for source in job.source_blocks() for m in committer.done.missing(source)]
    if committer.retrying is not None:
        missing = [committer.retrying.select(block) for block in missing]
    pieces = [piece for block in missing for piece in random_cuts(job.process(block), rng)]
    rng.shuffle(pieces)
    return pieces


def committer_for(out: str, job: Job, **options: object) -> Committer:
    options.setdefault("sink", ParquetSink(out))
    options.setdefault("identity", JobIdentity({"input": "a", "step map_1": "b"}))
    options.setdefault("units", job.units)
    return Committer(options.pop("sink"), **options)  # type: ignore[arg-type]


def visible(out: str, pattern: str = "part-*") -> list[str]:
    return sorted(glob.glob(os.path.join(out, pattern)))


def read_rows(out: str) -> list[tuple[int, int]]:
    """Return id and child of every row in the visible parts, whatever their format."""
    rows: list[tuple[int, int]] = []
    for path in visible(out):
        if path.endswith(".parquet"):
            table = pq.read_table(path)
        elif path.endswith(".csv"):
            table = pyarrow.csv.read_csv(path)
        else:
            with open(path) as file:
                table = pa.Table.from_pylist([json.loads(line) for line in file])
        if table.num_rows:
            rows += zip(table["id"].to_pylist(), table["child"].to_pylist(), strict=True)
    return rows


def read_failures(out: str) -> list[int]:
    ids = []
    for path in visible(out, "_dead_letters/failures-*.jsonl"):
        with open(path) as file:
            ids += [json.loads(line)["row"]["id"] for line in file]
    return ids
