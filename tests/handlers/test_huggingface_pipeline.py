from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import ModelLoadError, PlanError
from headrace.handlers.huggingface import HuggingFacePipelineModelHandler
from tests.handlers import tiny_transformers as tiny

pytestmark = pytest.mark.heavy

TEXTS = ["the cat sleeps", "a dog", "the large bird and the small tree by the river", "moon", "a house in the sun"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Make a tiny model once, by the function that saves it and its head."""
    import torch

    folders: dict[tuple[str, ...], Path] = {}

    def make(kind: str, *head: str) -> Path:
        if (kind, *head) not in folders:
            torch.manual_seed(7)
            folders[kind, *head] = getattr(tiny, f"save_{kind}")(tmp_path_factory.mktemp("model"), *head)
        return folders[kind, *head]

    return make


def answers(handler: HuggingFacePipelineModelHandler, rows: list[dict[str, Any]], **options: Any) -> list[Any]:
    """Answers through the whole engine, in the order of the rows."""
    options.setdefault("inputs", "value")
    return [row["prediction"] for row in hr.from_items(rows).run_inference(handler, **options).take(len(rows))]


def direct(task: str, folder: Path, items: list[Any], **options: Any) -> list[Any]:
    """What the pipeline itself answers to each item alone."""
    import transformers

    pipe = transformers.pipeline(task, str(folder), device="cpu")
    return [pipe(item, **options) for item in items]


def check_equal(found: Any, expected: Any) -> None:
    """Compare dicts and lists of answers, numbers within 1e-5."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for name in expected:
            check_equal(found[name], expected[name])
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            check_equal(one, other)
    elif isinstance(expected, (float, np.floating)):
        assert found == pytest.approx(float(expected), abs=1e-5)
    else:
        assert found == expected


SUPPRESSED = {"max_new_tokens": 4, "do_sample": False, "suppress_tokens": [0, 1, 2, 3, 4]}
OF_TEXTS: dict[str, tuple[str, str, list[str], dict[str, Any]]] = {
    "text-classification": ("bert", "ForSequenceClassification", TEXTS, {"top_k": 2}),
    "token-classification": ("bert", "ForTokenClassification", TEXTS, {}),
    "fill-mask": ("bert", "ForMaskedLM", [f"{text} [MASK]" for text in TEXTS], {"top_k": 2}),
    "feature-extraction": ("bert", "Model", TEXTS, {}),
    "text-generation": ("gpt2", "LMHeadModel", TEXTS, SUPPRESSED),
    "zero-shot-classification": ("nli", "", TEXTS, {"candidate_labels": ["moon", "sun"]}),
}


@pytest.mark.parametrize("task", list(OF_TEXTS))
def test_texts_are_answered_as_each_alone(task: str, made: Any) -> None:
    kind, head, texts, asked = OF_TEXTS[task]
    folder = made(kind, *([head] if head else []))
    handler = HuggingFacePipelineModelHandler(task, folder, device="cpu")
    found = answers(handler, [{"value": text} for text in texts], inference_args=asked)
    check_equal(found, direct(task, folder, texts, **asked))
    alone = answers(handler, [{"value": texts[0]}], inference_args=asked)
    check_equal(alone, found[:1])


def test_labels_are_dicts_that_can_be_columns(made: Any) -> None:
    handler = HuggingFacePipelineModelHandler("sentiment-analysis", made("bert", "ForSequenceClassification"))
    rows = hr.from_items([{"value": text} for text in TEXTS])
    named = rows.run_inference(handler, inputs="value", output={"label": "kind", "score": "sure"}).take(9)
    expected = direct("text-classification", made("bert", "ForSequenceClassification"), TEXTS)
    assert [row["kind"] for row in named] == [one[0]["label"] for one in expected]


def test_two_columns_are_pairs(made: Any) -> None:
    folder = made("bert", "ForSequenceClassification")
    handler = HuggingFacePipelineModelHandler("text-classification", folder)
    rows = [{"a": text, "b": other} for text, other in zip(TEXTS, TEXTS[::-1], strict=True)]
    expected = direct("text-classification", folder, [{"text": row["a"], "text_pair": row["b"]} for row in rows])
    check_equal(answers(handler, rows, inputs=("a", "b")), expected)
    check_equal(answers(handler, rows, inputs={"text": "a", "text_pair": "b"}), expected)
    with pytest.raises(PlanError, match="one column, or two for pairs of texts, not 3"):
        answers(handler, rows, inputs=("a", "b", "a"))


def test_pictures(made: Any) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 255, (10 + i, 20, 3)).astype("uint8") for i in range(4)]
    handler = HuggingFacePipelineModelHandler("image-classification", made("vit"))
    expected = direct("image-classification", made("vit"), [Image.fromarray(one) for one in pictures])
    check_equal(answers(handler, [{"value": one} for one in pictures]), expected)


@pytest.mark.parametrize(
    ("task", "head"),
    [("audio-classification", "ForSequenceClassification"), ("automatic-speech-recognition", "ForCTC")],
)
def test_sounds(task: str, head: str, made: Any) -> None:
    rng = np.random.default_rng(0)
    sounds = [rng.standard_normal(size).astype("float32") for size in (300, 300, 120, 200)]
    handler = HuggingFacePipelineModelHandler(task, made("wav2vec2", head))
    found = answers(handler, [{"value": sound} for sound in sounds])
    check_equal(found, direct(task, made("wav2vec2", head), sounds))


def test_a_row_that_is_bad_costs_itself(made: Any, tmp_path: Path) -> None:
    handler = HuggingFacePipelineModelHandler("text-classification", made("bert", "ForSequenceClassification"))
    texts = [*TEXTS, None, " ".join(["stone"] * 200), *TEXTS]  # longer than the model has positions
    job = hr.from_items([{"id": i, "text": text} for i, text in enumerate(texts)]).run_inference(handler, inputs="text")
    result = job.write_json(str(tmp_path / "out")).run(on_error="dead_letter", dead_letters=str(tmp_path / "bad"))
    assert result.rows_written == 2 * len(TEXTS)
    failed = hr.read_json(str(tmp_path / "bad")).take(9)
    assert sorted(row["row"]["id"] for row in failed) == [len(TEXTS), len(TEXTS) + 1]
    cut = hr.from_items([{"text": texts[-6]}]).run_inference(
        handler, inputs="text", inference_args={"truncation": True}
    )
    assert cut.take(1)[0]["prediction"]["label"] in ("bad", "fair", "good")


def test_paths_and_addresses_in_data_are_not_opened(made: Any, tmp_path: Path) -> None:
    handler = HuggingFacePipelineModelHandler("image-classification", made("vit"))
    model = handler.load_model()
    chat = [{"role": "user", "content": [{"type": "image", "url": "http://127.0.0.1:9/a.png"}]}]
    for batch in (
        np.array(["http://127.0.0.1:9/a.png"], dtype=object),
        {"image": ["/etc/hostname"], "question": ["what?"]},
        {"text": [chat]},
    ):
        (found,) = handler.run_inference(batch, model)
        assert "paths and URLs in data are not opened" in str(found)


def test_what_does_not_fit_is_told(made: Any) -> None:
    with pytest.raises(PlanError, match="no task 'text-classifcation' .*; did you mean 'text-classification'"):
        HuggingFacePipelineModelHandler("text-classifcation", made("bert")).load_model()
    with pytest.raises(ModelLoadError, match=r"has no weights for classifier.bias"):
        HuggingFacePipelineModelHandler("text-classification", made("bert")).load_model()
    with pytest.raises(ModelLoadError, match="there is no model folder"):
        HuggingFacePipelineModelHandler("ner", "./none").check()


def test_texts_of_like_length_go_together() -> None:
    handler = HuggingFacePipelineModelHandler("ner", "x")
    assert handler.weigh(np.array(["abc", "d", None], dtype=object)) == [3, 1, 1]
    assert handler.weigh({"text": ["ab", "c"], "text_pair": ["", "de"]}) == [2, 3]
    assert handler.weigh(np.array([["ab", "c"]], dtype=object)) == [3]
