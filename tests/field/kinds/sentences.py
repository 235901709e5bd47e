"""Kinds of handlers for sentences."""

from __future__ import annotations

from pathlib import Path

from headrace.handlers.sentence_transformers import SentenceTransformerModelHandler
from tests.field.kinds.kind import Kind, Model
from tests.field.kinds.texts import text
from tests.handlers import sentence_models

VECTORS = "an embedding is a vector of a fixed length, and a score a number, for each text"


def embedder(folder: Path) -> Model:
    handler = SentenceTransformerModelHandler(sentence_models.make_sentence_transformer(folder), device="cpu")
    return Model(handler=handler, inputs="text")


def scorer(folder: Path) -> Model:
    sentence_models.make_encoder(folder, labels=1)
    return Model(handler=SentenceTransformerModelHandler(folder, task="rerank", device="cpu"))


EMBED = Kind(
    name="sentence-transformers, embed",
    needs=("sentence_transformers",),
    make=embedder,
    row=text,
    bad={"text": None},
    error=("RowError", "a text is needed, and there is none"),
    tolerance=1e-5,
    ragged=VECTORS,
    squeezed=VECTORS,
    miscounting=VECTORS,
)
RERANK = Kind(
    name="sentence-transformers, rerank",
    needs=("sentence_transformers",),
    make=scorer,
    row=lambda i: {"query": text(i)["text"], "passage": text(i * 3 + 1)["text"]},
    bad={"passage": None},
    error=("RowError", "a text is needed, and there is none"),
    tolerance=1e-5,
    ragged=VECTORS,
    squeezed=VECTORS,
    miscounting=VECTORS,
)

KINDS = (EMBED, RERANK)
