"""When worker processes join the threads of a stage."""

import pytest

from headrace.engine.channel import Channel
from headrace.engine.outlet import Outlet
from headrace.engine.state import RunState
from headrace.engine.step_stage import CPU_SECS_BEFORE_WORKERS, LOCKED_SECS, StepStage
from headrace.plan.stages import Stage

CORES = 4
ENOUGH = 1.01 * CPU_SECS_BEFORE_WORKERS


class Stepping(StepStage):
    """A stage that only counts the replicas that it adds."""

    def __init__(self, *, native: bool) -> None:
        plan = Stage(
            name="stage",
            kind="steps",
            nodes=(),
            replicas=CORES if native else 1,
            isolation="auto",
            max_process_replicas=CORES,
            native=native,
        )
        inbox = Channel(budget_bytes=1, producers=1)
        super().__init__(plan, RunState(), Outlet([]), inbox, make_task=lambda: None, make_process=lambda *_: None)
        self.added = 0

    def add_replica(self) -> None:
        self.added += 1


def test_workers_join_once_python_code_has_taken_long_enough() -> None:
    stage = Stepping(native=False)
    stage.used_cpu(ENOUGH / 2, 1)
    assert stage.added == 0
    stage.used_cpu(ENOUGH / 2, 1)
    assert stage.added == CORES - 1, "the thread stays"
    stage.used_cpu(ENOUGH, 1)
    assert stage.added == CORES - 1, "once"


@pytest.mark.parametrize(
    ("row_secs", "workers"), [(1.1 * CORES * LOCKED_SECS, 0), (0.9 * CORES * LOCKED_SECS, CORES - 1)]
)
def test_threads_do_for_native_code_unless_rows_are_tiny(row_secs: float, workers: int) -> None:
    stage = Stepping(native=True)
    for _ in range(2):
        stage.used_cpu(ENOUGH, round(ENOUGH / row_secs))
    assert stage.added == workers
