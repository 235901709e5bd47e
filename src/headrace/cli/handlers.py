"""`headrace handlers`: which kinds of model can be run here."""

from __future__ import annotations

import dataclasses
import json

import click

from headrace.cli.outcome import debuggable

EPILOG = """\b
Examples:
  headrace handlers
  headrace handlers --json
"""


@click.command(epilog=EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@debuggable
def handlers(as_json: bool) -> None:
    """Show the kinds of model and what is installed.

    What is missing is shown with the command that installs it.
    """
    from headrace.handlers.registry import installed

    rows = installed()
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
        return
    for row in rows:
        click.echo(str(row))
