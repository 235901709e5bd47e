import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.budget import LEAST_BYTES, OWN_BYTES, READER_BYTES, WORKER_BYTES, Budget
from headrace.errors import PlanError
from headrace.plan.graph import Plan
from headrace.plan.stages import Stage, fuse
from headrace.testing import FakeModelHandler

GB = 2**30


def stages(*, cores: int = 2) -> tuple[Stage, ...]:
    ds = hr.range(10).map(lambda row: row).run_inference(FakeModelHandler(float), inputs="id")
    return fuse(Plan([ds.write_json("one", name="a").node, ds.write_csv("two", name="b").node]), cores=cores)


def total(budget: Budget, plan: tuple[Stage, ...]) -> int:
    """Add up what everything may hold at once."""
    nbytes = OWN_BYTES + budget.held_bytes
    for stage in plan:
        if stage.kind == "read":
            nbytes += READER_BYTES * min(stage.replicas, budget.readers)
        else:
            nbytes += budget.loading_inbox_bytes if stage.kind == "model" else budget.channel_bytes
        if stage.max_process_replicas:
            nbytes += WORKER_BYTES * min(stage.max_process_replicas, budget.workers)
        if stage.kind == "output":
            nbytes += budget.committer_bytes + budget.backlog_bytes
    return nbytes


def test_large_limits_leave_every_figure_as_it_is_best_for_speed() -> None:
    roomy, best = Budget.of(8 * GB, stages=stages()), Budget()
    for name in ("channel", "model_inbox", "loading_inbox", "held", "committer", "backlog"):
        assert getattr(roomy, f"{name}_bytes") == getattr(best, f"{name}_bytes"), name
    assert roomy.readers >= 2
    assert roomy.workers >= 2


@given(limit=st.integers(LEAST_BYTES, 64 * GB), cores=st.integers(1, 128))
def test_the_shares_add_up_to_no_more_than_the_limit(limit: int, cores: int) -> None:
    plan = stages(cores=cores)
    budget = Budget.of(limit, stages=plan)
    one_each = OWN_BYTES + READER_BYTES + WORKER_BYTES  # nothing runs with less
    assert total(budget, plan) <= max(limit, one_each)
    assert budget.readers >= 1
    assert budget.workers >= 1


def test_where_there_are_many_cores_replicas_are_fewer_before_queues_are_empty() -> None:
    tight = Budget.of(GB, stages=stages(cores=64))
    assert 1 <= tight.readers < 64
    assert tight.channel_bytes > 2**19


def test_worker_processes_that_were_asked_for_leave_less_for_queues() -> None:
    ds = hr.range(10).map(lambda row: row, concurrency=4, isolation="process")
    plan = fuse(Plan([ds.write_json("one").node]), cores=2)
    assert Budget.of(GB, stages=plan).held_bytes < Budget().held_bytes


def test_a_limit_too_small_for_any_run_is_refused_with_the_numbers() -> None:
    with pytest.raises(PlanError, match=r"memory_limit is 100\.0 MB, but a run takes 268\.4 MB"):
        Budget.of(100_000_000, stages=())
