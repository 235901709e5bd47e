"""`headrace status`: how far the job is that writes into a folder."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import click

from headrace.cli.outcome import debuggable
from headrace.metrics.quantities import amount, count

if TYPE_CHECKING:
    from headrace.engine.commit.status import OutputStatus

EPILOG = """\b
Examples:
  headrace status out/
  headrace status out/ --json
"""


@click.command(epilog=EPILOG)
@click.argument("folder", metavar="OUT")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@debuggable
def status(folder: str, as_json: bool) -> None:
    """Show how far the job is that writes to OUT.

    Finished or not, rows, parts, dead letters. Disturbs no run.
    """
    from headrace.engine.commit.status import read_status

    found = read_status(folder)
    click.echo(json.dumps(dataclasses.asdict(found), indent=2) if as_json else text_of(found))


def text_of(status: OutputStatus) -> str:
    """Describe an output folder for people."""
    if status.state == "never ran":
        return f"{status.folder}: no job has written here"
    lines = [
        f"{status.folder}: {status.state}",
        f"  {count(status.rows, 'row')} in {count(status.parts, 'part')}, {amount(status.nbytes)}",
    ]
    if status.waiting_rows:
        lines.append(f"  {count(status.waiting_rows, 'row')} finished and waiting for their part")
    if status.dead_letters:
        lines.append(f"  {count(status.dead_letters, 'dead letter')} in {status.dead_letters_folder}")
    if status.state == "unfinished":
        lines.append("  run the same command again to go on")
    return "\n".join(lines)
