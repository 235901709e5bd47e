from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import HeadraceError, ModelLoadError, PlanError, RowError
from headrace.handlers.pictures import to_picture
from headrace.handlers.registry import make_handler
from headrace.handlers.timm import TimmModelHandler
from tests.field.running import rows_in

pytestmark = pytest.mark.heavy

NET = "test_resnet"
"""The smallest network of timm: 160 × 160 pixels."""
CLASSES = 4


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of a network with four classes, at random, but the same every time."""
    import timm
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    module = timm.create_model(NET, num_classes=CLASSES)
    torch.nn.init.normal_(module.get_classifier().weight)
    path = tmp_path_factory.mktemp("weights") / "net.safetensors"
    save_file(module.state_dict(), path)
    return path


@pytest.fixture(scope="module")
def folder(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same network as a folder, as timm itself puts it on the Hub."""
    import timm
    from timm.models import save_for_hf

    module = timm.create_model(NET, num_classes=CLASSES, checkpoint_path=str(checkpoint))
    path = tmp_path_factory.mktemp("folder") / "net"
    save_for_hf(module, str(path), model_config={"label_names": list("abcd"), "num_classes": CLASSES})
    return path


def pictures() -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    shapes = [(200, 300, 3), (170, 90), (64, 64, 4), (300, 161, 3), (50, 400, 2), (80, 80, 1)]
    arrays = [rng.integers(0, 256, shape, dtype=np.uint8) for shape in shapes]
    return [*arrays, rng.integers(0, 2**16, (90, 70), dtype=np.uint16), arrays[1] > 127]


def column(values: list[Any]) -> np.ndarray[Any, Any]:
    """What a handler sees of a column whose rows differ in shape."""
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


def directly(checkpoint: Path, **data: Any) -> tuple[Any, Any]:
    """The network and the tensors of `pictures()`, by timm alone."""
    import timm
    import torch
    from PIL import Image

    module = timm.create_model(NET, num_classes=CLASSES, checkpoint_path=str(checkpoint)).eval()
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(module, data), is_training=False)
    plain = []
    for array in pictures():
        if array.dtype == np.uint16:
            array = (array >> 8).astype(np.uint8)
        if array.dtype == bool:
            array = array.astype(np.uint8) * 255
        plain.append(Image.fromarray(array[..., 0] if array.shape[2:] == (1,) else array).convert("RGB"))
    return module, torch.stack([transform(picture) for picture in plain])


@pytest.mark.parametrize("output", ["logits", "probabilities", "embeddings", "features"])
def test_answers_are_those_of_timm_used_directly(output: str, checkpoint: Path) -> None:
    import torch

    module, tensors = directly(checkpoint)
    with torch.inference_mode():
        expected = {
            "logits": lambda: module(tensors),
            "probabilities": lambda: module(tensors).softmax(dim=-1),
            "embeddings": lambda: module.forward_head(module.forward_features(tensors), pre_logits=True),
            "features": lambda: module.forward_features(tensors),
        }[output]().numpy()
    handler = TimmModelHandler(NET, checkpoint_path=checkpoint, num_classes=CLASSES, output=output, device="cpu")
    model = handler.load_model()
    assert np.array_equal(handler.run_inference(column(pictures()), model), expected)
    if output != "features":
        ds = hr.from_items([{"image": picture} for picture in pictures()])
        answers = [row["prediction"] for row in ds.run_inference(handler, batch_size=3).take()]
        assert np.allclose(answers, expected, rtol=1e-5, atol=1e-5)


def test_labels_with_scores(checkpoint: Path, tmp_path: Path) -> None:
    import torch

    module, tensors = directly(checkpoint)
    with torch.inference_mode():
        probabilities = module(tensors).softmax(dim=-1).numpy()
    best = probabilities.argmax(axis=1)
    names = ["tench", "hen", "käse", "crane"]
    (tmp_path / "names.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    options: dict[str, Any] = {"checkpoint_path": checkpoint, "num_classes": CLASSES, "output": "labels"}

    def answers(**more: Any) -> dict[str, list[Any]]:
        handler = TimmModelHandler(NET, device="cpu", **options, **more)
        found = handler.run_inference(column(pictures()), handler.load_model())
        return {name: values.tolist() for name, values in found.items()}

    assert answers()["label"] == best.tolist()
    one = answers(class_names=names)
    assert one["label"] == [names[i] for i in best]
    assert one["score"] == pytest.approx(probabilities.max(axis=1).tolist(), rel=1e-5)
    two = answers(class_names=str(tmp_path / "names.txt"), top_k=2)
    assert two["label"] == [[names[i] for i in row[:2]] for row in (-probabilities).argsort(axis=1)]
    assert [len(scores) for scores in two["score"]] == [2] * len(best)
    assert [len(row) for row in answers(top_k=99)["label"]] == [CLASSES] * len(best), "there are no more"
    with pytest.raises(ModelLoadError, match="3 class names for a model of 4 classes"):
        answers(class_names=names[:3])
    with pytest.raises(ModelLoadError, match="1,000 class names for a model of 4"):
        answers(class_names="imagenet-1k")


def test_the_data_configuration_can_be_overridden(checkpoint: Path) -> None:
    import torch

    overrides: dict[str, Any] = {"mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6), "interpolation": "nearest"}
    module, tensors = directly(checkpoint, **overrides, crop_pct=0.5, img_size=96)
    handler = TimmModelHandler(
        NET, checkpoint_path=checkpoint, num_classes=CLASSES, input_size=96, crop_pct=0.5, device="cpu", **overrides
    )
    with torch.inference_mode():
        assert np.array_equal(handler.run_inference(column(pictures()), handler.load_model()), module(tensors).numpy())


def test_a_folder_knows_its_classes_and_its_labels(folder: Path, checkpoint: Path) -> None:
    module, tensors = directly(checkpoint)
    handler = TimmModelHandler(folder, output="labels", device="cpu")
    handler.check()
    assert handler.model_id == "net"
    assert handler.model_files() == (str(folder),)
    found = handler.run_inference(column(pictures()), handler.load_model())
    assert found["label"].tolist() == ["abcd"[i] for i in module(tensors).argmax(dim=1).tolist()]
    assert make_handler(f"timm:{folder}", top_k=2, output="labels").top_k == 2


def test_models_of_grey_pictures_get_grey_ones(checkpoint: Path) -> None:
    handler = TimmModelHandler(NET, pretrained=False, model_kwargs={"in_chans": 1}, mean=[0.5], std=[0.5], device="cpu")
    pixels = handler.preparer()
    pixels.setup()
    assert {tuple(made.shape) for made in pixels(column(pictures()))["pixel_values"]} == {(1, 160, 160)}
    assert handler.run_inference(column(pictures()), handler.load_model()).shape == (8, 1000)
    with pytest.raises(PlanError, match=r"mean has 3 values for 1 channels; pass mean="):
        TimmModelHandler(NET, pretrained=False, model_kwargs={"in_chans": 1}).load_model()
    with pytest.raises(PlanError, match="takes 4 channels"):
        TimmModelHandler(NET, pretrained=False, model_kwargs={"in_chans": 4}).load_model()


def test_a_folder_of_pictures_from_end_to_end(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    shelf = Path("shelf")
    shelf.mkdir()
    for n, mode in enumerate(("RGB", "L", "RGBA", "P", "LA", "1")):
        Image.fromarray(pictures()[0]).convert(mode).resize((40 + 30 * n, 200)).save(shelf / f"{n}.png")
    turned = Image.fromarray(pictures()[3])
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(shelf / "turned.jpg", exif=exif)
    (shelf / "broken.jpg").write_bytes(b"\xff\xd8not a picture")
    (shelf / "empty.png").touch()

    handler = TimmModelHandler(NET, checkpoint_path=checkpoint, num_classes=CLASSES, output="embeddings", device="cpu")
    result = (
        hr.read_images("shelf").run_inference(handler).drop("image").write_parquet("out").run(on_error="dead_letter")
    )
    found = pq.read_table("out").sort_by("path")
    sound = [str(path) for path in sorted(shelf.iterdir()) if path.stem not in ("broken", "empty")]
    assert found["path"].to_pylist() == sound
    assert {letter["row"]["path"] for letter in rows_in("out/_dead_letters")} == {
        "shelf/broken.jpg",
        "shelf/empty.png",
    }
    assert (result.rows_written, result.failed) == (7, 2)

    upright = to_picture(np.asarray(turned.transpose(Image.Transpose.ROTATE_270)), mode="RGB")
    expected = handler.run_inference([turned_as_read(shelf / "turned.jpg")], handler.load_model())[0]
    assert upright.size == (300, 161)
    assert np.allclose(found["prediction"].to_pylist()[-1], expected, atol=1e-5)


def turned_as_read(path: Path) -> Any:
    from PIL import Image, ImageOps

    with Image.open(path) as opened:
        return ImageOps.exif_transpose(opened)


def test_encoded_pictures_are_decoded_in_front_of_the_model(checkpoint: Path, tmp_path: Path) -> None:
    from PIL import Image

    def encoded(array: np.ndarray[Any, Any]) -> bytes:
        file = io.BytesIO()
        Image.fromarray(array).save(file, format="PNG")
        return file.getvalue()

    sound = [encoded(pictures()[0]), encoded(pictures()[1])]
    rows = [{"id": 0, "file": sound[0]}, {"id": 1, "file": b"no picture"}, {"id": 2, "file": sound[1]}]
    rows.append({"id": 3, "file": None})
    handler = TimmModelHandler(NET, checkpoint_path=checkpoint, num_classes=CLASSES, device="cpu")
    out = tmp_path / "out"
    ds = hr.from_items(rows).run_inference(handler, inputs="file", name="net")
    ds.write_parquet(str(out)).run(on_error="dead_letter")
    expected = handler.run_inference(column(pictures()[:2]), handler.load_model())
    assert np.allclose(pq.read_table(out)["prediction"].to_pylist(), expected, atol=1e-5)
    letters = {letter["row"]["id"]: letter for letter in rows_in(out / "_dead_letters")}
    assert set(letters) == {1, 3}
    assert "no picture of a kind" in letters[1]["message"]
    assert "null" in letters[3]["message"]
    assert letters[1]["stage"] == "net/prepare"


def test_what_is_no_picture_fails_alone(checkpoint: Path) -> None:
    preparer = TimmModelHandler(NET, checkpoint_path=checkpoint, num_classes=CLASSES).preparer()
    preparer.setup()
    sound, bad = preparer(column([pictures()[0], "a.png"]))["pixel_values"]
    assert (sound.shape, sound.dtype) == ((3, 160, 160), np.uint8)
    assert isinstance(bad, RowError)
    assert "not a str" in str(bad)


def test_a_preparer_travels_after_it_was_set_up(checkpoint: Path) -> None:
    preparer = TimmModelHandler(NET, checkpoint_path=checkpoint, num_classes=CLASSES).preparer()
    preparer.setup()
    (here,) = preparer([pictures()[0]])["pixel_values"]
    there = pickle.loads(pickle.dumps(preparer))
    there.setup()
    assert np.array_equal(there([pictures()[0]])["pixel_values"][0], here)


def test_threads_may_import_the_framework_at_the_same_time() -> None:
    program = """
import threading
from headrace.handlers.timm import TimmModelHandler
handler = TimmModelHandler("test_resnet", pretrained=False)
calls = [handler.preload, handler.preparer().setup, handler.preparer().setup, handler.load_model]
together, done = threading.Barrier(len(calls)), []
def call(one):
    together.wait()
    one()
    done.append(one)
threads = [threading.Thread(target=call, args=(one,)) for one in calls]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(done) == len(calls)
"""
    path = os.pathsep.join([*sys.path, os.environ["PYTHONPATH"]])
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": path})


def test_half_precision(checkpoint: Path) -> None:
    handler = TimmModelHandler(
        NET, checkpoint_path=checkpoint, num_classes=CLASSES, dtype="bfloat16", output="probabilities", device="cpu"
    )
    model = handler.load_model()
    found = handler.run_inference(column(pictures()), model)
    assert str(next(model.module.parameters()).dtype) == "torch.bfloat16"
    assert found.dtype == np.float32
    assert np.allclose(found.sum(axis=1), 1)


def test_weights_of_torch_save_and_files_that_are_none(checkpoint: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    weights = load_file(checkpoint)
    torch.save({"epoch": 3, "state_dict": weights}, tmp_path / "net.pth")
    torch.save(_Trained(), tmp_path / "whole.pth")
    (tmp_path / "page.safetensors").write_text("<html>not found</html>")

    def load(name: str, **options: Any) -> Any:
        handler = TimmModelHandler(NET, checkpoint_path=tmp_path / name, device="cpu", **options)
        return handler.load_model().module.state_dict()

    loaded = load("net.pth", num_classes=CLASSES)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in weights.items())
    with pytest.raises(ModelLoadError, match=r"size mismatch.*num_classes="):
        load("net.pth")
    with pytest.raises(ModelLoadError, match=r"whole\.pth holds Python objects"):
        load("whole.pth", num_classes=CLASSES)
    with pytest.raises(ModelLoadError, match="seems to be a web page"):
        load("page.safetensors", num_classes=CLASSES)
    with pytest.raises(ModelLoadError, match=r"no model file .*net\.pt; did you mean 'net\.pth'"):
        TimmModelHandler(NET, checkpoint_path=tmp_path / "net.pt").check()


class _Trained:
    """Something that is no weights."""


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("test_resnt", "has no model 'test_resnt'; did you mean 'test_resnet'"),
        ("test_resnet.r999", r"Published weights: test_resnet\.r160_in1k"),
        ("./nowhere", "there is no model folder nowhere"),
    ],
)
def test_models_that_are_not_there(model: str, why: str, checkpoint: Path) -> None:
    with pytest.raises(HeadraceError, match=why):
        TimmModelHandler(model).load_model()


@pytest.mark.parametrize("model", ["test_resnet.r160_in1k", "timm/test_resnet.r160_in1k"])
def test_published_weights_without_a_network_are_one_error_soon(
    model: str, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelLoadError, match=r"timm/test_resnet\.r160_in1k.*HF_HUB_OFFLINE"):
        TimmModelHandler(model).load_model()


def test_a_configuration_of_something_else(tmp_path: Path, checkpoint: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["BertModel"]}))
    with pytest.raises(ModelLoadError, match=r"config\.json is no configuration of a timm model"):
        TimmModelHandler(tmp_path).load_model()


@pytest.mark.parametrize(
    ("options", "why"), [({"output": "logit"}, "did you mean 'logits'"), ({"top_k": 5}, "output='labels'")]
)
def test_settings_that_are_none(options: dict[str, Any], why: str) -> None:
    with pytest.raises(PlanError, match=why):
        TimmModelHandler(NET, **options)
