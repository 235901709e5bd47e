from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import NoInputError, PlanError, SchemaError
from headrace.read import items_source

Image = pytest.importorskip("PIL.Image")


def test_csv(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,zip\n1,007\n")
    (tmp_path / "b.csv").write_text("id,zip\n2,10\n")
    rows = hr.read_csv(tmp_path, dtypes={"zip": "string"}, include_path="file").take(5)
    assert [(r["id"], r["zip"]) for r in rows] == [(1, "007"), (2, "10")]
    with pytest.raises(SchemaError):
        hr.read_csv(tmp_path).take(1)


def test_json_parquet_and_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n{"id": 2, "day": "2024-01-01"}\n')
    table = hr.read_json(tmp_path / "a.jsonl").to_arrow()
    assert table.to_pylist() == [{"id": 1, "day": None}, {"id": 2, "day": "2024-01-01"}]
    import pyarrow.parquet as pq

    pq.write_table(table, tmp_path / "a.parquet")
    assert hr.read_parquet(tmp_path / "a.parquet", columns=["day"]).take(2)[1] == {"day": "2024-01-01"}
    assert hr.read_text(tmp_path / "a.jsonl").count() == 2


def test_missing_input_is_an_error_when_the_pipeline_runs(tmp_path: Path) -> None:
    dataset = hr.read_csv(tmp_path / "nothing*.csv")
    with pytest.raises(NoInputError, match="matches no file"):
        dataset.count()


def test_binary_files(tmp_path: Path) -> None:
    for name in ("a.PDF", "b.pdf", "c.txt"):
        (tmp_path / name).write_text(name)
    rows = hr.read_binary_files(tmp_path, pattern="*.pdf").take(5)
    assert [r["bytes"] for r in rows] == [b"a.PDF", b"b.pdf"]
    with pytest.raises(PlanError, match="file names alone"):
        hr.read_binary_files(tmp_path, pattern="sub/*.pdf")


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """Pictures of every mode and size, one of them lying on its side, beside files that are none."""
    (tmp_path / "sub").mkdir()
    kinds = [
        ("RGB", (40, 30), "jpg"),
        ("L", (30, 40), "png"),
        ("RGBA", (20, 20), "png"),
        ("P", (25, 10), "png"),
        ("CMYK", (16, 48), "jpg"),
        ("LA", (33, 11), "png"),
        ("I;16", (12, 12), "png"),
        ("1", (9, 9), "png"),
    ]
    for n, (mode, size, suffix) in enumerate(kinds):
        Image.new(mode, size).save(tmp_path / f"{n:02d}_{mode.replace(';', '')}.{suffix}")
    turned = Image.new("RGB", (60, 20), (200, 10, 10))
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(tmp_path / "sub/08_TURNED.JPG", exif=exif)
    (tmp_path / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    (tmp_path / "notes.txt").write_text("bought in May\n")
    return tmp_path


def test_pictures_in_one_mode_and_size(shelf: Path) -> None:
    rows = hr.read_images(shelf, mode="RGB", size=(32, 32)).take(20)
    assert [r["image"].shape for r in rows] == [(32, 32, 3)] * 9
    assert {r["image"].dtype for r in rows} == {np.dtype(np.uint8)}
    assert rows[-1]["path"] == str(shelf / "sub/08_TURNED.JPG")


def test_pictures_as_they_are(shelf: Path) -> None:
    rows = hr.read_images(shelf).take(20)
    assert [r["image"].shape for r in rows] == [
        (30, 40, 3), (40, 30), (20, 20, 4), (10, 25, 3), (48, 16, 4), (11, 33, 2), (12, 12), (9, 9), (60, 20, 3),
    ]  # fmt: skip
    assert rows[6]["image"].dtype == np.uint16


def test_a_picture_that_cannot_be_decoded_fails_alone(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (shelf / "bad.png").write_bytes(b"no picture")
    out = tmp_path_factory.mktemp("out")
    shapes = hr.read_images(shelf, mode="RGB").map(lambda row: {"path": row["path"], "shape": list(row["image"].shape)})
    result = shapes.write_json(str(out / "o")).run(on_error="dead_letter")
    del result
    written = "".join(p.read_text() for p in sorted((out / "o").glob("*.json*")))
    assert written.count("\n") == 9
    assert "bad.png" not in written


def test_items() -> None:
    assert hr.from_items([{"id": 1}, {"id": 2, "lang": "fi"}]).take(2)[0] == {"id": 1, "lang": None}
    assert hr.from_items(x for x in "ab").take(5) == [{"item": "a"}, {"item": "b"}]
    assert hr.from_items([]).count() == 0
    late = hr.from_items([{"id": i} for i in range(20_000)] + [{"id": 20_000, "lang": "fi"}])
    assert late.filter(lambda r: r["lang"] == "fi").take(1) == [{"id": 20_000, "lang": "fi"}]
    with pytest.raises(PlanError, match="some items are dicts"):
        hr.from_items([{"a": 1}, 2])
    with pytest.raises(PlanError, match="key 1"):
        hr.from_items([{1: 1}])
    assert items_source([{}, {}]).splits()[0].rows == 2


def test_what_is_no_path_and_no_frame() -> None:
    with pytest.raises(PlanError, match="paths must be text or path objects, not int"):
        hr.read_csv(5)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="from_pandas takes a DataFrame, not list"):
        hr.from_pandas([1])


def test_arrow_and_pandas() -> None:
    table = pa.table({"a": [1, None]})
    for data in (table, table.to_batches()[0], table.to_reader()):
        assert hr.from_arrow(data).to_arrow() == table
    with pytest.raises(PlanError, match="not list"):
        hr.from_arrow([1])
    frame = pd.DataFrame({"a": [1, 2], "mixed": [1, "x"], 3: [0.5, None]})
    assert hr.from_pandas(frame).take(2) == [{"a": 1, "mixed": 1, "3": 0.5}, {"a": 2, "mixed": "x", "3": None}]
    with pytest.raises(PlanError, match="two columns are named 'a'"):
        hr.from_pandas(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_range() -> None:
    assert hr.range(3).take(5) == [{"id": 0}, {"id": 1}, {"id": 2}]
    assert hr.range(0).count() == 0
    with pytest.raises(PlanError, match="range is -1; it is a whole number of rows, at least 0"):
        hr.range(-1)


def test_a_source_of_ones_own() -> None:
    class Half:
        name = "half"

    with pytest.raises(PlanError, match=r"Half is no source; it lacks splits, schema, read, fingerprint, version"):
        hr.read(Half())  # type: ignore[arg-type]
    assert hr.read(items_source([1, 2])).take(5) == [{"item": 1}, {"item": 2}]


def test_bad_options() -> None:
    with pytest.raises(PlanError, match="there is no such type"):
        hr.read_csv("a.csv", dtypes={"zip": "strnig"})
    with pytest.raises(PlanError, match="'error' or 'text'"):
        hr.read_json("a.jsonl", type_conflicts="ignore")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="no mode"):
        hr.read_images("shelf", mode="RBG")


def test_naming_inputs_imports_no_reader() -> None:
    code = "import sys, headrace as hr; hr.read_csv('a.csv'); print([m for m in sys.modules if m.split('.')[0] in %r])"
    heavy = ("fsspec", "pandas", "duckdb", "pydantic", "rich", "PIL", "torch", "sklearn", "sqlite3")
    done = subprocess.run([sys.executable, "-c", code % (heavy,)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
