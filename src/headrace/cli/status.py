"""`headrace status`: how far the job is that writes into a folder."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import TYPE_CHECKING

import click

from headrace.cli.outcome import debuggable
from headrace.metrics.quantities import amount, count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine.commit.input_status import InputStatus
    from headrace.engine.commit.status import OutputStatus

EPILOG = """\b
Examples:
  headrace status out/
  headrace status out/ --json
  headrace status s3://bucket/out/
"""

SHOWN = 10


@click.command(epilog=EPILOG)
@click.argument("folder", metavar="OUT")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@debuggable
def status(folder: str, as_json: bool) -> None:
    """Show how far the job is that writes to OUT, a folder or a URL.

    Finished or not, rows, parts, dead letters, and the input file by file: done, open, failed. Disturbs no run.
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
    lines += _inputs(status.inputs)
    if status.retrying:
        lines.append(f"  {count(status.retrying, 'failed row')} being run again: headrace retry goes on with it")
    elif status.state == "unfinished":
        lines.append("  run the same command again to go on")
    return "\n".join(lines)


def _inputs(inputs: Sequence[InputStatus]) -> list[str]:
    """Count the input by state, and name what is not done or has failed rows."""
    if not inputs:
        return []
    states = Counter[str]()
    for piece in inputs:
        states[piece.state] += len(piece.names)
    told = ", ".join(f"{states[state]:,} {state}" for state in ("done", "open", "waiting", "given up") if states[state])
    remarkable = [piece for piece in inputs if piece.state in ("open", "given up") or piece.failed]
    lines = [
        f"    {piece.label}: {piece.state}" + (f", {count(piece.failed, 'row')} failed" if piece.failed else "")
        for piece in remarkable[:SHOWN]
    ]
    more = [f"    and {len(remarkable) - SHOWN} more"] if len(remarkable) > SHOWN else []
    return [f"  input: {told}", *lines, *more]
