"""`headrace schema`: the shape of pipeline.yaml for editors and programs."""

from __future__ import annotations

import json

import click

from headrace.cli.outcome import debuggable

EPILOG = """\b
Examples:
  headrace schema > pipeline.schema.json
  (then, as the first line of pipeline.yaml, for editors that know the YAML language server)
  # yaml-language-server: $schema=pipeline.schema.json
"""


@click.command(epilog=EPILOG)
@debuggable
def schema() -> None:
    """Print the JSON Schema of pipeline files."""
    from headrace.spec.schema import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
