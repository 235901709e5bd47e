"""Which stage holds the run up, and how idle the model is and why: a decision over statistics, in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.metrics.quantities import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.metrics.statistics import RunStatistics, StageStatistics

MOSTLY = 0.5
"""A stage that works (or waits) more than this share of its time is what the others wait for."""
NOTICEABLE = 0.1


def bottleneck_of(statistics: RunStatistics) -> str:
    """Say in a sentence or two what the run's time went into, and why models waited.

    >>> from headrace.metrics.statistics import ModelStatistics, RunStatistics, StageStatistics
    >>> slow = StageStatistics(name="map_1", busy=0.97, starved=0.03, secs=10.0)
    >>> model = StageStatistics(name="net", busy=0.4, starved=0.6, secs=10.0, model=ModelStatistics(handler="Net"))
    >>> print(bottleneck_of(RunStatistics(elapsed_secs=10.0, stages=(slow, model))))
    map_1 is the bottleneck: busy 97 % of the time. The model of net was idle 60 % of the time: starved by map_1 60 %.
    """
    if _found_finished(statistics):
        return "Nothing was left to do: an earlier run of the same job had finished it."
    ran = [stage for stage in statistics.stages if stage.busy + stage.starved + stage.blocked > 0]
    if not ran:
        return _nothing_ran(statistics)
    elapsed = statistics.elapsed_secs
    busiest = max(ran, key=lambda stage: share_of_run(stage, stage.busy, elapsed))
    sentences = [_what_took_the_time(busiest, statistics)]
    for place, stage in enumerate(ran):
        if stage.model is not None and stage is not busiest and stage.starved + stage.blocked >= NOTICEABLE:
            sentences.append(_why_idle(stage, before=ran[:place], after=ran[place + 1 :]))
    return " ".join(sentences)


def share_of_run(stage: StageStatistics, share: float, elapsed_secs: float) -> float:
    """Turn a share of the replicas' own time into one of the run: a stage that has ended does nothing after it.

    >>> from headrace.metrics.statistics import StageStatistics
    >>> share_of_run(StageStatistics(name="read", replicas=2, busy=1.0, secs=4.0), 1.0, 10.0)
    0.2
    """
    if not stage.secs or not elapsed_secs:
        return share
    return min(1.0, share * stage.secs / max(stage.replicas, 1) / elapsed_secs)


def _found_finished(statistics: RunStatistics) -> bool:
    sources = statistics.sources
    return any(s.splits_found_finished for s in sources) and not any(s.splits_read or s.rows for s in sources)


def _nothing_ran(statistics: RunStatistics) -> str:
    if any(source.rows for source in statistics.sources):
        return "No stage worked long enough to be measured."
    if statistics.done:
        return "No stage had anything to do: the input holds no rows."
    return "No stage has worked yet."


def _what_took_the_time(busiest: StageStatistics, statistics: RunStatistics) -> str:
    elapsed = statistics.elapsed_secs
    loading = max((stage.model.load_secs for stage in statistics.stages if stage.model), default=0.0)
    # First, since stages count as busy while they load, or wait for what does.
    if elapsed and loading >= MOSTLY * elapsed:
        return f"Loading the model took {loading:.1f} s of {elapsed:.1f} s."
    busy, starved, blocked = (
        share_of_run(busiest, share, elapsed) for share in (busiest.busy, busiest.starved, busiest.blocked)
    )
    if busy >= MOSTLY:
        return f"{busiest.name} is the bottleneck: busy {percent(busy)} of the time."
    if blocked >= MOSTLY:
        return f"The output is the bottleneck: {busiest.name} waited for it {percent(blocked)} of the time."
    if starved >= MOSTLY:
        return f"Reading is the bottleneck: {busiest.name} waited for rows {percent(starved)} of the time."
    return f"No stage is the bottleneck: the busiest, {busiest.name}, worked {percent(busy)} of the time."


def _why_idle(stage: StageStatistics, *, before: Sequence[StageStatistics], after: Sequence[StageStatistics]) -> str:
    causes = []
    if stage.starved >= NOTICEABLE:
        causes.append(f"starved by {_busiest(before, otherwise='the source')} {percent(stage.starved)}")
    if stage.blocked >= NOTICEABLE:
        causes.append(f"blocked by {_busiest(after, otherwise='the sink')} {percent(stage.blocked)}")
    idle = percent(stage.starved + stage.blocked)
    return f"The model of {stage.name} was idle {idle} of the time: {', '.join(causes)}."


def _busiest(stages: Sequence[StageStatistics], *, otherwise: str) -> str:
    return max(stages, key=lambda stage: stage.busy).name if stages else otherwise
