"""Iterations that are left and gone on with, in the same process and in another."""

import itertools
import json
import subprocess
import sys
import threading

import pytest

import headrace as hr
from headrace.errors import PlanError, ResumeError
from headrace.handlers.function import FunctionModelHandler


def pipeline(items=200):
    """Filtering, fan-out and a model: rows without, with one and with several rows of output."""
    children = hr.range(items).flat_map(lambda r: ({"id": r["id"], "i": i} for i in range(r["id"] % 4)))
    double = FunctionModelHandler(lambda batch: [x * 2 for x in batch])
    return children.run_inference(double, inputs="id", max_batch_size=16)


def ids(batches) -> list[tuple[int, int]]:
    return [pair for batch in batches for pair in zip(batch["id"].tolist(), batch["i"].tolist(), strict=True)]


@pytest.mark.parametrize("size", [1, 7, 64, None])
def test_a_state_goes_on_with_the_next_row(size) -> None:
    expected = ids(pipeline().iter_batches())
    for taken in (0, 1, 3):
        batches = pipeline().iter_batches(batch_size=size)
        first = list(itertools.islice(batches, taken))
        state = json.loads(json.dumps(batches.state()))
        batches.close()
        assert ids(first) + ids(pipeline().iter_batches(batch_size=5, state=state)) == expected


def test_states_of_iterations_that_were_gone_on_with_go_on_too() -> None:
    expected = [row["id"] for row in pipeline(40).iter_rows()]
    state, got = None, []
    while True:
        rows = pipeline(40).iter_rows(state=state)
        row = next(rows, None)
        state = rows.state()
        if row is None:
            break
        got.append(row["id"])
    assert got == expected


def test_what_lies_before_the_state_is_not_computed_again(tmp_path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_text("".join(f'{{"id": {i}}}\n' for i in range(10)))
    seen = []

    def note(row):
        seen.append(row["id"])
        return row

    dataset = hr.read_json(str(tmp_path)).map(note, isolation="thread", version="1")
    rows = dataset.iter_rows()
    for _ in range(25):
        next(rows)
    state = rows.state()
    rows.close()
    seen.clear()
    assert [row["id"] for row in dataset.iter_rows(state=state)] == [5, 6, 7, 8, 9]
    assert sorted(seen) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    "dataset",
    [
        hr.range(100).random_shuffle(seed=3, buffer_rows=20),
        hr.range(100).filter(lambda r: r["id"] % 3).limit(50),
        hr.range(30).union(hr.range(30).map(lambda r: {"id": -r["id"]})),
    ],
    ids=["shuffle", "limit", "union"],
)
def test_shuffles_limits_and_unions_go_on_in_their_order(dataset) -> None:
    expected = [row["id"] for row in dataset.iter_rows()]
    rows = dataset.iter_rows()
    first = [next(rows)["id"] for _ in range(33)]
    assert first + [row["id"] for row in dataset.iter_rows(state=rows.state())] == expected


def test_shuffled_files_are_gone_on_with_in_their_shuffled_order(tmp_path) -> None:
    for number in range(8):
        (tmp_path / f"{number}.jsonl").write_text(f'{{"id": {number}}}\n')
    dataset = hr.read_json(str(tmp_path)).random_shuffle(seed=5, buffer_rows=None)
    expected = [row["id"] for row in dataset.iter_rows()]
    rows = dataset.iter_rows()
    first = [next(rows)["id"] for _ in range(3)]
    assert first + [row["id"] for row in dataset.iter_rows(state=rows.state())] == expected
    reseeded = hr.read_json(str(tmp_path)).random_shuffle(seed=6, buffer_rows=None)
    with pytest.raises(ResumeError, match="source .* has changed"):
        reseeded.iter_rows(state=rows.state())


def test_the_state_of_another_job_is_refused_with_what_differs() -> None:
    state = hr.range(9).map(lambda r: {"id": r["id"] + 1}, name="plus").iter_rows().state()
    with pytest.raises(ResumeError, match="step plus has changed"):
        hr.range(9).map(lambda r: {"id": r["id"] + 2}, name="plus").iter_rows(state=state)
    with pytest.raises(ResumeError, match="step plus is gone"):
        hr.range(9).iter_rows(state=state)


def test_a_changed_input_is_refused(tmp_path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"id": 1}\n')
    state = hr.read_json(str(file)).iter_rows().state()
    file.write_text('{"id": 1}\n{"id": 2}\n')
    with pytest.raises(ResumeError, match="input has changed"):
        hr.read_json(str(file)).iter_rows(state=state)


@pytest.mark.parametrize(
    "state", [{}, {"version": 2}, {"version": 1, "job": {}, "input": {}, "place": [1]}, {"version": 1}]
)
def test_what_is_no_state_is_refused(state) -> None:
    with pytest.raises(PlanError, match="state="):
        hr.range(9).iter_rows(state=state)


def test_where_the_same_job_cannot_be_known_there_is_no_state() -> None:
    lock = threading.Lock()

    def guarded(row):
        with lock:
            return row

    with pytest.raises(ResumeError, match="a lock.*version="):
        hr.range(9).map(guarded).iter_rows().state()
    assert hr.range(9).map(guarded, version="1").iter_rows().state()["version"] == 1


def test_whole_batches_have_no_state_where_they_are_cut_differently_every_time() -> None:
    firsts = {"function": lambda b: {"n": b["id"][:1]}, "name": "firsts"}
    with pytest.raises(ResumeError, match="'firsts' gets other batches.*'run_inference'.*row_wise=True"):
        pipeline().select("id").map_batches(**firsts).iter_batches().state()
    with pytest.raises(ResumeError, match="cut as 'map.*' hands rows on"):
        hr.range(9).map(lambda r: r).map_batches(**firsts).iter_batches().state()
    assert hr.range(9).map_batches(**firsts).map(lambda r: r).iter_batches().state()["place"] is None
    mixed = pipeline().random_shuffle(seed=1, buffer_rows=9).map_batches(**firsts)
    assert mixed.iter_batches().state()["place"] is None


def test_batches_that_answer_as_one_are_gone_on_with_inside() -> None:
    dataset = hr.range(100).map_batches(lambda b: {"n": b["id"][::2] * 10}, batch_size=30)
    expected = [row["n"] for row in dataset.iter_rows()]
    rows = dataset.iter_rows()
    first = [next(rows)["n"] for _ in range(23)]
    assert first + [row["n"] for row in dataset.iter_rows(state=rows.state())] == expected


def test_another_process_goes_on_from_a_state_kept_in_a_file(tmp_path) -> None:
    (tmp_path / "in.jsonl").write_text("".join(f'{{"id": {i}}}\n' for i in range(10)))
    script = tmp_path / "loop.py"
    script.write_text(
        "import json, pathlib, headrace as hr\n"
        "kept = pathlib.Path('state.json')\n"
        "state = json.loads(kept.read_text()) if kept.exists() else None\n"
        "batches = hr.read_json('in.jsonl').map(lambda r: {'id': r['id'] * 2}).iter_batches(batch_size=4, state=state)\n"
        "print(next(batches)['id'].tolist())\n"
        "kept.write_text(json.dumps(batches.state()))\n"
    )
    outputs = [
        subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    ]
    assert outputs == ["[0, 2, 4, 6]\n", "[8, 10, 12, 14]\n", "[16, 18]\n"]
