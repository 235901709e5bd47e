import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.equality import OutputsDifferError, require_same

ROWS = {"id": [1, 2, 3], "name": ["a", None, "c"], "score": [0.1, float("nan"), 0.3]}


def written(folder, columns, parts=1):
    folder.mkdir()
    table = pa.table(columns)
    each = -(-len(table) // parts)
    for part in range(parts):
        pq.write_table(table.slice(part * each, each), folder / f"{part}.parquet")
    return folder


def test_order_files_and_further_columns_do_not_matter(tmp_path):
    expected = written(tmp_path / "a", ROWS)
    shuffled = {name: [values[i] for i in (2, 0, 1)] for name, values in ROWS.items()}
    actual = written(tmp_path / "b", shuffled | {"model_id": ["m"] * 3}, parts=2)
    assert require_same(expected, actual, key="id") == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": [0.1, float("nan"), 0.31]}, "column 'score' differs in 1 rows, first where id is 3"),
        ({"score": [0.1, 0.2, 0.3]}, "first where id is 2"),
        ({"name": ["a", "b", "c"]}, "column 'name' differs in 1 rows, first where id is 2"),
        ({"name": [None, None, "c"]}, "first where id is 1"),
        ({"id": [1, 2, 2]}, "column 'id' differs"),
    ],
)
def test_a_differing_value_is_named(tmp_path, change, message):
    expected = written(tmp_path / "a", ROWS)
    with pytest.raises(OutputsDifferError, match=message):
        require_same(expected, written(tmp_path / "b", ROWS | change), key="id")


def test_a_rounding_in_the_last_place_is_no_difference(tmp_path):
    expected = written(tmp_path / "a", ROWS)
    actual = written(tmp_path / "b", ROWS | {"score": [0.1 + 1e-16, float("nan"), 0.3]})
    assert require_same(expected, actual, key="id") == 3


def test_lost_and_doubled_rows_are_found(tmp_path):
    expected = written(tmp_path / "a", ROWS)
    lost = written(tmp_path / "b", {name: values[:2] for name, values in ROWS.items()})
    with pytest.raises(OutputsDifferError, match="has 2 rows"):
        require_same(expected, lost, key="id")


def test_a_lacking_column_and_an_empty_folder_are_found(tmp_path):
    expected = written(tmp_path / "a", ROWS)
    with pytest.raises(OutputsDifferError, match=r"lacks the columns \['score'\]"):
        require_same(expected, written(tmp_path / "b", {"id": ROWS["id"], "name": ROWS["name"]}), key="id")
    (tmp_path / "c").mkdir()
    with pytest.raises(OutputsDifferError, match="holds no Parquet file"):
        require_same(expected, tmp_path / "c", key="id")
