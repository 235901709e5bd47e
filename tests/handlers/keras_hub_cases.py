"""What KerasHubModelHandler has to do on every backend; see `tests.handlers.backends`."""

from __future__ import annotations

import functools
import io
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import ModelLoadError, PlanError
from headrace.handlers.keras_hub import KerasHubModelHandler
from headrace.model.predictor import Predictor
from headrace.plan.nodes import InferenceSpec
from tests.handlers.backends import run_cases

TEXTS = ["the quick brown fox", "call me", "to be or not to be", "fox", "me"]
CASES: list[Callable[[], None]] = []


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES.append(function)
    return function


def saved(task: Any) -> str:
    folder = str(Path(tempfile.mkdtemp(dir=os.getcwd()), "preset"))
    task.save_to_preset(folder)
    return folder


@functools.cache
def gemma() -> Any:
    """A Gemma of a few hundred random weights, with a tokenizer of 27 pieces."""
    import keras
    import keras_hub
    import sentencepiece

    keras.utils.set_random_seed(1)
    pieces = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the quick brown fox", "call me ishmael", "to be or not to be"] * 5),
        model_writer=pieces,
        vocab_size=27,
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        pad_piece="<pad>",
        bos_piece="<bos>",
        eos_piece="<eos>",
        unk_piece="<unk>",
        minloglevel=2,
    )
    tokenizer = keras_hub.models.GemmaTokenizer(proto=pieces.getvalue())
    backbone = keras_hub.models.GemmaBackbone(
        vocabulary_size=27,
        num_layers=1,
        num_query_heads=2,
        num_key_value_heads=1,
        hidden_dim=8,
        intermediate_dim=16,
        head_dim=4,
    )
    for weight in backbone.weights:  # as they are made, the model would say the same of everything
        weight.assign(keras.random.normal(weight.shape, stddev=1.0, seed=len(weight.path)))
    preprocessor = keras_hub.models.GemmaCausalLMPreprocessor(tokenizer=tokenizer, sequence_length=32)
    task = keras_hub.models.GemmaCausalLM(backbone=backbone, preprocessor=preprocessor)
    task.compile(sampler="greedy")
    return task


@functools.cache
def gemma_folder() -> str:
    return saved(gemma())


@functools.cache
def bert() -> Any:
    import keras
    import keras_hub

    keras.utils.set_random_seed(1)
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *["the", "quick", "brown", "fox", "call", "me", "to", "be", "or", "not"],
    ]
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(
        tokenizer=keras_hub.models.BertTokenizer(vocabulary=words), sequence_length=12
    )
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=len(words), num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, max_sequence_length=12
    )
    return keras_hub.models.BertTextClassifier(backbone=backbone, preprocessor=preprocessor, num_classes=3)


@functools.cache
def bert_folder() -> str:
    return saved(bert())


@case
def generated_texts_are_those_of_keras_hub() -> None:
    for strip_prompt in (False, True):
        expected = gemma().generate(TEXTS, max_length=20, strip_prompt=strip_prompt)
        handler = KerasHubModelHandler(gemma_folder(), max_length=20, strip_prompt=strip_prompt)
        model = handler.load_model()
        assert handler.run_inference(TEXTS, model) == expected
        assert [handler.run_inference([text], model)[0] for text in TEXTS] == expected
        assert len(set(expected)) > 1
    expected = gemma().generate(TEXTS, max_length=20)
    assert all(answer.startswith(text) for text, answer in zip(TEXTS, expected, strict=True))


@case
def a_run_makes_tokens_in_a_step_of_their_own() -> None:
    expected = gemma().generate(TEXTS, max_length=20)
    texts: list[Any] = [*TEXTS[:2], None, *TEXTS[2:]]
    handler = KerasHubModelHandler(gemma_folder(), max_length=20)
    rows = hr.from_items([{"text": text} for text in texts]).run_inference(handler, inputs="text", name="gemma")
    assert "gemma/prepare" in str(rows.explain())
    result = rows.write_json("generated").run(on_error="dead_letter")
    found = list(hr.read_json("generated").iter_rows())
    assert [row["prediction"] for row in found] == expected
    assert result.report().balance().failed == 1


@case
def scores_are_those_of_keras_hub() -> None:
    import keras

    # Its own `predict` would make tokens in TensorFlow's graphs, which needs one more package.
    expected = keras.ops.convert_to_numpy(bert()(bert().preprocessor(TEXTS)))
    handler = KerasHubModelHandler(bert_folder())
    spec = InferenceSpec(handler=handler, inputs="text")
    columns = Predictor(spec, "s").predict(pa.record_batch({"text": TEXTS})).columns
    np.testing.assert_allclose(columns["prediction"].to_pylist(), expected, rtol=1e-4, atol=1e-5)


@case
def what_is_no_text_is_told() -> None:
    handler = KerasHubModelHandler(bert_folder())
    model = handler.load_model()
    with pytest.raises(PlanError, match='takes texts, not rows: name their column with inputs="text"'):
        handler.run_inference([{"text": "a"}], model)
    with pytest.raises(ValueError, match="takes texts, and was given int"):
        handler.run_inference([1], model)


@case
def presets_that_cannot_be_run_are_told() -> None:
    backbone = str(Path(tempfile.mkdtemp(dir=os.getcwd()), "backbone"))
    gemma().backbone.save_to_preset(backbone)
    with pytest.raises(ModelLoadError, match="does not say what it is for; pass task="):
        KerasHubModelHandler(backbone).load_model()
    with pytest.raises(ModelLoadError, match="KerasHub cannot load"):
        KerasHubModelHandler(backbone, task="text_classifier").load_model()


if __name__ == "__main__":
    run_cases(CASES, sys.argv[1])
