"""The report of a run: what was read and written, where every row went, and what the time went into."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headrace.metrics.balance import Balance, balance_of
from headrace.metrics.bottleneck import bottleneck_of, share_of_run
from headrace.metrics.quantities import amount, count, duration, percent

if TYPE_CHECKING:
    from headrace.metrics.statistics import (
        Agreement,
        ManagerStatistics,
        ModelChange,
        ModelStatistics,
        RecallStatistics,
        RunStatistics,
        SideInputStatistics,
        SinkStatistics,
        SourceStatistics,
        StageStatistics,
        Stall,
        StepStatistics,
        UpdateStatistics,
    )

MAX_NAME_CHARS = 60
MAX_CHANGES = 20
"""How many changes of a model a report tells; the statistics have more."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did, for people (`str`) and for programs (`to_dict`).

    >>> from headrace.metrics.statistics import RunStatistics, SinkStatistics, SourceStatistics
    >>> print(Report(RunStatistics(
    ...     elapsed_secs=2.0, done=True,
    ...     sources=(SourceStatistics(name="read_csv(in.csv)", rows=40, splits=1, splits_read=1),),
    ...     sinks=(SinkStatistics(name="write_csv(out)", folder="out", rows=40, parts=1, nbytes=2_000),),
    ... )))
    read_csv(in.csv)  40 rows  1 of 1 splits
    write_csv(out)    40 rows  1 part  2.0 kB
    <BLANKLINE>
    read 40 = written 40 + failed 0 + filtered 0
    finished in 2.0 s, 20 rows/s, peak memory 0 B
    No stage worked long enough to be measured.
    """

    statistics: RunStatistics

    @property
    def bottleneck(self) -> str:
        """What the time went into, in a sentence or two."""
        return bottleneck_of(self.statistics)

    @property
    def failed(self) -> int:
        """Rows that failed in this run."""
        return self.balance().failed

    @property
    def with_error(self) -> int:
        """Rows written with nulls in place of a failed answer, in earlier runs of the job too."""
        steps = [step for stage in self.statistics.stages for step in stage.steps]
        written = sum(sink.with_error for sink in self.statistics.sinks)
        return max(written, sum(step.with_error for step in steps))

    @property
    def dead_letters(self) -> int:
        """Rows in the dead letters, from earlier runs of the job too."""
        return sum(sink.dead_letters for sink in self.statistics.sinks)

    @property
    def rows_per_sec(self) -> float:
        """Rows read a second of the whole run."""
        return self.balance().read / self.statistics.elapsed_secs if self.statistics.elapsed_secs > 0 else 0.0

    def balance(self) -> Balance:
        """Return where every row went."""
        return balance_of(self.statistics)

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics and what follows from them, ready for JSON."""
        balance = self.balance()
        return {
            "balance": {**asdict(balance), "holds": balance.holds},
            "bottleneck": self.bottleneck,
            "rows_per_sec": round(self.rows_per_sec, 3),
            "with_error": self.with_error,
            "dead_letters": self.dead_letters,
            "statistics": _as_json(asdict(self.statistics)),
        }

    def __repr__(self) -> str:
        return str(self)  # notebooks and prompts show the last value

    def __str__(self) -> str:
        run = self.statistics
        table = [_source_row(source) for source in run.sources]
        for stage in run.stages:
            table.append(_stage_row(stage, run.elapsed_secs))
            table += [_step_row(step) for step in stage.steps if step.name != stage.name or _notable(step)]
        table += [_sink_row(sink) for sink in run.sinks]
        notes = [side_input_text(side) for side in run.side_inputs]
        notes += [note for sink in run.sinks for note in _sink_notes(sink)]
        notes += [agreement_text(pair) for stage in run.stages for step in stage.steps for pair in step.agreement]
        notes += [note for stage in run.stages for note in _change_notes(stage)]
        notes += [stall_text(stall) for stall in run.stalls]
        state = "finished in" if run.done else "running for"
        total = f"{state} {duration(run.elapsed_secs)}, {self.rows_per_sec:,.0f} rows/s, "
        total += f"peak memory {amount(run.peak_memory_bytes)}"
        if run.memory_pressure_secs:
            total += (
                f" of {amount(run.memory_limit_bytes)}; reading was held back for {duration(run.memory_pressure_secs)}"
            )
            total += " because memory was short"
        return "\n".join([*_aligned(table), *notes, "", str(self.balance()), total, self.bottleneck])


def _source_row(source: SourceStatistics) -> list[str]:
    row = [source.name, count(source.rows, "row"), f"{source.splits_read:,} of {source.splits:,} splits"]
    if source.splits_found_finished:
        row.append(f"{source.splits_found_finished:,} found finished")
    if source.failed:
        row.append(f"{source.failed:,} unreadable")
    if source.retried:
        row.append(count(source.retried, "retry", "retries"))
    if source.passed_over:
        row.append(f"{count(source.passed_over, 'file')} passed over")
    if source.bytes_total:
        row.append(amount(source.bytes_read))
    return row


def _stage_row(stage: StageStatistics, elapsed_secs: float) -> list[str]:
    named = {"busy": stage.busy, "starved": stage.starved, "blocked": stage.blocked}
    shares = ", ".join(f"{name} {percent(share_of_run(stage, share, elapsed_secs))}" for name, share in named.items())
    row = [stage.name, f"{stage.replicas} × {stage.kind}", shares]
    if stage.model is not None:
        row.append(_model_cell(stage.model))
    if stage.manager is not None:
        row.append(_manager_cell(stage.manager))
    if stage.updates is not None:
        row.append(_updates_cell(stage.updates))
    if stage.restarts:
        memory = (
            f", {stage.out_of_memory:,} for want of memory, so that fewer work at a time" if stage.out_of_memory else ""
        )
        row.append(f"{count(stage.restarts, 'worker')} started again{memory}")
    return row if stage.recall is None else [*row, *_recall_cells(stage.recall)]


def _model_cell(model: ModelStatistics) -> str:
    padding = f" ({percent(model.padding)} padding)" if model.padding else ""
    where = f" on {model.placed_on}" if model.placed_on else ""
    memory = f", {count(model.out_of_memory, 'call')} out of memory" if model.out_of_memory else ""
    return (
        f"{model.handler}{where}: loaded in {duration(model.load_secs)}, {count(model.batches, 'batch', 'batches')}"
        f" of {model.mean_batch_rows:.1f} rows{padding}, p50 {1000 * model.latency_p50_secs:.1f} ms,"
        f" p99 {1000 * model.latency_p99_secs:.1f} ms{memory}"
    )


def _manager_cell(manager: ManagerStatistics) -> str:
    cell = f"{count(manager.copies, 'model')} in memory"
    if manager.budget_bytes is not None:
        cell += f" ({amount(manager.peak_bytes)} of {amount(manager.budget_bytes)} at most)"
    return f"{cell}, {count(manager.loads, 'load')}, {count(manager.swaps, 'swap')}, {count(manager.waits, 'wait')}"


def _updates_cell(updates: UpdateStatistics) -> str:
    rejected = f", {count(updates.rejected, 'version')} rejected" if updates.rejected else ""
    return f"now {updates.model_id}, {count(updates.switches, 'switch', 'switches')}{rejected}"


def _change_notes(stage: StageStatistics) -> list[str]:
    """Tell the last changes of a stage's model."""
    if stage.updates is None:
        return []
    changes = stage.updates.changes[-MAX_CHANGES:]
    earlier = stage.updates.switches + stage.updates.rejected + 1 - len(changes)
    notes = [f"{stage.name}: {count(earlier, 'earlier version')}"] if earlier > 0 and changes else []
    return [*notes, *(f"{stage.name}: {change_text(change)}" for change in changes)]


def change_text(change: ModelChange) -> str:
    """Write a change of a model for people.

    >>> from headrace.metrics.statistics import ModelChange
    >>> change_text(ModelChange(model_id="v2.pkl@0f5a3c81", rows_before=1200, at_secs=3, load_secs=0.5))
    'v2.pkl@0f5a3c81 answers from row 1,200 on (after 3.0 s; loaded in 0.5 s)'
    >>> change_text(ModelChange(model_id="v3.pkl", rows_before=1500, at_secs=4, rejected="it is a text file"))
    'v3.pkl is rejected at row 1,500 (after 4.0 s): it is a text file'
    """
    if change.rejected is not None:
        when = f"at row {change.rows_before:,} (after {duration(change.at_secs)})"
        return f"{change.model_id} is rejected {when}: {change.rejected}"
    drained = ", once the one before had left for want of memory" if change.drained else ""
    how = f"after {duration(change.at_secs)}; loaded in {duration(change.load_secs)}{drained}"
    return f"{change.model_id} answers from row {change.rows_before:,} on ({how})"


def _recall_cells(recall: RecallStatistics) -> list[str]:
    cells = []
    if recall.recovered:
        cells.append(f"{count(recall.recovered, 'answer')} of an earlier run")
    if recall.hits or recall.misses:
        held = f" ({amount(recall.cache_bytes)})" if recall.cache_bytes else ""
        cells.append(f"cache{held}: {recall.hits:,} hits, {count(recall.misses, 'miss', 'misses')}")
    return cells


def _notable(step: StepStatistics) -> bool:
    return bool(step.filtered or step.failed or step.with_error or step.retried or step.fans_out)


def _step_row(step: StepStatistics) -> list[str]:
    row = [f"  {step.name}", f"{step.rows_in:,} → {count(step.rows_out, 'row')}"]
    for number, what in ((step.filtered, "filtered"), (step.failed, "failed"), (step.with_error, "nulled")):
        if number:
            row.append(f"{number:,} {what}")
    if step.retried:
        row.append(count(step.retried, "retry", "retries"))
    return row


def _sink_row(sink: SinkStatistics) -> list[str]:
    row = [sink.name, count(sink.rows, "row"), count(sink.parts, "part"), amount(sink.nbytes)]
    if sink.rows_before:
        row.append(f"{sink.rows_before:,} of the rows from earlier runs")
    if sink.with_error:
        row.append(f"{sink.with_error:,} with nulls for failed answers")
    return row


def _sink_notes(sink: SinkStatistics) -> list[str]:
    if not sink.dead_letters:
        return []
    where = f" in {sink.dead_letters_folder}" if sink.dead_letters_folder else ""
    earlier = f", {sink.dead_letters_before:,} of them from earlier runs" if sink.dead_letters_before else ""
    return [f"{count(sink.dead_letters, 'dead letter')}{where}{earlier}"]


def side_input_text(side: SideInputStatistics) -> str:
    """Write how a side input was made, and where it is, for people.

    >>> from headrace.metrics.statistics import SideInputStatistics
    >>> side_input_text(SideInputStatistics(name="index", rows=2, secs=1, mapped_bytes=3_000_000, process_bytes=700))
    'side input index: 2 rows, made in 1.0 s; 3.0 MB in memory once a machine, 700 B once a process'
    >>> side_input_text(SideInputStatistics(name="index", rows=2, failed=1, secs=1, rebuilt="a lock"))
    'side input index: 2 rows, 1 failed, made in 1.0 s; built once a process, since it cannot be sent (a lock)'
    """
    failed = f", {side.failed:,} failed" if side.failed else ""
    made = f"side input {side.name}: {count(side.rows, 'row')}{failed}, made in {duration(side.secs)}; "
    if side.rebuilt:
        return f"{made}built once a process, since it cannot be sent ({side.rebuilt})"
    places = [(side.mapped_bytes, "machine"), (side.process_bytes, "process")]
    kept = ", ".join(f"{amount(nbytes)} {{}}once a {place}" for nbytes, place in places if nbytes)
    return made + kept.replace("{}", "in memory ", 1).replace("{}", "")


def agreement_text(pair: Agreement) -> str:
    """Write on how many rows two models agree, for people.

    >>> from headrace.metrics.statistics import Agreement
    >>> agreement_text(Agreement(one="old", other="new", rows=2_000, equal=1_950))
    'old and new agree on 97.5 % of 2,000 rows'
    """
    return f"{pair.one} and {pair.other} agree on {100 * pair.share:.1f} % of {count(pair.rows, 'row')}"


def stall_text(stall: Stall) -> str:
    """Write a time without progress for people.

    >>> from headrace.metrics.statistics import Stall
    >>> stall_text(Stall(stage="map_1", replica=2, doing="is at work in a.py, line 3, f", began_secs=9, secs=300))
    'map_1: replica 2 has made no progress for 5 min 0 s; it is at work in a.py, line 3, f'
    """
    if stall.over:
        return f"{stall.stage}: replica {stall.replica} made no progress for {duration(stall.secs)}; then it moved on"
    return f"{stall.stage}: replica {stall.replica} has made no progress for {duration(stall.secs)}; it {stall.doing}"


def _aligned(table: list[list[str]]) -> list[str]:
    """Align the first two columns; what follows differs from row to row."""
    table = [[_shortened(row[0]), *row[1:]] for row in table]
    widths = [max((len(row[column]) for row in table), default=0) for column in (0, 1)]
    return [f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {'  '.join(row[2:])}".rstrip() for row in table]


def _shortened(name: str) -> str:
    """Leave out the middle of a long name: sources are named after their files, of which there may be many."""
    half = MAX_NAME_CHARS // 2
    return name if len(name) <= MAX_NAME_CHARS else f"{name[:half]}…{name[-half + 1 :]}"


def _as_json(value: Any) -> Any:
    """Keys of JSON objects are texts, and tuples are lists."""
    if isinstance(value, dict):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    return value
