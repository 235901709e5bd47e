from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.engine.commit.committer import Committer
from headrace.engine.commit.disk_budget import DiskBudget
from headrace.engine.commit.identity import JobIdentity
from headrace.errors import SinkError
from headrace.records.block import Block, Unit, dense_block
from headrace.records.position import END
from headrace.sinks.parquet import ParquetSink

UNITS = [Unit(i) for i in range(15)]


def unit_block(split: int) -> Block:
    batch = pa.record_batch({"id": np.arange(1_000) + 1_000 * split})
    return replace(dense_block(batch, split=split, first=0), end=END)


def opened(out: Path, disk_bytes: int | None) -> Committer:
    committer = Committer(
        ParquetSink(str(out)),
        identity=JobIdentity(),
        units=UNITS,
        memory_budget_bytes=9_000,
        rows_per_part=1_000,
        disk=DiskBudget(disk_bytes),
        clock=lambda: 0.0,
    )
    committer.open()
    return committer


def test_half_of_the_budget_used_up_only_the_split_that_is_waited_for_may_begin(tmp_path: Path) -> None:
    committer = opened(tmp_path / "out", 150_000)
    waits = []
    for split in range(5, 14):
        committer.put(unit_block(split))
        waits.append(committer.waits_for)
    assert waits[:4] == [None] * 4
    assert waits[-1] == 0
    while (split := committer._arrivals.needed_split) is not None:
        committer.put(unit_block(split))
    assert committer.waits_for is None
    committer.finish()
    assert [row["id"] for row in hr.read_parquet(str(tmp_path / "out")).iter_rows()] == list(range(15_000))


def test_a_used_up_budget_is_one_clear_error_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    committer = opened(tmp_path / "out", 20_000)
    with pytest.raises(SinkError, match=r"wait for earlier ones would take more than disk_limit=20,000 bytes of .*out"):
        for split in (5, 6, 7, 8):
            committer.put(unit_block(split))
    committer.abort()
    again = opened(tmp_path / "out", None)
    saved = again.done.rows
    assert saved >= 1_000
    for split in range(15):
        for block in again.done.missing(unit_block(split)):
            again.put(block)
    again.finish()
    assert [row["id"] for row in hr.read_parquet(str(tmp_path / "out")).iter_rows()] == list(range(15_000))
    assert again.statistics().rows == 15_000


def test_a_reserve_of_free_space_is_left(tmp_path: Path) -> None:
    everything = os.statvfs(tmp_path).f_frsize * os.statvfs(tmp_path).f_blocks
    budget = DiskBudget(reserve_bytes=everything)
    assert not budget.tight(str(tmp_path))  # nothing is there that could leave
    with pytest.raises(SinkError, match="free, of which .* are left alone"):
        budget.take(1, str(tmp_path))


def test_what_is_given_back_counts_no_longer(tmp_path: Path) -> None:
    budget = DiskBudget(1_000, reserve_bytes=0)
    budget.take_over(900)
    assert budget.tight(str(tmp_path))
    budget.give_back(900)
    assert not budget.tight(str(tmp_path))
    budget.take(1_000, str(tmp_path))


def test_a_run_takes_the_limit_as_text(tmp_path: Path) -> None:
    result = hr.range(1_000).write_json(str(tmp_path / "out")).run(disk_limit="1MB")
    assert result.rows_written == 1_000
