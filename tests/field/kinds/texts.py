"""Kinds of handlers for texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.handlers.huggingface import HuggingFaceModelHandler, HuggingFacePipelineModelHandler
from tests.field.kinds.kind import Kind, Model
from tests.handlers import tiny_transformers
from tests.handlers.tiny_transformers import WORDS

FIRST_WORD = 5
"""The token of the first word; those before it are special."""


def text(i: int) -> dict[str, Any]:
    """A text of one to five words."""
    return {"text": " ".join(WORDS[(i + j) % len(WORDS)] for j in range(1 + i % 5))}


def word(i: int, count: int) -> dict[str, Any]:
    """A text of one word, so many times: its number can be read from its tokens."""
    return {"text": " ".join([WORDS[i]] * count)}


def bert(folder: Path, head: str = "Model") -> Path:
    import torch

    torch.manual_seed(0)
    return tiny_transformers.save_bert(folder, head, initializer_range=0.5)  # so that answers differ


def of_words(folder: Path, answer: Callable[[Any], Any]) -> Model:
    """A model that answers from the numbers of a batch's words, the other tokens being less than 0."""

    def inference_fn(tensors: Any, module: Any, device: Any, args: Any) -> Any:
        return answer(tensors["input_ids"] - FIRST_WORD)

    handler = HuggingFaceModelHandler(bert(folder), device="cpu", inference_fn=inference_fn)
    return Model(handler=handler, inputs="text", columns=word)


def pipeline_of_words(folder: Path) -> Model:
    """A pipeline of the user's own, which answers a list of the numbers of a text's words."""
    bert(folder)
    import transformers

    class Words(transformers.FeatureExtractionPipeline):
        def _forward(self, model_inputs: Any) -> Any:
            return model_inputs["input_ids"] - FIRST_WORD

        def postprocess(self, words: Any) -> Any:
            return words[words >= 0].float().tolist()

    handler = HuggingFacePipelineModelHandler(
        "feature-extraction", folder, device="cpu", pipeline_kwargs={"pipeline_class": Words}
    )
    return Model(handler=handler, inputs="text", columns=word)


HUGGINGFACE = Kind(
    name="huggingface",
    needs=("transformers",),
    make=lambda folder: Model(handler=HuggingFaceModelHandler(bert(folder), device="cpu"), inputs="text"),
    row=text,
    bad={"text": None},
    error=("RowError", "a text is expected, not null"),
    tolerance=1e-5,
    ragged=lambda folder: of_words(folder, lambda words: [row[row >= 0].float() for row in words]),
    squeezed=lambda folder: of_words(folder, lambda words: (words[:, 1:2] * 0.5).squeeze()),
    miscounting=lambda folder: of_words(folder, lambda words: words[words >= 0].float()),
)
PIPELINE = Kind(
    name="huggingface pipeline",
    needs=("transformers",),
    make=lambda folder: Model(
        handler=HuggingFacePipelineModelHandler(
            "text-classification",
            bert(folder, "ForSequenceClassification"),
            device="cpu",
            pipeline_kwargs={"top_k": None},
        ),
        inputs="text",
    ),
    row=text,
    bad={"text": None},
    error=("RowError", "a value is expected, not null"),
    tolerance=1e-5,
    ragged=pipeline_of_words,
    squeezed="a pipeline answers items, one by one",
    miscounting="a pipeline answers each item by itself",
)

KINDS = (HUGGINGFACE, PIPELINE)
