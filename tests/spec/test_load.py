"""Pipelines with one fault each: what is said of them, and that all of it is said before anything happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SpecError
from headrace.spec.load import load_spec

GOOD = """\
source: {type: json, path: in.jsonl}
steps:
  - infer: {handler: "steps:Upper", max_batch_size: 8, max_batch_duration_secs: 0.5}
sink: {type: json, path: out}
dead_letters: {path: dead}
"""


def problems(text: str, *settings: str) -> list[str]:
    Path("p.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        load_spec("p.yaml", settings=settings)
    assert str(caught.value).splitlines() == [f"p.yaml: {problem}" for problem in caught.value.problems]
    assert not any(Path(name).exists() for name in ("LOADED", "out", "dead"))
    return caught.value.problems


def problem(text: str, *settings: str) -> str:
    (only,) = problems(text, *settings)
    return only


def good_with(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def with_step(step: str) -> str:
    return good_with('- infer: {handler: "steps:Upper", max_batch_size: 8, max_batch_duration_secs: 0.5}', f"- {step}")


def test_a_good_file() -> None:
    Path("p.yaml").write_text(GOOD)
    spec = load_spec("p.yaml")
    assert spec.source.path == ["in.jsonl"]
    assert spec.steps[0].kind == "infer"
    assert spec.on_error == "dead_letter"
    assert not Path("LOADED").exists()


def test_a_misspelt_key_is_told_with_place_and_right_word() -> None:
    text = good_with("max_batch_size", "max_batch_szie")
    assert (
        problem(text) == "line 3, column 37: steps[0].infer.max_batch_szie: is no key; did you mean 'max_batch_size'?"
    )


def test_a_misspelt_key_at_the_top() -> None:
    assert problem(good_with("dead_letters", "dead_leters")).endswith(
        "dead_leters: is no key; did you mean 'dead_letters'?"
    )


def test_a_key_that_belongs_elsewhere_is_told_where() -> None:
    text = good_with("sink:", "max_batch_size: 8\nsink:")
    expected = "line 4, column 1: max_batch_size: is not known here; max_batch_size belongs under steps[].infer"
    assert problem(text) == expected
    assert "path belongs under source or steps[].infer.cache or sink" in problem(good_with("sink:", "path: x\nsink:"))
    assert "run belongs under the top of the file" in problem(with_step("infer: {handler: 'steps:Upper', run: {}}"))


def test_a_misspelt_key_that_belongs_elsewhere() -> None:
    assert problem(good_with("sink:", "inference_arg: {}\nsink:")).endswith(
        "is no key; did you mean 'inference_args' under steps[].infer?"
    )


def test_a_key_like_nothing_gives_the_allowed_ones() -> None:
    assert problem(good_with("dead_letters: {path", "dead_letters: {zzz: 1, path")).endswith(
        "zzz: is no key; allowed are format, path"
    )


def test_keys_of_one_format_are_not_those_of_another() -> None:
    text = good_with("path: in.jsonl", "path: in.jsonl, delimiter: ';'")
    assert "source.delimiter: is not known here; delimiter belongs under source" in problem(text)


def test_kind_of_value() -> None:
    text = good_with("duration_secs: 0.5", "duration_secs: fast")
    assert problem(text).endswith("steps[0].infer.max_batch_duration_secs: must be a number, not the text 'fast'")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("max_batch_size: 8", "max_batch_size: 0", "max_batch_size: must be at least 1, not 0"),
        ("max_batch_size: 8", "max_batch_size: 8.5", "max_batch_size: must be a whole number, not 8.5"),
        ("max_batch_size: 8", "max_batch_size: '8'", "max_batch_size: must be a whole number, not the text '8'"),
        ("max_batch_size: 8", "max_batch_size: true", "max_batch_size: must be a whole number, not the truth value true"),
        ("duration_secs: 0.5", "duration_secs: -1", "must be at least 0, not -1"),
        ("duration_secs: 0.5", "duration_secs: .inf", "must be a finite number"),
        ("type: json, path: in", "type: jsno, path: in", "type must be one of csv, json, parquet, text, binary_files, images"),
        ("type: json, path: in", "type: jsno, path: in", "not the text 'jsno'; did you mean 'json'?"),
        ("type: json, path: out", "path: out", "sink: type is missing; it is one of csv, json, parquet"),
        ("type: json, path: out", "type: json", "sink.path: is missing"),
        ("path: out", "path: [out]", "sink.path: must be a text, not the list ['out']"),
        ("path: in.jsonl", "path: []", "source.path: must be a list of at least 1"),
        ("{path: dead}", "dead", "dead_letters: must be a mapping, not the text 'dead'"),
        ("steps:\n  - infer", "steps:\n    infer", "steps: must be a list, not the mapping"),
        ("{type: json, path: in.jsonl}", "in.jsonl", "source: must be a mapping"),
        ("sink: {type: json, path: out}", "sink:", "give either sink or sinks"),
        ("sink: {type: json, path: out}\n", "", "give either sink or sinks"),
        ("sink:", "sinks: [{type: csv, path: o}]\nsink:", "give either sink or sinks"),
        ("sink: {type: json, path: out}", "sinks: [{type: json}]", "sinks[0].path: is missing"),
        ("sink: {type: json, path: out}", "sinks: [{type: jsn, path: x}]", "sinks[0]: type must be one of csv, json, parquet"),
        ("sink:", "run: {on_error: ignore}\nsink:", "on_error: must be one of fail, dead_letter, null, not the text 'ignore'"),
        ("sink:", "run: {on_error: fail}\nsink:", "dead_letters would stay empty, since run.on_error is 'fail'"),
        ("max_batch_size: 8", "max_batch_size: 8, min_batch_size: 9", "min_batch_size (9) must not be above max_batch_size (8)"),
        ("max_batch_size: 8", "max_batch_weight: -1", "max_batch_weight: must be more than 0, not -1"),
            ("max_batch_size: 8", "max_batch_weight: 0", "max_batch_weight: must be more than 0, not 0"),
            ("max_batch_size: 8", "max_batch_weight: true", "max_batch_weight: must be a number, not the truth value true"),
            ("max_batch_size: 8", "max_batch_weight: .nan", "max_batch_weight: "),
            ("max_batch_size: 8", "num_gpus: -1", "num_gpus: must be at least 0, not -1"),
            ("max_batch_size: 8", "min_ram: much", "'much' is no number of bytes"),
            ("max_batch_size: 8", "memory_budget: much", "'much' is no number of bytes"),
            ("max_batch_size: 8", "memory_budget: {gpus: 1GB}", "gpus: is no key; did you mean 'gpu'?"),
            ("max_batch_size: 8", "memory_budget: {gpu: much}", "'much' is no number of bytes"),
        ("max_batch_size: 8", "inputs: 3", "inputs: must be a column, a list of columns, or a mapping from"),
        ("max_batch_size: 8", "output: [a]", "output: must be a column, or a mapping from the answers' keys to columns"),
    ],
)  # fmt: skip
def test_sense_of_values(old: str, new: str, told: str) -> None:
    assert told in problem(good_with(old, new))


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("infer: {handler: 'steps:Uper'}", "handler: module 'steps' has no 'Uper'; did you mean 'Upper'?"),
        ("infer: {handler: 'stepz:Upper'}", "handler: there is no module 'stepz'; did you mean 'steps'?"),
        ("infer: {handler: 'python:steps:Uper'}", "did you mean 'Upper'?"),
        ("infer: {handler: 'steps:Upper', args: {sufix: x}}", "Upper has no option 'sufix'; did you mean 'suffix'?"),
        ("infer: {handler: 'steps:Needy'}", "missing 1 required positional argument: 'path'"),
        ("infer: {handler: 'steps:Broken'}", "Broken cannot be made: RuntimeError: no licence"),
        ("infer: {handler: 'steps:Missing'}", "m.bin is not there"),
        ("infer: {handler: 'steps:NoHandler'}", "class 'steps:NoHandler' is no handler; derive it from headrace.ModelHandler"),
        ("infer: {handler: 'steps:ready', args: {suffix: x}}", "is a handler made already, so it takes no args"),
        ("infer: {}", "steps[0].infer: say which model answers: handler: for one, models: for several"),
        ("map: {function: 'steps:claen'}", "steps[0].map.function: module 'steps' has no 'claen'; did you mean 'clean'?"),
        ("map: {function: 'steps.clean'}", "write it as module:function"),
        ("map: {function: 'steps:clean', batch_size: 3}", "batch_size belongs under steps[].infer or steps[].map_batches"),
        ("mapp: {function: 'steps:clean'}", "steps[0].mapp: is no key; did you mean 'map'?"),
        ("clean", "steps[0]: must be a mapping, not the text 'clean'"),
        ("{}", "steps[0]: a step has one key, its kind; this one has none"),
        ("{limit: 3, drop: [a]}", "steps[0]: a step has one key, its kind; this one has drop and limit"),
        ("limit:", "steps[0]: limit is empty; say what it should do"),
        ("limit: -1", "steps[0].limit: must be at least 0, not -1"),
        ("select: [id, true]", "select[1]: must be a text, not the truth value true; put it in quotes if the text 'true' is meant"),
        ("rename: {a: 1}", "steps[0].rename.a: must be a text, not 1; put it in quotes"),
        ("map_batches: {function: 'steps:double', batch_format: panda}", "not the text 'panda'; did you mean 'pandas'?"),
    ],
)  # fmt: skip
def test_steps(step: str, told: str) -> None:
    assert told in problem(with_step(step))


def test_all_faults_are_told_at_once() -> None:
    text = good_with("max_batch_size", "max_batch_szie").replace("dead_letters", "dead_leters")
    text = text.replace("steps:Upper", "steps:Uper").replace("sink: {type: json, path: out}\n", "")
    told = problems(text)
    assert len(told) == 4
    for word in ("max_batch_szie", "dead_leters", "Uper", "give either sink or sinks"):
        assert sum(word in line for line in told) == 1


def test_a_key_given_twice() -> None:
    assert "key 'sink' is given twice (first at line 4, column 1)" in problem(GOOD + "sink: {type: csv, path: out2}\n")


def test_a_tab() -> None:
    assert (
        problem(good_with("  - infer", " \t- infer"))
        == "line 3, column 2: a tab indents this line; YAML allows spaces only"
    )


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n"])
def test_an_empty_file(text: str) -> None:
    assert "the file is empty; a pipeline has the keys source, steps and sink" in problem(text)


@pytest.mark.parametrize("text", ["- a\n", "word\n", "3\n"])
def test_no_mapping(text: str) -> None:
    assert "a pipeline is a mapping with the keys source, steps and sink, not" in problem(text)


def test_unquoted_words_are_column_names() -> None:
    Path("p.yaml").write_text(good_with("path: in.jsonl", "path: in.jsonl, columns: [id, no, on, yes, off, y]"))
    assert load_spec("p.yaml").source.options()["columns"] == ["id", "no", "on", "yes", "off", "y"]


def test_settings_replace_values_and_their_faults_are_placed_there() -> None:
    Path("p.yaml").write_text(GOOD)
    assert load_spec("p.yaml", settings=["steps[0].infer.max_batch_size=64"]).steps[0].value.max_batch_size == 64
    told = problem(GOOD, "steps[0].infer.max_batch_szie=64")
    assert told.startswith(
        "--set steps[0].infer.max_batch_szie=64: steps[0].infer.max_batch_szie: is no key; did you mean"
    )


def test_files_that_cannot_be_read() -> None:
    with pytest.raises(SpecError, match="nowhere.yaml: there is no such file"):
        load_spec("nowhere.yaml")
    Path("latin.yaml").write_bytes("source: é".encode("latin-1"))
    with pytest.raises(SpecError, match="byte 8 is no UTF-8"):
        load_spec("latin.yaml")
    with pytest.raises(SpecError, match="this is a folder"):
        load_spec(".")


def test_a_byte_order_mark_is_no_fault() -> None:
    Path("p.yaml").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load_spec("p.yaml").sink is not None
