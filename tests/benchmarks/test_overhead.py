import json
import sys

import pyarrow.parquet as pq

from benchmarks.process import output_of


def test_everything_that_is_watched_is_there_and_some_of_it_runs(tmp_path):
    out = tmp_path / "out"
    secs = json.loads(output_of([sys.executable, "-m", "benchmarks.programs.headrace_overhead", "50000", str(out)]))
    assert 0 < secs["journal"] < secs["whole"]
    assert 0 < secs["statistics"] < secs["whole"]
    assert secs["calls"]["journal"] > 5
    assert pq.read_table(out).num_rows == 50_000
