"""`headrace retry`: the failed rows of an output once more."""

from __future__ import annotations

import json

import click

from headrace.cli.outcome import Settings, checking, debuggable
from headrace.cli.running import reporting
from headrace.metrics.quantities import count

EPILOG = """\b
Mend what made the rows fail first: the model, the functions, the options in the pipeline file. The input has to be as
it was. Rows that succeed are added to OUT as further parts, and their dead letters are removed; `headrace compact`
brings all into the order of the input. Where the command itself has to change, give it with --retry-failed.

\b
Examples:
  headrace retry out/
  headrace run pipeline.yaml --set 'steps[0].infer.handler=sklearn:new.pkl' --retry-failed
"""


@click.command(epilog=EPILOG)
@click.argument("folder", metavar="OUT")
@click.option("--abandon", is_flag=True, help="Give up a retry that was stopped halfway; what it has answered stays.")
@reporting
@debuggable
@click.pass_context
def retry(context: click.Context, folder: str, abandon: bool, quiet: bool, as_json: bool) -> int:
    """Run the failed rows of OUT again, by the command that made it."""
    if abandon:
        return _abandon(folder, quiet=quiet, as_json=as_json)
    from headrace.cli.remembered import recall

    with checking():
        arguments = recall(folder)
    flags = [name for name, given in (("--quiet", quiet), ("--json", as_json)) if given]
    settings = context.ensure_object(Settings)
    settings.arguments = tuple(arguments)
    assert isinstance(context.find_root().command, click.Group)
    code = context.find_root().command.main(
        [*arguments, "--retry-failed", *flags], prog_name="headrace", obj=settings, standalone_mode=False
    )
    return int(code or 0)


def _abandon(folder: str, *, quiet: bool, as_json: bool) -> int:
    from headrace.cli.compact import sink_of
    from headrace.engine.commit.abandoning import abandon_retry

    with checking():
        sink = sink_of(folder, verb="give up")
    left = abandon_retry(sink)
    if as_json:
        click.echo(json.dumps({"failed": left}))
    elif not quiet:
        click.echo(f"{folder}: the retry is given up; {count(left, 'row is', 'rows are')} failed as before it")
    return 0
