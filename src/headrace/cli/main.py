"""The `headrace` command: its subcommands, and what becomes of errors.

Modules of this package import click alone at the top, so that help and completion answer at once.
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

import click

from headrace.cli.compact import compact
from headrace.cli.completion import completion
from headrace.cli.explain import explain
from headrace.cli.handlers import handlers
from headrace.cli.infer import infer
from headrace.cli.outcome import BAD_USAGE, GOOD, RUN_FAILED, Settings, code_of, message_of
from headrace.cli.retry import retry
from headrace.cli.run import run
from headrace.cli.schema import schema
from headrace.cli.status import status
from headrace.errors import RunInterrupted

if TYPE_CHECKING:
    from collections.abc import Sequence

EPILOG = """\b
Exit codes:
  0    all good
  1    the run failed; what had been committed stays, and the same command goes on there
  2    the command or the pipeline is wrong; nothing was run
  3    finished, and some rows failed (see the report and the dead letters)
  130  interrupted (Ctrl-C); 143 terminated (SIGTERM)

\b
Examples:
  headrace infer sklearn:model.pkl 'data/*.csv' --inputs age,spend -o out/
  headrace run pipeline.yaml --set sink.path=elsewhere/
  headrace status out/
  headrace retry out/
  headrace compact out/
"""


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="headrace", prog_name="headrace", message="%(prog)s %(version)s")
def commands() -> None:
    """Run machine-learning models over data in bulk."""


for _command in (infer, run, explain, status, retry, compact, schema, handlers, completion):
    commands.add_command(_command)


def program() -> NoReturn:
    """Run the command line as a process of its own, and end it without taking the frameworks down piece by piece.

    Taking down what a framework has imported takes a fifth of a second and more, and there is nothing left to do.
    """
    code = main()
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):  # whoever read our output has gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    settings = Settings(arguments=tuple(given))
    try:
        code = commands.main(given, prog_name="headrace", obj=settings, standalone_mode=False)
    except click.ClickException as error:
        _raise_again_if(settings.debug)
        error.show()
        return BAD_USAGE
    except (KeyboardInterrupt, click.Abort) as error:
        _raise_again_if(settings.debug)
        # click makes an Abort of every KeyboardInterrupt, and RunInterrupted is one.
        interrupted = error.__cause__ if isinstance(error.__cause__, RunInterrupted) else error
        _say(message_of(interrupted))
        return code_of(interrupted)
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more when it flushes stdout at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return RUN_FAILED
    except Exception as error:
        _raise_again_if(settings.debug)
        _say(message_of(error))
        return code_of(error)
    return code if isinstance(code, int) else GOOD


def _raise_again_if(debug: bool) -> None:
    if debug:
        raise


def _say(message: str) -> None:
    click.echo(message, err=True)
