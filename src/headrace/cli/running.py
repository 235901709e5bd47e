"""What commands have in common that run or explain jobs."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.outcome import FAILED_ROWS, GOOD, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.dataset import Job
    from headrace.metrics.report import Report

FunctionT = TypeVar("FunctionT", bound="Callable[..., Any]")


def reporting(command: FunctionT) -> FunctionT:
    """Add --quiet and --json to a command."""
    quiet = click.option("-q", "--quiet", is_flag=True, help="No progress and no report; errors only.")
    as_json = click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on stdout.")
    return quiet(as_json(command))


def changing(command: FunctionT) -> FunctionT:
    """Add --on-change to a command."""

    def in_python(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
        return value and value.replace("-", "_")

    told = "What happens when input files were changed or removed since OUT was begun."
    choice = click.Choice(["fail", "restart", "continue-new-input"])
    return click.option("--on-change", type=choice, callback=in_python, help=told)(command)


def limited(command: FunctionT) -> FunctionT:
    """Add --memory-limit, --disk-limit and --max-outage-secs to a command."""
    memory = "What the run may use with its workers, such as 4GB (60 % of what there is, if not given)."
    disk = "What finished rows may take on the disk while they wait for earlier ones, such as 20GB."
    command = click.option("--disk-limit", metavar="SIZE", callback=_size, help=disk)(command)
    command = click.option("--memory-limit", metavar="SIZE", callback=_size, help=memory)(command)
    outage = "How long a store that is busy or out of reach is asked again (60, if not given)."
    return click.option("--max-outage-secs", metavar="S", type=click.FloatRange(min=0), help=outage)(command)


def _size(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    from headrace.metrics.quantities import nbytes_of

    if value is not None:
        try:
            nbytes_of(value)
        except ValueError as error:
            raise click.BadParameter(str(error), context, option) from error
    return value


@contextmanager
def prints_aside(as_json: bool) -> Iterator[None]:
    """Send to stderr what users' code prints, in worker processes too, so that stdout holds JSON alone."""
    if not as_json:
        yield
        return
    sys.stdout.flush()
    with redirect_stdout(sys.stderr):
        kept = os.dup(1)
        os.dup2(2, 1)
        try:
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)


def run_jobs(jobs: Sequence[Job], *, quiet: bool, as_json: bool, **options: Any) -> int:
    """Run jobs to their end and report; return the exit code."""
    from headrace.cli.remembered import remember
    from headrace.dataset.job import run

    given = {name: value for name, value in options.items() if value is not None}
    with prints_aside(as_json):
        report = run(*jobs, progress="none" if quiet else "auto", **given).report()
    settings = click.get_current_context().find_object(Settings)
    if settings is not None and settings.arguments:
        remember(settings.arguments, jobs)
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
    elif not quiet:
        click.echo(str(report))
    return exit_code(report)


def exit_code(report: Report) -> int:
    """Tell a clean run from one with failed rows, be they dead letters or nulls, of this run or an earlier one."""
    return FAILED_ROWS if report.failed or report.dead_letters or report.with_error else GOOD


def show_plan(jobs: Sequence[Job], *, num_cpus: int | None = None, as_json: bool = False) -> int:
    """Print what jobs would run as one plan."""
    from headrace.dataset.job import explain_jobs

    with prints_aside(as_json):
        plan = explain_jobs(*jobs, format="json" if as_json else "text", num_cpus=num_cpus)
    click.echo(plan)
    return GOOD
