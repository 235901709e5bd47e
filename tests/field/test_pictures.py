"""Pictures of every mode and size in one folder, beside files that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import PlanError, SinkError
from tests.field.running import rows_in

Image = pytest.importorskip("PIL.Image")

SHELF = [
    ("RGB", (40, 30), "jpg"),
    ("L", (30, 40), "png"),
    ("RGBA", (20, 20), "png"),
    ("P", (25, 10), "png"),
    ("CMYK", (16, 48), "jpg"),
    ("LA", (33, 11), "png"),
    ("I;16", (12, 12), "png"),
    ("1", (9, 9), "png"),
]
NAMES = [*(f"shelf/{n:02d}_{mode.replace(';', '')}.{ext}" for n, (mode, _, ext) in enumerate(SHELF))]
TURNED = "shelf/sub/08_TURNED.JPG"
SHAPES = [[30, 40, 3], [40, 30], [20, 20, 4], [10, 25, 3], [48, 16, 4], [11, 33, 2], [12, 12], [9, 9], [60, 20, 3]]


class Shape(hr.ModelHandler):
    def load_model(self):
        return None

    def run_inference(self, batch, model):
        return [[*row["image"].shape, row["image"].dtype.itemsize] for row in batch]


@pytest.fixture(autouse=True)
def shelf(folder: Path) -> None:
    Path("shelf/sub").mkdir(parents=True)
    for name, (mode, size, _) in zip(NAMES, SHELF, strict=True):
        Image.new(mode, size).save(name)
    turned = Image.new("RGB", (60, 20), (200, 10, 10))
    exif = turned.getexif()
    exif[0x0112] = 6  # the camera was held upright: to be shown as 20 x 60
    turned.save(TURNED, exif=exif)
    Path("shelf/.DS_Store").write_bytes(b"\0\0\0\1Bud1")
    Path("shelf/notes.txt").write_text("bought in May\n")


@pytest.mark.parametrize(("num_cpus", "isolation"), [(1, "thread"), (None, "thread"), (None, "process")])
def test_one_mode_and_size_for_all_pictures(num_cpus: int | None, isolation: str) -> None:
    ds = hr.read_images("shelf/", mode="RGB", size=(32, 32))
    result = ds.run_inference(Shape(), max_batch_size=4, isolation=isolation).write_json("out").run(num_cpus=num_cpus)
    rows = rows_in()
    assert [row["path"] for row in rows] == [*NAMES, TURNED]
    assert [row["prediction"] for row in rows] == [[32, 32, 3, 1]] * 9
    assert [np.array(row["image"]).shape for row in rows] == [(32, 32, 3)] * 9
    assert result.failed == 0


@pytest.mark.parametrize("size", [1, 4, 9])
@pytest.mark.parametrize("kind", ["json", "csv"])
def test_pictures_as_they_are(kind: str, size: int) -> None:
    ds = hr.read_images("shelf/").run_inference(Shape(), batch_size=size)
    result = getattr(ds, f"write_{kind}")("out").run()
    rows = rows_in() if kind == "json" else hr.read_csv("out/part-*").take()
    assert [row["path"] for row in rows] == [*NAMES, TURNED]
    found = [row["prediction"] if kind == "json" else json.loads(row["prediction"]) for row in rows]
    assert [shape[:-1] for shape in found] == SHAPES, "the turned one upright"
    assert [shape[-1] for shape in found] == [1, 1, 1, 1, 1, 1, 2, 1, 1], "bytes a channel"
    assert result.failed == 0


def test_pictures_as_they_are_are_handed_on_as_arrays_in_any_form() -> None:
    shapes: list[tuple[int, ...]] = []

    def look(batch: dict[str, Any]) -> dict[str, Any]:
        shapes.extend(image.shape for image in batch["image"])
        return {"path": batch["path"]}

    hr.read_images("shelf/").map_batches(look, isolation="thread").take()
    assert [list(shape) for shape in shapes] == SHAPES


def test_files_that_are_no_pictures_are_counted_and_neither_rows_nor_dead_letters() -> None:
    result = hr.read_images("shelf/").drop("image").write_json("out").run(on_error="dead_letter")
    assert len(rows_in()) == 9
    assert not Path("out/_dead_letters").exists()
    assert "1 file passed over" in str(result.report())
    assert result.statistics.sources[0].passed_over == 1


def test_answers_without_the_pictures_go_into_any_file() -> None:
    hr.read_images("shelf/").run_inference(Shape(), max_batch_size=4).drop("image").write_parquet("out").run()
    assert pq.read_table("out").schema.names == ["path", "prediction", "model_id"]
    assert pq.read_table("out").num_rows == 9


@pytest.mark.parametrize("size", [1, 9])
def test_parquet_refuses_pictures_that_differ_and_names_what_makes_them_alike(size: int) -> None:
    job = hr.read_images("shelf/").run_inference(Shape(), batch_size=size).write_parquet("out")
    with pytest.raises(SinkError, match=r"column 'image' .*mode= and size= of read_images.*drop\('image'\)"):
        job.run()
    assert not list(Path("out").glob("part-*"))


def test_parquet_takes_pictures_of_one_mode_whatever_their_sizes() -> None:
    hr.read_images("shelf/", mode="L").write_parquet("out").run()
    images = pq.read_table("out")["image"].to_pylist()
    assert [list(np.array(image).shape) for image in images] == [shape[:2] for shape in SHAPES]


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "CMYK", "F"])
def test_any_mode_for_all(mode: str) -> None:
    kinds = {
        (image.shape[:2], image.shape[2:], str(image.dtype))
        for image in (row["image"] for row in hr.read_images("shelf/", mode=mode, size=(8, 6)).take())
    }
    channels = {"RGB": (3,), "L": (), "RGBA": (4,), "CMYK": (4,), "F": ()}[mode]
    assert kinds == {((6, 8), channels, "float32" if mode == "F" else "uint8")}


def test_a_broken_picture_fails_alone_and_is_named() -> None:
    whole = Path(NAMES[0]).read_bytes()
    Path("shelf/03_broken.jpg").write_bytes(b"\xff\xd8not a picture")
    Path("shelf/03_cut.jpg").write_bytes(whole[: len(whole) // 2])
    Path("shelf/03_empty.png").touch()
    ds = hr.read_images("shelf/", mode="RGB", size=(32, 32)).run_inference(Shape(), max_batch_size=4)
    ds.write_json("out").run(on_error="dead_letter")
    assert [row["path"] for row in rows_in()] == [*NAMES, TURNED]
    letters = rows_in("out/_dead_letters")
    assert {letter["row"]["path"] for letter in letters} == {
        f"shelf/03_{n}" for n in ("broken.jpg", "cut.jpg", "empty.png")
    }
    assert all("cannot decode shelf/03_" in letter["message"] for letter in letters)


def test_a_mode_that_does_not_exist_is_told_at_once() -> None:
    with pytest.raises(PlanError, match="'RBG'.*'RGB'"):
        hr.read_images("shelf/", mode="RBG")


def test_one_picture_named_by_its_path() -> None:
    (row,) = hr.read_images(TURNED).run_inference(Shape()).take()
    assert (row["path"], row["prediction"]) == (TURNED, [60, 20, 3, 1])
