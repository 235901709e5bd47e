from __future__ import annotations

import subprocess
import sys

import pytest

from headrace.cli.main import commands, main

COMMANDS = sorted(commands.commands)


def test_all_commands_are_there() -> None:
    assert COMMANDS == ["compact", "completion", "explain", "handlers", "infer", "retry", "run", "schema", "status"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_examples_that_name_the_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    examples = capsys.readouterr().out.rpartition("Examples:\n")[2]
    assert f"headrace {command}" in examples


def test_help_tells_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "finished, and some rows failed" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("headrace 0.")


WRONG = ["", "inferr", "infer", "infer sklearn:m.pkl a.csv", "run", "run --sett a=1", "completion tcsh"]


@pytest.mark.parametrize("line", WRONG)
def test_bad_usage(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    assert "Usage:" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["infer", "--help"], ["completion", "bash"], ["run"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import sys; from headrace.cli.main import main; main(sys.argv[1:]);"
        "print(sorted(m for m in ('pydantic', 'rich', 'yaml', 'fsspec', 'sqlite3', 'pandas') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_python_dash_m() -> None:
    done = subprocess.run([sys.executable, "-m", "headrace", "--help"], capture_output=True, text=True, check=True)
    assert "Run machine-learning models over data in bulk." in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_HEADRACE_COMPLETE" in capsys.readouterr().out
