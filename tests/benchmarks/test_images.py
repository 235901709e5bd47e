import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks import images
from benchmarks.images import HAND, HEADRACE, TOLERANCE, Job
from benchmarks.pictures import CLASSES, MODEL_SIZE, SIZE, write_picture_model, write_pictures
from benchmarks.process import wall_secs

Image = pytest.importorskip("PIL.Image")
onnxruntime = pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("pictures") / "some", count=4)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_picture_model(tmp_path_factory.mktemp("model") / "net.onnx")


def test_pictures_are_photos_in_size_and_differ(pictures):
    files = sorted(pictures.iterdir())
    assert [file.name for file in files] == [f"{n:05d}.jpg" for n in range(4)]
    assert all(200_000 < file.stat().st_size < 600_000 for file in files)
    assert len({file.read_bytes() for file in files}) == 4
    with Image.open(files[0]) as picture:
        assert (picture.size, picture.mode) == (SIZE, "RGB")


def test_the_network_tells_pictures_apart_and_answers_each_for_itself(model):
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    pixels = np.random.default_rng(0).integers(0, 256, (4, *MODEL_SIZE[::-1], 3), dtype=np.uint8)
    pixels[1] //= 4
    labels, scores = session.run(["label", "score"], {"pixels": pixels})
    assert len(set(scores.tolist())) == 4
    assert ((labels >= 0) & (labels < CLASSES)).all()
    alone = session.run(["score"], {"pixels": pixels[1:2]})[0]
    assert alone == pytest.approx(scores[1:2], rel=TOLERANCE)


def test_both_programs_give_the_same_answers(pictures, model, tmp_path, monkeypatch):
    monkeypatch.setattr(images, "WORK", tmp_path)
    wall_secs(Job(HAND, pictures, model).command(images.answers()))
    assert pq.read_table(images.answers()).num_rows == 4
    job = Job(HEADRACE, pictures, model)
    assert job() > 0
    assert job.checked
