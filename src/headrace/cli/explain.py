"""`headrace explain`: what a pipeline would do."""

from __future__ import annotations

import click

from headrace.cli.outcome import checking, debuggable
from headrace.cli.running import prints_aside, show_plan

EPILOG = """\b
Examples:
  headrace explain pipeline.yaml
  headrace explain pipeline.yaml --json
"""


@click.command(epilog=EPILOG)
@click.argument("file", metavar="FILE")
@click.option("--set", "settings", multiple=True, metavar="KEY.KEY=VALUE", help="Replace a value of the file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@debuggable
def explain(file: str, settings: tuple[str, ...], as_json: bool) -> int:
    """Show what FILE's pipeline would do; run nothing.

    The columns after each step, and the stages that the steps run in.
    """
    from headrace.spec.jobs import build_jobs
    from headrace.spec.load import load_spec

    with checking():
        with prints_aside(as_json):
            spec = load_spec(file, settings=settings)
            jobs = build_jobs(spec, file=file)
        return show_plan(jobs, num_cpus=spec.run.num_cpus, as_json=as_json)
