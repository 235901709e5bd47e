"""`headrace run`: a pipeline in YAML."""

from __future__ import annotations

import click

from headrace.cli.outcome import checking, debuggable
from headrace.cli.running import changing, limited, prints_aside, reporting, run_jobs

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
@click.option("--max-failed-rows", type=click.IntRange(min=0), metavar="ROWS",
              help="Stop once more rows than that have failed.")  # fmt: skip
@click.option("--max-failed-ratio", type=click.FloatRange(0, 1), metavar="SHARE",
              help="The same as a share of all rows, such as 0.01.")  # fmt: skip
@click.option("--retry-failed", is_flag=True, help="Run the failed rows of the outputs again, and nothing else.")
@click.option("--overwrite", is_flag=True, help="Start afresh: throw away what earlier runs wrote.")
@changing
@limited
@reporting
@debuggable
def run(
    file: str,
    settings: tuple[str, ...],
    max_failed_rows: int | None,
    max_failed_ratio: float | None,
    retry_failed: bool,
    overwrite: bool,
    on_change: str | None,
    memory_limit: str | None,
    disk_limit: str | None,
    max_outage_secs: float | None,
    quiet: bool,
    as_json: bool,
) -> int:
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
        on_error=spec.on_error or ("dead_letter" if retry_failed else None),
        dead_letters=spec.dead_letters.path if spec.dead_letters else None,
        dead_letters_format=spec.dead_letters.format if spec.dead_letters else None,
        max_failed_rows=spec.run.max_failed_rows if max_failed_rows is None else max_failed_rows,
        max_failed_ratio=spec.run.max_failed_ratio if max_failed_ratio is None else max_failed_ratio,
        retry_failed=retry_failed or None,
        on_change=on_change or spec.run.on_change,
        num_cpus=spec.run.num_cpus,
        memory_limit=memory_limit or spec.run.memory_limit,
        disk_limit=disk_limit or spec.run.disk_limit,
        stall_warning_secs=spec.run.stall_warning_secs,
        max_outage_secs=spec.run.max_outage_secs if max_outage_secs is None else max_outage_secs,
    )
