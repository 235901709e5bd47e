import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import poison
from benchmarks.poison import COMMON, Job, misplaced
from benchmarks.poison_rows import poisoned


@pytest.mark.parametrize("one_in", [COMMON, 1_000])
def test_about_one_row_in_so_many_is_poison(one_in):
    assert poisoned(np.arange(1_000_000), one_in).sum() == pytest.approx(1_000_000 / one_in, rel=0.1)


def test_a_row_in_the_wrong_place_is_noticed(tmp_path):
    rows = 300
    bad = np.flatnonzero(poisoned(np.arange(rows), COMMON)).tolist()
    sound = [i for i in range(rows) if i not in bad]
    assert bad
    letters = tmp_path / "_dead_letters"
    letters.mkdir()

    def write(sound, bad):
        pq.write_table(pa.table({"id": sound}), tmp_path / "part.parquet")
        (letters / "failures.jsonl").write_text("".join(json.dumps({"row": {"id": i}}) + "\n" for i in bad))

    write(sound, bad)
    assert misplaced(tmp_path, rows, COMMON) == 0
    write([*sound, sound[0]], bad[1:])
    assert misplaced(tmp_path, rows, COMMON) == 2


def test_a_run_tells_its_seconds_and_calls(tmp_path, monkeypatch):
    monkeypatch.setattr(poison, "WORK", tmp_path)
    job = Job(20_000, COMMON)
    assert job() > 0
    assert job.not_exact == 0
    assert 0.01 < job.calls[0] < 0.15
