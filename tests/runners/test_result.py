from __future__ import annotations

from headrace.metrics.statistics import RunStatistics, SinkStatistics, SourceStatistics
from headrace.runners.result import RunResult

RESULT = RunResult(
    RunStatistics(
        elapsed_secs=2.0,
        done=True,
        sources=(SourceStatistics(name="read", rows=5),),
        sinks=(SinkStatistics(name="write", rows=7, rows_before=3, dead_letters=4, dead_letters_before=3),),
    )
)


def test_counts_are_those_of_this_run() -> None:
    assert (RESULT.rows_written, RESULT.failed) == (4, 1)


def test_prompts_and_notebooks_show_what_people_want_to_know() -> None:
    assert repr(RESULT).startswith("<RunResult: read 5 = written 4 + failed ")
    assert repr(RESULT.report()) == str(RESULT.report())
    assert "finished in 2.0 s" in repr(RESULT.report())


def test_data_for_json() -> None:
    assert RESULT.to_dict() == RESULT.report().to_dict()
