"""Tokens of sentences; what needs no framework of it is among the core tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import ModelLoadError, PlanError, RowError
from headrace.handlers.sentence_tokens import TEXTS, TOKENS, SentenceTokens, prompt_of, texts_of

PAIRS = [("where?", "here"), ("when?", "now")]


@pytest.mark.parametrize(
    "batch",
    [
        PAIRS,
        np.array(PAIRS, dtype=object),
        {"query": np.array(["where?", "when?"], dtype=object), "passage": ["here", "now"]},
    ],
)
def test_pairs_come_in_many_forms(batch: Any) -> None:
    assert texts_of(batch, pairs=True) == [["where?", "when?"], ["here", "now"]]


@pytest.mark.parametrize(
    "batch", [["a", "b"], np.array(["a", "b"], dtype=object), {"text": ["a", "b"]}, [["a"], ["b"]]]
)
def test_texts_come_in_many_forms(batch: Any) -> None:
    assert texts_of(batch, pairs=False) == [["a", "b"]]


def test_too_few_and_too_many_columns_are_told() -> None:
    with pytest.raises(PlanError, match="the model takes one column of text, and was given 2"):
        texts_of(PAIRS, pairs=False)
    with pytest.raises(PlanError, match=r"two columns of text, such as inputs=\['query', 'passage'\], and was given 1"):
        texts_of(["a"], pairs=True)


@pytest.mark.parametrize(("value", "found"), [(None, "none"), (7, "int"), (float("nan"), "float")])
def test_what_is_no_text_fails(value: Any, found: str) -> None:
    with pytest.raises(RowError, match=f"a text is needed, and there is {found}"):
        texts_of(["a", value], pairs=False)


def test_half_a_pair_of_code_units_is_told_as_such() -> None:
    with pytest.raises(RowError, match=r"lone surrogate \('\\udce9', character 3\).*'surrogatepass'"):
        texts_of(["a", "caf\udce9"], pairs=False)


def test_prompts_are_given_or_named_or_the_models_own(tmp_path: Path) -> None:
    assert prompt_of(tmp_path, None, None) == ""
    assert prompt_of(tmp_path, None, "query") == "", "every SentenceTransformer knows this one"
    config = {"prompts": {"query": "Q: ", "title": "T: ", "document": None}, "default_prompt_name": "title"}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(config))
    assert prompt_of(tmp_path, None, "query") == "Q: "
    assert prompt_of(tmp_path, None, "document") == ""
    assert prompt_of(tmp_path, None, None) == "T: "
    assert prompt_of(tmp_path, "", None) == ""
    with pytest.raises(
        ModelLoadError, match="has no prompt 'querry'; did you mean 'query'.*Prompts: query, document, title"
    ):
        prompt_of(tmp_path, None, "querry")


TRANSFORMER = {"path": "", "type": "sentence_transformers.models.Transformer"}
POOLING = {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}


@pytest.mark.parametrize(
    ("files", "options"),
    [
        ({"modules.json": [{"path": "", "type": "sentence_transformers.models.Router"}]}, {}),
        ({"modules.json": [{"path": "", "type": "custom.Transformer"}]}, {}),
        ({"modules.json": [TRANSFORMER], "sentence_bert_config.json": {"do_lower_case": True}}, {}),
        ({"modules.json": [TRANSFORMER], "sentence_bert_config.json": {"query_length": 32}}, {}),
        ({"modules.json": [TRANSFORMER], "sentence_bert_config.json": {"transformer_task": "text-generation"}}, {}),
        (
            {
                "modules.json": [TRANSFORMER],
                "sentence_bert_config.json": {"modality_config": {"text": {}, "image": {}}},
            },
            {},
        ),
        (
            {"modules.json": [TRANSFORMER, POOLING], "1_Pooling/config.json": {"include_prompt": False}},
            {"prompt": "Q: "},
        ),
        ({"config.json": {"architectures": ["QwenForCausalLM"]}}, {"pairs": True}),
    ],
)
def test_models_that_do_more_than_to_tokenise_get_their_texts(
    tmp_path: Path, files: dict[str, Any], options: dict[str, Any]
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content))
    tokens = SentenceTokens(str(tmp_path), **options)
    tokens.setup()
    if options.get("pairs"):
        assert tokens(PAIRS) == {TEXTS[0]: ["where?", "when?"], TEXTS[1]: ["here", "now"]}
    else:
        assert tokens(["a", "bc"]) == {TEXTS[0]: ["a", "bc"]}
    assert tokens.longest is None


heavy = pytest.mark.heavy


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.handlers.sentence_models import make_encoder

    return make_encoder(tmp_path_factory.mktemp("models") / "encoder", labels=1)


def made(encoder: Path, batch: Any, **options: Any) -> dict[str, list[Any]]:
    tokens = SentenceTokens(str(encoder), **options)
    tokens.setup()
    return {name: column.to_pylist() for name, column in tokens(batch).items()}


@heavy
def test_each_text_has_its_own_length(encoder: Path) -> None:
    found = made(encoder, ["the mill", "", "the mill wheel turns"])
    assert [len(ids) for ids in found[TOKENS]] == [4, 2, 6]
    assert [ids for row in found["token_type_ids"] for ids in row] == [0] * 12
    assert "attention_mask" not in found


@heavy
def test_pairs_are_told_apart(encoder: Path) -> None:
    assert made(encoder, [("where", "here here")], pairs=True)["token_type_ids"] == [[0, 0, 0, 1, 1, 1]]


@heavy
def test_long_texts_are_cut_where_the_model_cuts_them(encoder: Path) -> None:
    long = ["mill " * 100]
    assert len(made(encoder, long)[TOKENS][0]) == 32
    assert len(made(encoder, long, max_seq_length=7)[TOKENS][0]) == 7


@heavy
def test_a_prompt_goes_before_each_text_and_before_the_first_of_a_pair(encoder: Path) -> None:
    assert made(encoder, ["mill"], prompt="the ") == made(encoder, ["the mill"])
    pairs = made(encoder, [("mill", "wheel")], prompt="the ", pairs=True)
    assert pairs == made(encoder, [("the mill", "wheel")], pairs=True)
