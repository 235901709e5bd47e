"""`headrace compact`: the parts of an output put together anew."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING

import click

from headrace.cli.outcome import checking, debuggable
from headrace.metrics.quantities import amount, count

if TYPE_CHECKING:
    from headrace.sinks.sink import Sink

EPILOG = """\b
Rows that `headrace retry` added take their place among the others. A compaction that was killed is made up for by the
next command that writes to OUT; do not read OUT while it runs.

\b
Examples:
  headrace compact out/
  headrace compact out/ --rows-per-part 1000000
"""


@click.command(epilog=EPILOG, short_help="Merge the parts of OUT, in the order of the input.")
@click.argument("folder", metavar="OUT")
@click.option("--target-part-bytes", type=click.IntRange(min=1), metavar="BYTES",
              help="Size of a part's file (about 128 MB, if not given).")  # fmt: skip
@click.option("--rows-per-part", type=click.IntRange(min=1), metavar="ROWS", help="Rows a part, exactly.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@debuggable
def compact(folder: str, target_part_bytes: int | None, rows_per_part: int | None, as_json: bool) -> None:
    """Put the parts of OUT together anew: larger, and in the order of the input."""
    from headrace.engine.commit.compaction import compact as run

    with checking():
        sink = sink_of(folder, verb="compact")
    done = run(sink, target_part_bytes=target_part_bytes, rows_per_part=rows_per_part)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(done), indent=2))
    else:
        click.echo(
            f"{folder}: {count(done.rows, 'row')} in {count(done.parts, 'part')} (there were {done.parts_before:,}), "
            f"{amount(done.nbytes)}"
        )


def sink_of(folder: str, *, verb: str) -> Sink:
    """Return the sink that writes an output as its job did."""
    from headrace.engine.commit.status import read_status
    from headrace.errors import ResumeError
    from headrace.sinks.csv import CsvSink
    from headrace.sinks.json import JsonSink
    from headrace.sinks.parquet import ParquetSink

    kind = read_status(folder).identity.components.get("output format")
    if kind is None:
        raise ResumeError(f"{folder}: there is nothing to {verb}, since no job has written here")
    if kind == "ParquetSink":
        return ParquetSink(folder, compression=_codec_of(folder))
    sinks: dict[str, type[CsvSink] | type[JsonSink]] = {"CsvSink": CsvSink, "JsonSink": JsonSink}
    if kind not in sinks:
        raise ResumeError(f"{folder} was written by {kind}, whose parts only that can put together: use job.compact()")
    return sinks[kind](folder, compression=_packed_by(folder))


def _packed_by(folder: str) -> str | None:
    """Return the compression that the names of the parts tell."""
    from headrace.sinks.text_part import SUFFIXES

    suffixes = {os.path.splitext(name)[1] for name in _parts(folder)}
    return next((name for name, suffix in SUFFIXES.items() if suffix in suffixes), None)


def _codec_of(folder: str) -> str:
    """Return how the first part of a folder of Parquet files is compressed."""
    import fsspec
    import pyarrow.parquet as pq

    for name in _parts(folder):
        with fsspec.open(f"{folder.rstrip('/')}/{name}", "rb") as part:
            metadata = pq.read_metadata(part)
        if metadata.num_row_groups and metadata.num_columns:
            return str(metadata.row_group(0).column(0).compression).replace("UNCOMPRESSED", "NONE").lower()
    return "snappy"


def _parts(folder: str) -> list[str]:
    from headrace.sinks.folder import local_path
    from headrace.sinks.store import Store

    root = local_path(folder)
    names = Store(folder).names() if root is None else os.listdir(root)
    return sorted(name for name in names if name.startswith("part-"))
