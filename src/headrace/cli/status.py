"""`headrace status`: how far the job is that writes into a folder."""

from __future__ import annotations

import dataclasses
import json

import click

from headrace.cli.outcome import debuggable

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
    """Show what the output folder OUT holds: finished or not, rows, parts, dead letters."""
    from headrace.engine.commit import read_status

    value = dataclasses.asdict(read_status(folder))
    if as_json:
        click.echo(json.dumps(value, indent=2, default=str))
        return
    width = max(len(name) for name in value)
    for name, item in value.items():
        shown = f"{item:,}" if isinstance(item, int) and not isinstance(item, bool) else str(item)
        if not isinstance(item, dict):
            click.echo(f"{name.replace('_', ' '):<{width}}  {shown}")
