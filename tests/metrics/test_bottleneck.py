from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.metrics.bottleneck import bottleneck_of
from headrace.metrics.statistics import ModelStatistics, RunStatistics, SourceStatistics, StageStatistics


def stage(
    name: str, busy: float, starved: float = 0.0, blocked: float = 0.0, *, load_secs: float | None = None
) -> StageStatistics:
    model = ModelStatistics(handler="Net", load_secs=load_secs) if load_secs is not None else None
    return StageStatistics(name=name, busy=busy, starved=starved, blocked=blocked, model=model)


def said(*stages: StageStatistics, elapsed_secs: float = 100.0) -> str:
    return bottleneck_of(RunStatistics(elapsed_secs=elapsed_secs, done=True, stages=stages))


def test_the_busiest_is_named_and_a_busy_model_is_not_blamed() -> None:
    text = said(stage("read", 0.3, blocked=0.7), stage("infer_1", 0.98, 0.02, load_secs=1.0))
    assert text == "infer_1 is the bottleneck: busy 98 % of the time."


def test_a_model_starved_by_what_comes_before() -> None:
    text = said(stage("read", 0.2), stage("map_1", 0.99), stage("infer_1", 0.4, 0.6, load_secs=1.0))
    assert text.endswith("The model of infer_1 was idle 60 % of the time: starved by map_1 60 %.")


def test_a_model_blocked_by_what_comes_after() -> None:
    text = said(stage("infer_1", 0.4, 0.0, 0.6, load_secs=1.0), stage("map_2", 0.9))
    assert "blocked by map_2 60 %" in text


def test_first_and_last_stages_wait_for_source_and_sink() -> None:
    text = said(stage("infer_1", 0.2, 0.3, 0.5, load_secs=1.0), stage("infer_2", 0.3, 0.3, 0.4, load_secs=1.0))
    assert "starved by the source 30 %, blocked by infer_2 50 %" in text


def test_loading_takes_most_of_a_short_job() -> None:
    text = said(stage("infer_1", 0.1, 0.2, load_secs=0.9), elapsed_secs=1.2)
    assert text.startswith("Loading the model took 0.9 s of 1.2 s.")


def test_loading_is_named_even_where_all_stages_were_busy() -> None:
    text = said(stage("read", 1.0), stage("infer_1", 0.97, load_secs=0.9), elapsed_secs=1.0)
    assert text == "Loading the model took 0.9 s of 1.0 s."


def test_output_and_input_may_be_the_bottleneck() -> None:
    assert said(stage("map_1", 0.2, 0.0, 0.8)).startswith("The output is the bottleneck: map_1 waited for it 80 %")
    assert said(stage("map_1", 0.2, 0.8, 0.0)).startswith("Reading is the bottleneck: map_1 waited for rows 80 %")


def test_nothing_stands_out() -> None:
    assert said(stage("map_1", 0.4, 0.3, 0.3)).startswith("No stage is the bottleneck: the busiest, map_1, worked 40 %")


def test_rows_without_measured_stages() -> None:
    run = RunStatistics(done=True, sources=(SourceStatistics(name="read", rows=3),))
    assert bottleneck_of(run) == "No stage worked long enough to be measured."


def test_before_the_start() -> None:
    assert bottleneck_of(RunStatistics()) == "No stage has worked yet."


shares = st.floats(0, 1, allow_nan=False)


@given(st.lists(st.builds(stage, st.sampled_from("abc"), shares, shares, shares, load_secs=st.none() | shares)), shares)
def test_always_a_sentence(stages: list[StageStatistics], elapsed: float) -> None:
    text = said(*stages, elapsed_secs=elapsed)
    assert text.endswith(".")
    assert "nan" not in text


def test_an_idle_rerun_is_not_called_busy() -> None:
    run = RunStatistics(
        done=True,
        sources=(SourceStatistics(name="read", splits=1, splits_found_finished=1),),
        stages=(stage("read", 0.9),),
    )
    assert bottleneck_of(run).startswith("Nothing was left to do")


def test_a_stage_that_ended_early_was_not_busy_all_the_time() -> None:
    read = StageStatistics(name="read", replicas=2, busy=1.0, secs=2.0)
    slow = StageStatistics(name="infer_1", replicas=1, busy=0.9, starved=0.1, secs=10.0)
    run = RunStatistics(elapsed_secs=10.0, done=True, stages=(read, slow))
    assert bottleneck_of(run) == "infer_1 is the bottleneck: busy 90 % of the time."
