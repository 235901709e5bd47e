"""`headrace run`: a pipeline in YAML."""

from __future__ import annotations

import click

from headrace.cli.outcome import checking, debuggable
from headrace.cli.running import prints_aside, reporting, run_jobs

EPILOG = """\b
Paths and modules in the file are relative to the current folder. The shape of the file: headrace schema.

\b
Examples:
  headrace run pipeline.yaml
  headrace run pipeline.yaml --set 'steps[0].infer.max_batch_size=64' --set sink.path=elsewhere/
  headrace run pipeline.yaml --json > report.json
"""


@click.command(epilog=EPILOG)
@click.argument("file", metavar="FILE")
@click.option("--set", "settings", multiple=True, metavar="KEY.KEY=VALUE", help="Replace a value of the file.")
@click.option("--overwrite", is_flag=True, help="Start afresh: throw away what earlier runs wrote.")
@reporting
@debuggable
def run(file: str, settings: tuple[str, ...], overwrite: bool, quiet: bool, as_json: bool) -> int:
    """Run the pipeline that FILE describes.

    The whole file is checked before a model is loaded or output made. A run that was stopped goes on where it was.
    """
    from headrace.spec.jobs import build_jobs
    from headrace.spec.load import load_spec

    with checking(), prints_aside(as_json):
        spec = load_spec(file, settings=settings)
        jobs = build_jobs(spec, file=file, overwrite=overwrite)
    return run_jobs(
        jobs,
        quiet=quiet,
        as_json=as_json,
        on_error=spec.on_error,
        dead_letters=spec.dead_letters.path if spec.dead_letters else None,
        num_cpus=spec.run.num_cpus,
    )
