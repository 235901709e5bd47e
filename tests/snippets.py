"""Runs the snippets of Markdown pages, so that no page shows what does not work.

A page is one story: its snippets run from top to bottom in one namespace and one empty folder. Run are fenced blocks
of `python` (as doctest where they hold `>>>`), `console` (lines after `$ `; the lines between are expected output,
"..." stands for anything) and `sh`. A comment before a block says what is special about it:

    <!-- test: skip WHY -->        is not run
    <!-- test: heavy -->           needs a heavy framework: runs with the heavy tests only
    <!-- test: exit 3 -->          its last command ends with this exit code
    <!-- test: file NAME -->       is written to the folder under this name, whatever its language

and `<!-- test: setup`, code, `-->` is Python that readers do not see.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RUN = {"python", "pycon", "console", "sh", "bash", "shell"}
MARK = re.compile(r"<!-- test: (?P<word>skip|heavy|exit|file)(?: +(?P<rest>.+?))? -->\s*$")
SETUP = "<!-- test: setup"
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)")
LIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """One block of a page."""

    page: str
    line: int
    language: str
    code: str
    skip: str | None = None
    heavy: bool = False
    exit_code: int = 0
    file: str | None = None

    @property
    def place(self) -> str:
        """Where it stands, as editors understand it."""
        return f"{self.page}:{self.line}"


class SnippetError(Exception):
    """A page does not do what it says; the message names page and line."""


def snippets_of(text: str, page: str) -> list[Snippet]:
    """Return the snippets of a page that are to be run, written or skipped, in their order.

    Raises:
        SnippetError: a mark is misspelt, or stands before no block.
    """
    found, marks, lines = [], dict[str, str](), text.splitlines()
    number = 0
    while number < len(lines):
        line, number = lines[number], number + 1
        if line.strip() == SETUP:
            end = _end(lines, number, "-->", page)
            found.append(Snippet(page=page, line=number, language="python", code="\n".join(lines[number:end]) + "\n"))
            number = end + 1
        elif line.lstrip().startswith("<!-- test:"):
            mark = MARK.match(line.strip())
            if mark is None:
                raise SnippetError(f"{page}:{number}: no such mark: {line.strip()}")
            marks[mark["word"]] = mark["rest"] or ""
        elif fence := FENCE.match(line):
            end = _end(lines, number, "```", page)
            code = "".join(f"{x.removeprefix(fence['indent'])}\n" for x in lines[number:end])
            if fence["language"] in RUN or marks:
                found.append(_marked(marks, page=page, line=number, language=fence["language"], code=code))
            marks, number = {}, end + 1
        elif line.strip() and marks:
            raise SnippetError(f"{page}:{number}: the mark above stands before no block")
    return found


def run_page(snippets: list[Snippet], folder: Path, *, heavy: bool) -> None:
    """Run a page's snippets in an empty folder.

    Raises:
        SnippetError: one of them failed.
    """
    namespace: dict[str, Any] = {"__name__": "page"}
    environment = _environment(folder)
    before = os.getcwd()
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        for snippet in snippets:
            if snippet.skip is None and (heavy or not snippet.heavy):
                _run(snippet, namespace, environment)
    finally:
        sys.path.remove(str(folder))
        os.chdir(before)


def _run(snippet: Snippet, namespace: dict[str, Any], environment: dict[str, str]) -> None:
    if snippet.file is not None:
        Path(snippet.file).parent.mkdir(parents=True, exist_ok=True)
        Path(snippet.file).write_text(snippet.code)
    elif snippet.language in ("python", "pycon"):
        _run_python(snippet, namespace)
    elif snippet.language == "console":
        *before, last = commands_of(snippet.code)
        for command, expected in before:
            _run_command(snippet, command, expected, environment, 0)
        _run_command(snippet, *last, environment, snippet.exit_code)
    else:
        _run_command(snippet, snippet.code, "", environment, snippet.exit_code)


def _run_python(snippet: Snippet, namespace: dict[str, Any]) -> None:
    if ">>>" in snippet.code:
        test = doctest.DocTestParser().get_doctest(snippet.code, namespace, snippet.place, snippet.page, snippet.line)
        report: list[str] = []
        doctest.DocTestRunner(verbose=False, optionflags=LIKE).run(test, out=report.append, clear_globs=False)
        namespace.update(test.globs)
        if report:
            raise SnippetError(f"{snippet.place}\n{''.join(report)}")
        return
    # Lines before the code keep the line numbers of tracebacks those of the page.
    source = "\n" * snippet.line + snippet.code
    try:
        exec(compile(source, str(ROOT / snippet.page), "exec"), namespace)
    except Exception as error:
        raise SnippetError(f"{snippet.place}: {type(error).__name__}: {error}") from error


def commands_of(code: str) -> list[tuple[str, str]]:
    r"""Return the commands of a console block, each with the output shown for it.

    >>> commands_of("$ echo a \\\n  b\na b\n$ true\n")
    [('echo a \\\n  b', 'a b\n'), ('true', '')]
    """
    commands: list[tuple[str, str]] = []
    continued = False
    for line in code.splitlines():
        if continued:
            commands[-1] = (f"{commands[-1][0]}\n{line}", "")
        elif line.startswith("$ "):
            commands.append((line[2:], ""))
        elif commands:
            commands[-1] = (commands[-1][0], f"{commands[-1][1]}{line}\n")
        continued = (continued or line.startswith("$ ")) and line.endswith("\\")
    return commands


def _run_command(snippet: Snippet, command: str, expected: str, environment: dict[str, str], exit_code: int) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command], env=environment, capture_output=True, text=True, check=False
    )
    shown = done.stdout + done.stderr
    if done.returncode != exit_code:
        raise SnippetError(f"{snippet.place}: exit code {done.returncode} from: {command}\n{shown}")
    if expected.strip() and not doctest.OutputChecker().check_output(expected, shown, LIKE):
        raise SnippetError(f"{snippet.place}: {command}\nexpected:\n{expected}\nshown:\n{shown}")


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment where `python` and `headrace` are those under test, installed or not."""
    programs = folder.parent / f"{folder.name}-programs"
    programs.mkdir(exist_ok=True)
    for name, arguments in {"python": "", "headrace": "-m headrace "}.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
        program.chmod(0o755)
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": path, "NO_COLOR": "1"}


def _marked(marks: dict[str, str], *, page: str, line: int, language: str, code: str) -> Snippet:
    if "skip" in marks and not marks["skip"]:
        raise SnippetError(f"{page}:{line}: a skipped block says why: <!-- test: skip WHY -->")
    return Snippet(
        page=page,
        line=line,
        language=language,
        code=code,
        skip=marks.get("skip"),
        heavy="heavy" in marks,
        exit_code=int(marks.get("exit", 0)),
        file=marks.get("file"),
    )


def _end(lines: list[str], start: int, closing: str, page: str) -> int:
    for number in range(start, len(lines)):
        if lines[number].strip() == closing:
            return number
    raise SnippetError(f"{page}:{start}: the block that begins here does not end")
