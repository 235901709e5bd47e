from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.commit.failed import FailedRow
from headrace.engine.commit.merging import Run, cut, merged, moved
from headrace.engine.commit.retrying import Answered

outcomes = st.lists(st.sampled_from(["main", "main", "filtered", "first", "second", "never"]), max_size=40)


@given(rows=outcomes, part_rows=st.integers(1, 5), children=st.integers(1, 3))
def test_all_rows_stand_in_the_order_of_the_input(rows: list[str], part_rows: int, children: int) -> None:
    """`rows` are input rows: written at once, by a first or a second retry, or never."""
    written = [i for i, outcome in enumerate(rows) if outcome == "main"]
    content: dict[int, list[int]] = {}
    for start in range(0, len(written), part_rows):
        content[len(content)] = written[start : start + part_rows]
    answered: list[tuple[int, Answered]] = []
    places = {i: sum(w < i for w in written) for i in range(len(rows))}
    for retry in ("first", "second"):
        late = [i for i, outcome in enumerate(rows) if outcome == retry]
        for start in range(0, len(late), part_rows):
            number, chunk = len(content), late[start : start + part_rows]
            content[number] = [i for i in chunk for _ in range(children)]
            answered += [
                (number, Answered(row=at * children, rows=children, split=0, ordinal=i, place=places[i]))
                for at, i in enumerate(chunk)
            ]
    runs = merged([Run(number, len(ids)) for number, ids in content.items()], answered)

    left = {number: iter(ids) for number, ids in content.items()}
    found = [next(left[run.part]) for run in runs for _ in range(run.rows)]
    assert found == sorted(i for ids in content.values() for i in ids)
    assert not any(True for ids in left.values() for _ in ids)

    failed = [
        FailedRow(split=0, ordinal=i, place=places[i], stage="map")
        for i, outcome in enumerate(rows)
        if outcome == "never"
    ]
    assert moved(failed, answered) == [sum(f < row.ordinal for f in found) for row in failed]


@given(runs=st.lists(st.builds(Run, st.integers(0, 3), st.integers(1, 9)), max_size=10), rows=st.integers(1, 7))
def test_parts_have_as_many_rows_as_asked_for(runs: list[Run], rows: int) -> None:
    parts = cut(runs, rows)
    sizes = [sum(run.rows for run in part) for part in parts]
    assert all(size == rows for size in sizes[:-1])
    assert all(0 < size <= rows for size in sizes[-1:])
    assert [run.part for part in parts for run in part for _ in range(run.rows)] == [
        run.part for run in runs for _ in range(run.rows)
    ]
