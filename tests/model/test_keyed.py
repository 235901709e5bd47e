from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.errors import PlanError, UnknownKeyError
from headrace.handlers.function import FunctionModelHandler
from headrace.model.keyed import KeyedModelHandler


class Reads(hr.ModelHandler[str]):
    """A model that is a text file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def load_model(self) -> str:
        with open(self.path) as file:
            return file.read()

    def run_inference(self, batch: Any, model: str) -> list[str]:
        return [model for _ in batch]

    def model_files(self) -> list[str]:
        return [self.path]


def echo() -> FunctionModelHandler:
    return FunctionModelHandler(lambda batch: batch)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"models": {}, "key": "k"}, "has no models"),
        ({"models": {"a": "net.pkl"}, "key": "k"}, r"model 'a' is 'net.pkl'; pass a ModelHandler"),
        ({"models": {"a": echo()}}, "key is None; pass the column"),
        ({"models": {"a": echo()}, "key": "k", "mode": "both"}, "mode is 'both'; 'route'"),
        ({"models": {"a": echo()}, "key": "k", "mode": "all"}, "leave key= out"),
    ],
)
def test_what_cannot_work_is_told_when_it_is_made(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        KeyedModelHandler(**arguments)


def test_a_handler_for_many_is_no_model_among_others() -> None:
    with pytest.raises(PlanError, match="for one model"):
        KeyedModelHandler({"a": KeyedModelHandler({"b": echo()}, key="k")}, key="k")
    with pytest.raises(PlanError, match="is no model itself"):
        KeyedModelHandler({"a": echo()}, key="k").load_model()


def test_names_are_text_and_a_name_that_is_nobody_s_is_told_with_those_there_are() -> None:
    keyed = KeyedModelHandler({name: echo() for name in ("german", "french", 7)}, key="k")
    assert keyed.handler_of("7") is keyed.models["7"]
    with pytest.raises(UnknownKeyError, match=r"no model 'germna'; did you mean 'german'\? Models: german, french, 7$"):
        keyed.handler_of("germna")
    with pytest.raises(UnknownKeyError, match="the key is null"):
        keyed.handler_of(None)
    many = KeyedModelHandler({str(n): echo() for n in range(50)}, key="k")
    with pytest.raises(UnknownKeyError, match=r"8, 9, …$"):
        many.handler_of("x")


def test_a_pattern_makes_the_handler_of_any_key_that_stays_within_it(tmp_path: Any) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "model.txt").write_text("A")
    keyed = KeyedModelHandler.from_pattern(str(tmp_path / "{key}" / "model.txt"), make=Reads, key="k")
    assert keyed.handler_of("a").load_model() == "A"
    assert keyed.model_files() == [str(tmp_path / "a" / "model.txt")]
    for key in ("..", ".", "", "a/../../etc", "a\\b"):
        with pytest.raises(UnknownKeyError, match="names no model"):
            keyed.handler_of(key)
    with pytest.raises(PlanError, match=r"no \{key\} in it"):
        KeyedModelHandler.from_pattern("models/model.txt", make=Reads, key="k")


def test_files_and_checks_are_those_of_all_models() -> None:
    keyed = KeyedModelHandler({"a": Reads("a.txt"), "b": Reads("b.txt")}, key="k")
    assert keyed.model_files() == ["a.txt", "b.txt"]

    class Broken(Reads):
        def check(self) -> None:
            raise PlanError("no such file b.txt")

    with pytest.raises(PlanError, match=r"no such file b\.txt"):
        KeyedModelHandler({"a": Reads("a.txt"), "b": Broken("b.txt")}, key="k").check()
