"""`headrace infer`: a model over files, without a line of code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.flags import speaking_in_flags
from headrace.cli.outcome import checking, debuggable
from headrace.cli.running import changing, limited, prints_aside, reporting, run_jobs, show_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.dataset import Dataset, Job
    from headrace.model.updates import WatchFilePattern

EPILOG = """\b
MODEL is KIND:PATH; `headrace handlers` lists the kinds. With --key it is a PATH with {key} in it, or several:
NAME=KIND:PATH,NAME=KIND:PATH. INPUT is files, folders, patterns in quotes, or URLs; their format is told by their
names. A run that was stopped goes on where it was with the same command.

\b
Examples:
  headrace infer sklearn:model.pkl 'data/*.csv' --inputs age,spend --output-column churn -o out/
  headrace infer onnx:model.onnx photos/ -o out/ --format json --on-error dead_letter
  headrace infer python:mymodule:MyHandler reviews.jsonl --inputs text --keep id -o out/
  headrace infer onnx:two-inputs.onnx in.csv --read delimiter=';' --inputs a=age,b=spend -o out/
  headrace infer sklearn:model.pkl in.csv --option method=predict_proba --limit 1000 -o try/
  headrace infer 'onnx:models/{key}/model.onnx' orders.csv --key customer --memory-budget 2GB -o out/
  headrace infer old=onnx:old.onnx,new=onnx:new.onnx in.csv --mode all -o out/
"""

FORMATS = ("csv", "json", "parquet")
INPUT_FORMATS = ("csv", "json", "parquet", "text", "images", "binary_files")
ONE_OR_MORE = click.IntRange(min=1)


def _columns(context: click.Context, option: click.Parameter, value: str | None) -> list[str] | None:
    """Split at commas."""
    if value is None:
        return None
    names = [name.strip() for name in value.split(",")]
    if not all(names):
        raise click.BadParameter(f"{value!r} has an empty column name", context, option)
    return names


def _settings(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """Read NAME=VALUE, where the value is YAML (8, true, [a, b], text)."""
    if not values:
        return {}
    from headrace.spec.document import parse

    settings = {}
    for value in values:
        name, equals, text = value.partition("=")
        document = parse(text)
        if not equals or not name or document.problems:
            raise click.BadParameter(f"{value!r} is no NAME=VALUE with VALUE as YAML", context, option)
        settings[name] = document.data
    return settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What `headrace infer` was asked for: its arguments and options, by their names."""

    model: str
    inputs: tuple[str, ...]
    out: str
    columns: list[str] | None
    output_column: str
    keep: list[str] | None
    drop: list[str] | None
    format: str
    target_part_bytes: int | None
    rows_per_part: int | None
    compression: str | None
    input_format: str | None
    dtypes: dict[str, str]
    reading: dict[str, Any]
    batch_size: int | None
    min_batch_size: int | None
    max_batch_size: int | None
    max_batch_weight: float | None
    length_column: str | None
    weight_column: str | None
    concurrency: int | None
    isolation: str | None
    model_copies: int | None
    large_model: bool
    idle_timeout_secs: float | None
    num_gpus: float | None
    accelerator: str | None
    min_ram: str | None
    key: str | None
    mode: str | None
    labelled: bool
    memory_budget: str | None
    model_version: str | None
    attempts: int | None
    cache: str | None
    durability: str | None
    timeout_secs: float | None
    watch: str | None
    watch_interval_secs: float | None
    limit: int | None
    args: dict[str, Any]
    options: dict[str, Any]
    overwrite: bool


@click.command(epilog=EPILOG)
@click.argument("model", metavar="MODEL")
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option("-o", "--out", required=True, metavar="OUT", help="Folder or URL for the output.")
@click.option("--inputs", "columns", callback=_columns, metavar="A,B",
              help="Columns that the model gets; KEY=A,KEY=B for models that name their inputs.")  # fmt: skip
@click.option("--output-column", default="prediction", show_default=True, metavar="NAME",
              help="Column for the answers; KEY=NAME,KEY=NAME for models that answer several values.")  # fmt: skip
@click.option(
    "--keep", callback=_columns, metavar="A,B", help="Columns to keep beside the answers (all, if not given)."
)
@click.option("--drop", callback=_columns, metavar="A,B", help="Columns to leave out of the output.")
@click.option("--format", "format", type=click.Choice(FORMATS), default="parquet", show_default=True,
              help="Format of the output.")  # fmt: skip
@click.option("--target-part-bytes", type=ONE_OR_MORE, metavar="BYTES", help="Size of the output's files, about.")
@click.option("--rows-per-part", type=ONE_OR_MORE, metavar="ROWS", help="Rows a file of the output.")
@click.option("--compression", metavar="NAME",
              help="Compression of the output: gzip, zstd, bz2; for Parquet also snappy, lz4, none.")  # fmt: skip
@click.option("--input-format", type=click.Choice(INPUT_FORMATS), help="Format of the input, where names do not tell.")
@click.option("--dtype", "dtypes", callback=_settings, multiple=True, metavar="COLUMN=TYPE",
              help="Type of an input column, such as zip=string.")  # fmt: skip
@click.option("--read", "reading", callback=_settings, multiple=True, metavar="NAME=VALUE",
              help="Option of the reader, such as delimiter=';' or encoding=cp1252.")  # fmt: skip
@click.option("--batch-size", type=ONE_OR_MORE, metavar="ROWS", help="Rows a batch, always (else it is found out).")
@click.option(
    "--min-batch-size", type=ONE_OR_MORE, metavar="ROWS", help="Fewest rows a batch, where there are as many."
)
@click.option("--max-batch-size", type=ONE_OR_MORE, metavar="ROWS", help="Most rows a batch.")
@click.option("--max-batch-weight", type=click.FloatRange(min=0, min_open=True), metavar="WEIGHT",
              help="Most weight a batch: rows × the longest, or the sum of weights.")  # fmt: skip
@click.option("--length-column", metavar="COLUMN",
              help="Put rows together that are of like length in COLUMN, for models that pad.")  # fmt: skip
@click.option("--weight-column", metavar="COLUMN", help="Weigh rows by COLUMN.")
@click.option("--concurrency", type=ONE_OR_MORE, metavar="N", help="Batches in flight.")
@click.option("--isolation", type=click.Choice(["thread", "process"]), help="Where the model lives.")
@click.option("--model-copies", type=ONE_OR_MORE, metavar="N", help="Copies of the model for all batches in flight.")
@click.option("--large-model", is_flag=True,
              help="One copy of the model in a process of its own, whatever the concurrency.")  # fmt: skip
@click.option("--idle-timeout-secs", type=click.FloatRange(min=0, min_open=True), metavar="SECS",
              help="A model that has had no batch for so long leaves memory until it is needed.")  # fmt: skip
@click.option("--num-gpus", type=click.FloatRange(min=0), metavar="N",
              help="GPUs of each copy of the model; there is a copy for each GPU. 0.5: half of one.")  # fmt: skip
@click.option("--accelerator", metavar="KIND", help="Kind of GPU, such as nvidia-l4.")
@click.option("--min-ram", metavar="BYTES", help="Memory that each copy of the model needs, such as 8GB.")
@click.option("--key", metavar="COLUMN",
              help="Column (or module:function) that names each row's model: {key} in MODEL, or a NAME.")  # fmt: skip
@click.option("--mode", type=click.Choice(["route", "all"]),
              help="With all, every one of several models answers every row, to compare them.")  # fmt: skip
@click.option("--labelled", is_flag=True, help="With --mode all: answers as a list of NAME:LABEL texts.")
@click.option("--memory-budget", metavar="BYTES",
              help="What models in memory may take together, such as 2GB or auto; they take turns.")  # fmt: skip
@click.option("--model-version", metavar="TEXT",
              help="Stands for the content of models that cannot be looked at, as behind URLs with {key}.")  # fmt: skip
@click.option("--cache", metavar="FOLDER",
              help="Keep answers in FOLDER; equal inputs are computed once, in all runs together.")  # fmt: skip
@click.option("--durability", type=click.Choice(["range", "row"]),
              help="With row each answer is on the disk once it is made, for costly rows.")  # fmt: skip
@click.option("--attempts", type=ONE_OR_MORE, metavar="N",
              help="Calls of the model for rows that fail, with growing pauses between (1, if not given).")  # fmt: skip
@click.option("--timeout-secs", type=click.FloatRange(min=0, min_open=True), metavar="SECS",
              help="Time for one batch; a model that takes longer is started again, and rows fail for it.")  # fmt: skip
@click.option("--watch", metavar="PATTERN",
              help="Files or folders of which the newest is the model, while the run goes on too.")  # fmt: skip
@click.option("--watch-interval-secs", type=click.FloatRange(min=0, min_open=True), metavar="SECS",
              help="How often --watch looks (60, if not given).")  # fmt: skip
@click.option("--limit", type=click.IntRange(min=0), metavar="ROWS", help="Only the first rows, in source order.")
@click.option(
    "--num-cpus", type=ONE_OR_MORE, metavar="N", help="Cores to use (all that the process may, if not given)."
)
@click.option("--arg", "args", callback=_settings, multiple=True, metavar="NAME=VALUE", help="Inference argument.")
@click.option(
    "--option", "options", callback=_settings, multiple=True, metavar="NAME=VALUE", help="Option of the handler."
)
@click.option("--on-error", type=click.Choice(["fail", "dead_letter", "null"]),
              help="What happens when a row fails: stop, put it aside, or write nulls.")  # fmt: skip
@click.option("--dead-letters", metavar="FOLDER", help="Where failed rows go; stands for --on-error dead_letter.")
@click.option("--dead-letters-format", type=click.Choice(["json", "parquet"]), help="Format of the dead letters.")
@click.option("--max-failed-rows", type=click.IntRange(min=0), metavar="ROWS",
              help="Stop once more rows than that have failed.")  # fmt: skip
@click.option("--max-failed-ratio", type=click.FloatRange(0, 1), metavar="SHARE",
              help="The same as a share of all rows, such as 0.01.")  # fmt: skip
@click.option("--retry-failed", is_flag=True, help="Run the failed rows of OUT again, and nothing else.")
@click.option("--overwrite", is_flag=True, help="Start afresh: throw away what earlier runs wrote.")
@click.option("--explain", "explain_only", is_flag=True, help="Show the plan; run nothing.")
@changing
@limited
@reporting
@debuggable
def infer(
    *,
    on_error: str | None,
    dead_letters: str | None,
    dead_letters_format: str | None,
    max_failed_rows: int | None,
    max_failed_ratio: float | None,
    retry_failed: bool,
    on_change: str | None,
    num_cpus: int | None,
    memory_limit: str | None,
    disk_limit: str | None,
    max_outage_secs: float | None,
    explain_only: bool,
    quiet: bool,
    as_json: bool,
    **asked: Any,
) -> int:
    """Run MODEL over every row of INPUT... into OUT.

    Rows are written with all their columns and the model's answers.
    """
    if dead_letters is not None and on_error not in (None, "dead_letter"):
        raise click.UsageError(f"--dead-letters would stay empty with --on-error {on_error}")
    on_error = on_error or ("dead_letter" if dead_letters is not None or retry_failed else None)
    if on_error in (None, "fail"):
        _refuse_idle(
            dead_letters_format=dead_letters_format, max_failed_rows=max_failed_rows, max_failed_ratio=max_failed_ratio
        )
    with speaking_in_flags():
        with checking():
            request = Request(**asked)
            with prints_aside(as_json):  # of users' modules, which are imported here
                job = _write(_answered(_read(request), request), request)
            if explain_only:
                return show_plan([job], num_cpus=num_cpus, as_json=as_json)
        return run_jobs(
            [job],
            quiet=quiet,
            as_json=as_json,
            on_error=on_error,
            dead_letters=dead_letters,
            dead_letters_format=dead_letters_format,
            max_failed_rows=max_failed_rows,
            max_failed_ratio=max_failed_ratio,
            retry_failed=retry_failed or None,
            on_change=on_change,
            num_cpus=num_cpus,
            memory_limit=memory_limit,
            disk_limit=disk_limit,
            max_outage_secs=max_outage_secs,
        )


def _refuse_idle(**options: object) -> None:
    """Raise for an option that says something about failed rows, where the first one ends the run."""
    for name, value in options.items():
        if value is not None:
            flag = "--" + name.replace("_", "-")
            raise click.UsageError(
                f"{flag} does nothing where the first failed row ends the run; add --on-error dead_letter"
            )


def _read(request: Request) -> Dataset:
    from headrace.cli.reading import read_inputs

    dataset = read_inputs(
        request.inputs, input_format=request.input_format, dtypes=request.dtypes, options=request.reading
    )
    return dataset if request.limit is None else dataset.limit(request.limit)


def _answered(dataset: Dataset, request: Request) -> Dataset:
    from headrace.cli.models import make_model
    from headrace.model.cache import PredictionCache
    from headrace.model.checks import run_check
    from headrace.model.keyed import MemoryBudget
    from headrace.plan.retry import Retry

    handler = make_model(request.model, request.options, key=request.key, mode=request.mode, labelled=request.labelled)
    run_check(handler)
    output = _output(request.output_column)
    given: dict[str, Any] = {
        "inputs": _inputs(request.columns),
        "inference_args": request.args or None,
        "batch_size": request.batch_size,
        "min_batch_size": request.min_batch_size,
        "max_batch_size": request.max_batch_size,
        "max_batch_weight": request.max_batch_weight,
        "length_fn": request.length_column,
        "weight_fn": request.weight_column,
        "concurrency": request.concurrency,
        "isolation": request.isolation,
        "model_copies": request.model_copies,
        "large_model": request.large_model,
        "idle_timeout_secs": request.idle_timeout_secs,
        "num_gpus": request.num_gpus,
        "accelerator": request.accelerator,
        "min_ram": request.min_ram,
        "memory_budget": request.memory_budget
        if request.memory_budget in (None, "auto")
        else MemoryBudget(cpu=request.memory_budget),
        "version": request.model_version,
        "cache": None if request.cache is None else PredictionCache(request.cache),
        "durability": request.durability,
        "watch": _watch(request.watch, request.watch_interval_secs),
        "timeout_secs": request.timeout_secs,
        "retry": None if request.attempts is None else Retry(request.attempts),
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    answered = dataset.run_inference(handler, output=output, **chosen)
    if request.keep is not None:
        answers = [output] if isinstance(output, str) else list(output.values())
        named = [] if request.mode == "all" else ["model_id"]
        answered = answered.select(*request.keep, *answers, *named)
    return answered if request.drop is None else answered.drop(*request.drop)


def _watch(pattern: str | None, interval_secs: float | None) -> WatchFilePattern | None:
    from headrace.model.updates import WATCH_SECS, WatchFilePattern

    if pattern is None:
        if interval_secs is not None:
            raise click.UsageError("--watch-interval-secs does nothing without --watch PATTERN")
        return None
    return WatchFilePattern(pattern, WATCH_SECS if interval_secs is None else interval_secs)


def _inputs(columns: list[str] | None) -> str | list[str] | dict[str, str] | None:
    """One column goes to the model as it is, several as a matrix, KEY=COLUMN to the model's inputs of these names.

    >>> _inputs(["text"]), _inputs(["age", "spend"]), _inputs(["ids=tokens", "mask=mask"])
    ('text', ['age', 'spend'], {'ids': 'tokens', 'mask': 'mask'})
    """
    if columns is None:
        return None
    pairs = [column.partition("=") for column in columns]
    if all(equals for _, equals, _ in pairs):
        return {key.strip(): column.strip() for key, _, column in pairs}
    return columns[0] if len(columns) == 1 else columns


def _output(text: str) -> str | dict[str, str]:
    """Read a column's name, or names of columns by the keys of the answers.

    >>> _output("churn"), _output("label=kind,score=sure")
    ('churn', {'label': 'kind', 'score': 'sure'})
    """
    if "=" not in text:
        return text
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(key and name for key, _, name in pairs):
        raise click.UsageError(f"--output-column {text!r} is no KEY=NAME,KEY=NAME")
    return {key.strip(): name.strip() for key, _, name in pairs}


def _write(dataset: Dataset, request: Request) -> Job:
    write: Callable[..., Job] = getattr(dataset, f"write_{request.format}")
    asked = {
        "target_part_bytes": request.target_part_bytes,
        "rows_per_part": request.rows_per_part,
        "compression": request.compression,
    }
    options = {name: value for name, value in asked.items() if value is not None}
    return write(request.out, if_exists="overwrite" if request.overwrite else "resume", **options)
