from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.main import main
from tests.cli.written import rows

Printed = pytest.CaptureFixture[str]


def infer(source: str, *more: str) -> int:
    return main(["infer", "python:own:Upper", source, "-o", "out", "--format", "json", "--quiet", *more])


def test_options_of_the_reader() -> None:
    Path("semi.csv").write_bytes("id;text\n1;café\n".encode("cp1252"))
    options = ["--read", "delimiter=;", "--read", "encoding=cp1252", "--dtype", "id=string"]
    assert infer("semi.csv", "--inputs", "text", "--keep", "id", *options) == 0
    assert rows("out") == [{"id": "1", "prediction": "CAFÉ", "model_id": "Upper"}]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("delimitr=;", "Error: --read delimitr: is no key; did you mean 'delimiter'?"),
        ("delimiter=';;'", "Error: --read delimiter: must be a single character, not the text ';;'"),
        ("has_header=0", "Error: --read has_header: must be true or false, not 0"),
    ],
)
def test_wrong_options_are_told_before_anything_runs(option: str, message: str, capsys: Printed) -> None:
    Path("in.csv").write_text("text\nx\n")
    assert infer("in.csv", "--read", option) == 2
    assert capsys.readouterr().err.strip() == message
    assert not Path("out").exists()


def test_what_a_wrong_delimiter_is_answered_with_can_be_typed(capsys: Printed) -> None:
    Path("tabs.csv").write_text("id\ttext\n1\tgood\n")
    assert infer("tabs.csv", "--inputs", "text") != 0
    assert r"""pass --read 'delimiter="\t"'""" in capsys.readouterr().err
    assert infer("tabs.csv", "--inputs", "text", "--read", r'delimiter="\t"') == 0
    assert rows("out")[0]["prediction"] == "GOOD"
