"""Failed rows: a dead letter, or the end of the run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.errors import RowError, RunError, StageError
from headrace.plan.lanes import came_by
from headrace.records.columns import to_rows
from headrace.records.failure import RowFailure, row_as_json, text_of, told
from headrace.records.private import public, public_row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.plan.lanes import Lane
    from headrace.plan.steps import OnError
    from headrace.records.block import Block


def fail_row(
    stage: str,
    block: Block,
    row: int,
    error: BaseException,
    values: Mapping[str, Any],
    *,
    on_error: OnError,
    model_id: str | None = None,
    attempt: int = 1,
) -> RowFailure:
    """Return the dead letter of one row, or raise under on_error="fail".

    Raises:
        StageError: on_error is "fail".
    """
    if on_error == "fail":
        raise stage_error(stage, error, f"failed on {where(block, row)}") from error
    ordinal = block.ordinal_of(row)
    file, position = block.origin.place_of(ordinal) if block.origin else (None, None)
    return RowFailure.of(
        error,
        stage=stage,
        ordinal=ordinal,
        row=public_row(values),
        attempt=attempt,
        file=file,
        position=position,
        model_id=model_id,
        siblings=not block.is_alone(row),
    )


def placed(failure: RowFailure, block: Block, row: int) -> RowFailure:
    """Return a failure with what only the block knows: the row as it entered the stage, and where it comes from."""
    ordinal = block.ordinal_of(row)
    file, position = block.origin.place_of(ordinal) if block.origin else (None, None)
    return replace(
        failure,
        ordinal=ordinal,
        row=row_as_json(to_rows(public(block.batch.slice(row, 1)))[0]),
        file=file,
        position=position,
        siblings=not block.is_alone(row),
    )


def refused(block: Block, row: int, why: str, *, stage: str) -> RowFailure:
    """Return the dead letter of a row that a sink cannot take."""
    failure = RowFailure(stage=stage, ordinal=block.ordinal_of(row), row="", error_type="SinkError", message=why)
    return placed(failure, block, row)


def failures_by(lanes: Mapping[str, Lane], block: Block) -> tuple[RowFailure, ...]:
    """Return the block's failures of the steps named, without those that have come by another way as well."""
    lane = block.unit.lane
    return tuple(f for f in block.failures if f.stage in lanes and came_by(lane, lanes[f.stage]))


def where(block: Block, row: int) -> str:
    """Say where a row comes from, for messages.

    Rows are counted from 0, in the file or in the input.
    """
    ordinal = block.ordinal_of(row)
    if block.origin is None:
        return f"row {ordinal} of the input"
    file, position = block.origin.place_of(ordinal)
    return f"row {position} of {file}"


def stage_error(stage: str, error: BaseException, what: str) -> StageError:
    """Make the error that ends a run, with the cause in one line and what to do next."""
    cause = text_of(error) if isinstance(error, RowError) else told(error)
    message = f"step {stage!r} {what} ({cause})"
    if what.startswith("failed on"):
        message += "; pass on_error='dead_letter' to set such rows aside and go on"
    return StageError(message)


def leaving(stage: str, error: BaseException) -> RunError:
    """Make the error for code that raised SystemExit, KeyboardInterrupt or the like, which are no failures of rows."""
    refused = RunError(
        f"stage {stage!r}: its code wants to end the program ({told(error)}); let it raise something else, like"
        " ValueError"
    )
    refused.__cause__ = error
    return refused
