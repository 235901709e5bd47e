from __future__ import annotations

import json

from headrace.metrics.report import Report
from headrace.metrics.statistics import (
    ModelChange,
    ModelStatistics,
    RunStatistics,
    SinkStatistics,
    SourceStatistics,
    StageStatistics,
    StepStatistics,
    UpdateStatistics,
)


def run_of_forty() -> RunStatistics:
    model = ModelStatistics(
        handler="Net", load_secs=0.5, batches=5, rows=40, batch_rows_histogram={8: 5}, latency_p50_secs=0.01
    )
    steps = (
        StepStatistics(name="clean", rows_in=40, rows_out=38, filtered=2),
        StepStatistics(name="infer_1", rows_in=38, rows_out=35, failed=3),
    )
    return RunStatistics(
        elapsed_secs=4.0,
        done=True,
        peak_memory_bytes=120_000_000,
        sources=(SourceStatistics(name="read_csv(in.csv)", rows=40, splits=2, splits_read=2, bytes_read=4_000),),
        stages=(
            StageStatistics(name="clean", replicas=2, busy=0.2, starved=0.8, steps=steps[:1]),
            StageStatistics(name="infer_1", replicas=1, busy=0.9, starved=0.1, steps=steps[1:], model=model),
        ),
        sinks=(
            SinkStatistics(
                name="write_csv(out)", rows=35, parts=1, dead_letters=3, dead_letters_folder="out/_dead_letters"
            ),
        ),
    )


def test_text_names_sources_stages_sinks_balance_and_bottleneck() -> None:
    lines = str(Report(run_of_forty())).splitlines()
    assert lines[0].split() == ["read_csv(in.csv)", "40", "rows", "2", "of", "2", "splits"]
    assert "  clean" in lines[2]
    assert "2 filtered" in lines[2]
    assert "3 failed" in lines[4]
    assert "3 dead letters in out/_dead_letters" in lines
    assert "read 40 = written 35 + failed 3 + filtered 2" in lines
    assert lines[-1].startswith("infer_1 is the bottleneck: busy 90 % of the time.")


def test_counts() -> None:
    report = Report(run_of_forty())
    assert (report.failed, report.with_error, report.dead_letters, report.rows_per_sec) == (3, 0, 3, 10.0)


def test_dict_survives_json() -> None:
    report = Report(run_of_forty())
    value = json.loads(json.dumps(report.to_dict()))
    assert value == report.to_dict()
    assert value["balance"]["holds"] is True
    assert value["statistics"]["stages"][1]["model"]["batch_rows_histogram"] == {"8": 5}


def test_nothing_at_all() -> None:
    report = Report(RunStatistics(done=True))
    assert str(report.balance()) == "read 0; failed 0, filtered 0"
    assert "0 rows/s" in str(report)
    assert report.bottleneck == "No stage had anything to do: the input holds no rows."


def test_all_found_finished() -> None:
    report = Report(
        RunStatistics(
            done=True,
            sources=(SourceStatistics(name="read", splits=3, splits_found_finished=3),),
            sinks=(SinkStatistics(name="write", rows=40, rows_before=40, dead_letters=2, dead_letters_before=2),),
        )
    )
    assert report.bottleneck == "Nothing was left to do: an earlier run of the same job had finished it."
    assert report.dead_letters == 2
    assert "3 found finished" in str(report)
    assert "40 of the rows from earlier runs" in str(report)
    assert "2 dead letters, 2 of them from earlier runs" in str(report)


def test_only_rows_of_this_run_are_in_its_balance() -> None:
    statistics = RunStatistics(
        sources=(SourceStatistics(name="read", rows=10, splits=2, splits_read=1, splits_found_finished=1),),
        sinks=(SinkStatistics(name="write", rows=50, rows_before=40, dead_letters=2, dead_letters_before=2),),
    )
    report = Report(statistics)
    assert str(report.balance()) == "read 10 = written 10 + failed 0 + filtered 0"
    assert report.dead_letters == 2


def test_nulls_for_failed_answers_are_counted() -> None:
    step = StepStatistics(name="infer", rows_in=3, rows_out=3, with_error=1)
    statistics = RunStatistics(stages=(StageStatistics(name="infer", steps=(step,)),))
    assert Report(statistics).with_error == 1


def test_a_running_job_says_so() -> None:
    assert "running for 2.0 s" in str(Report(RunStatistics(elapsed_secs=2.0)))


def test_shares_are_those_of_the_run_and_long_names_are_cut() -> None:
    stage = StageStatistics(name="read", replicas=1, busy=1.0, secs=2.0)
    source = SourceStatistics(name=f"read_csv({'x' * 500}.csv)")
    lines = str(Report(RunStatistics(elapsed_secs=10.0, sources=(source,), stages=(stage,)))).splitlines()
    assert "busy 20 %" in lines[1]
    assert lines[0].startswith("read_csv(xxx")
    assert "….csv)" in lines[0].replace("x", "")
    assert all(len(line) < 120 for line in lines)


def test_changes_of_a_model_are_told_the_last_of_them_only() -> None:
    changes = tuple(ModelChange(model_id=f"v{n}.pkl@abc", rows_before=100 * n, at_secs=n) for n in range(25))
    bad = ModelChange(model_id="v25.pkl", rows_before=2450, rejected="ValueError: it breaks off")
    updates = UpdateStatistics(model_id="v24.pkl@abc", switches=24, rejected=1, changes=(*changes, bad))
    text = str(Report(RunStatistics(stages=(StageStatistics(name="score", updates=updates),))))
    assert "now v24.pkl@abc, 24 switches, 1 version rejected" in text
    assert "score: 6 earlier versions" in text
    assert "v5.pkl" not in text
    assert "score: v6.pkl@abc answers from row 600 on" in text
    assert "score: v25.pkl is rejected at row 2,450 (after 0.0 s): ValueError: it breaks off" in text
