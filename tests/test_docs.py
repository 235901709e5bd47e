"""Every snippet of README.md and docs/ runs, and so do the links between pages."""

import re

import pytest

from tests.snippets import ROOT, SnippetError, commands_of, run_page, snippets_of

PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [*ROOT.glob("README.md"), *sorted((ROOT / "docs").rglob("*.md"))]
}
SNIPPETS = {page: snippets_of(text, page) for page, text in PAGES.items()}
LIGHT = [page for page, found in SNIPPETS.items() if any(s.skip is None and not s.heavy for s in found)]
HEAVY = [page for page, found in SNIPPETS.items() if any(s.skip is None and s.heavy for s in found)]
LINK = re.compile(r"\]\((?!https?:|mailto:|#)(?P<target>[^)#\s]+)")


@pytest.mark.parametrize("page", LIGHT)
def test_snippets_run(page, tmp_path):
    folder = tmp_path / "page"
    folder.mkdir()
    run_page(SNIPPETS[page], folder, heavy=False)


@pytest.mark.heavy
@pytest.mark.parametrize("page", HEAVY)
def test_snippets_that_need_heavy_frameworks_run(page, tmp_path):
    folder = tmp_path / "page"
    folder.mkdir()
    run_page(SNIPPETS[page], folder, heavy=True)


@pytest.mark.parametrize("page", list(PAGES))
def test_links_between_pages_lead_somewhere(page):
    folder = (ROOT / page).parent
    targets = [match["target"] for match in LINK.finditer(PAGES[page])]
    assert [t for t in targets if not (folder / t).exists()] == []


def ran(text, folder, *, heavy=False):
    run_page(snippets_of(text, "page.md"), folder, heavy=heavy)


def test_a_page_is_one_story(tmp_path):
    ran("```python\nx = 1\n```\nwords\n```python\nassert x == 1\n```\n", tmp_path)


def test_a_failing_snippet_is_named_by_page_and_line(tmp_path):
    with pytest.raises(SnippetError, match=r"page\.md:3: ZeroDivisionError"):
        ran("words\n\n```python\n1 / 0\n```\n", tmp_path)


def test_shown_answers_are_compared(tmp_path):
    ran("```python\n>>> 1 + 1\n2\n```\n", tmp_path)
    with pytest.raises(SnippetError, match="Got:\n    2"):
        ran("```python\n>>> 1 + 1\n3\n```\n", tmp_path)


def test_shown_output_of_commands_is_compared(tmp_path):
    ran("```console\n$ echo one two\none ...\n```\n", tmp_path)
    with pytest.raises(SnippetError, match="shown:\none"):
        ran("```console\n$ echo one\ntwo\n```\n", tmp_path)


def test_exit_codes_are_compared_and_hold_for_the_last_command(tmp_path):
    ran("<!-- test: exit 3 -->\n```console\n$ true\n$ exit 3\n```\n", tmp_path)
    with pytest.raises(SnippetError, match="exit code 1 from: false"):
        ran("<!-- test: exit 3 -->\n```console\n$ false\n$ exit 3\n```\n", tmp_path)


def test_marks_skip_set_up_and_write_files(tmp_path):
    page = (
        "<!-- test: setup\nx = 1\n-->\n"
        "<!-- test: skip needs a bucket -->\n```python\n1 / 0\n```\n"
        "<!-- test: heavy -->\n```python\n1 / 0\n```\n"
        "<!-- test: file steps/a.yaml -->\n```yaml\na: 1\n```\n"
        "```python\nassert x == 1\nassert open('steps/a.yaml').read() == 'a: 1\\n'\n```\n"
    )
    ran(page, tmp_path)
    with pytest.raises(SnippetError, match="ZeroDivisionError"):
        ran(page, tmp_path, heavy=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- test: skipp it -->\n", "page.md:1: no such mark"),
        ("<!-- test: skip -->\n```python\n```\n", "says why"),
        ("<!-- test: heavy -->\nwords\n", "before no block"),
        ("```python\nx = 1\n", "page.md:1: the block that begins here does not end"),
    ],
)
def test_a_faulty_page_is_named(text, message):
    with pytest.raises(SnippetError, match=message):
        snippets_of(text, "page.md")


def test_commands_may_go_over_several_lines():
    assert commands_of("$ echo a \\\n    b\na b\n$ true\n") == [("echo a \\\n    b", "a b\n"), ("true", "")]
