"""Wiring: which sink records the failures of which step."""

import headrace as hr
from headrace.engine.budget import Budget
from headrace.engine.commit.done import Done
from headrace.engine.memories import Memories
from headrace.engine.memory import MemoryWatch
from headrace.engine.options import ExecutionOptions
from headrace.engine.output_stage import WriteStage
from headrace.engine.side_inputs import SideInputs
from headrace.engine.state import RunState
from headrace.engine.wiring import Wiring
from headrace.plan.graph import Plan
from headrace.plan.stages import fuse


class OpenOutput:
    """As much of a committer as wiring looks at."""

    done, retrying = Done(), None

    class claim:
        class journal:
            """Without an entry."""

            class file:
                @staticmethod
                def meta(key):
                    return None


def owned(*jobs) -> list[set[str]]:
    """Return the names of the steps that each job's sink records."""
    plan = Plan([job.node for job in jobs])
    stages = fuse(plan, cores=1)
    wiring = Wiring(
        plan,
        RunState(),
        ExecutionOptions(),
        stages=stages,
        budget=Budget.of(2**30, stages=stages),
        memory=MemoryWatch(2**30),
        splits={id(read): read.source.splits() for read in plan.reads()},
        committers={id(job.node): OpenOutput() for job in jobs},
        on_split=lambda read, index: None,
        memories=Memories(plan, {}),
        side_inputs=SideInputs(plan),
    )
    writes = [stage for stage in wiring.build() if isinstance(stage, WriteStage)]
    by_node = {id(stage.stage.head): stage._owned for stage in writes}
    return [set(by_node[id(job.node)]) - {job.node.name.rstrip("\0")} for job in jobs]


def step(ds, name: str):
    return ds.map(lambda row: row, name=name)


def test_the_only_sink_records_all() -> None:
    ds = step(hr.range(3), "a")
    assert owned(ds.write_json("one")) == [{"range", "a"}]


def test_steps_before_a_branch_are_the_first_sink_s_and_those_behind_it_are_their_own() -> None:
    shared = step(hr.range(3), "a")
    one, two = step(shared, "b").write_json("one", name="w1"), step(shared, "c").write_json("two", name="w2")
    assert owned(one, two) == [{"range", "a", "b"}, {"c"}]


def test_a_sink_behind_a_limit_does_not_see_all_rows_so_the_other_records() -> None:
    shared = step(hr.range(3), "a")
    one, two = shared.limit(1).write_json("one", name="w1"), shared.write_json("two", name="w2")
    assert owned(one, two) == [{"limit"}, {"range", "a"}]


def test_a_limit_s_own_sink_records_where_there_is_no_other() -> None:
    ds = step(step(hr.range(3), "a").limit(1), "b")
    assert owned(ds.write_json("one")) == [{"range", "a", "limit", "b"}]
