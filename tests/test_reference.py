"""docs/reference says what the code says."""

import headrace as hr
from docs.make_reference import FOLDER, pages


def test_the_reference_is_up_to_date():
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    made = pages()
    stale = sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))
    assert not stale, "run `make docs`"


def test_every_public_name_is_described():
    text = "".join(pages().values())
    assert [name for name in hr.__all__ if f"`{name}`" not in text] == []


def test_every_command_and_key_is_described():
    made = pages()
    for command in ("infer", "run", "explain", "status"):
        assert f"Usage: headrace {command}" in made["command-line.md"]
    assert "| `max_batch_size` | integer from 1 |" in made["pipeline-file.md"]
