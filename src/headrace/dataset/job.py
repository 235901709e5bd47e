"""Jobs: datasets with an output, ready to run."""

from __future__ import annotations

from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

from headrace.errors import PlanError
from headrace.plan.explain import explain_json, explain_text
from headrace.plan.graph import Plan
from headrace.plan.numbers import whole_number

if TYPE_CHECKING:
    from headrace.engine.commit.compaction import Compacted
    from headrace.engine.commit.dead_letters import LettersFormat
    from headrace.engine.inputs import OnChange
    from headrace.plan.nodes import Write
    from headrace.plan.steps import OnError
    from headrace.runners.result import RunResult


class Job:
    """What `write_*` returns: nothing has run yet.

    >>> import headrace as hr, tempfile
    >>> out = tempfile.mkdtemp()
    >>> result = hr.from_items([{"id": 1}, {"id": 2}]).write_json(out + "/numbers").run()
    >>> result.rows_written
    2
    """

    def __init__(self, node: Write) -> None:
        self.node = node

    def run(
        self,
        runner: str = "local",
        *,
        on_error: OnError = "fail",
        dead_letters: str | None = None,
        dead_letters_format: LettersFormat = "json",
        max_failed_rows: int | None = None,
        max_failed_ratio: float | None = None,
        on_change: OnChange = "fail",
        num_cpus: int | None = None,
        memory_limit: int | str | None = None,
        disk_limit: int | str | None = None,
        stall_warning_secs: float | None = 300.0,
        max_outage_secs: float = 60.0,
        progress: str | bool = False,
    ) -> RunResult:
        """Run the job to its end; see `headrace.run`."""
        return run(
            self,
            runner=runner,
            on_error=on_error,
            dead_letters=dead_letters,
            dead_letters_format=dead_letters_format,
            max_failed_rows=max_failed_rows,
            max_failed_ratio=max_failed_ratio,
            on_change=on_change,
            num_cpus=num_cpus,
            memory_limit=memory_limit,
            disk_limit=disk_limit,
            stall_warning_secs=stall_warning_secs,
            max_outage_secs=max_outage_secs,
            progress=progress,
        )

    def retry(
        self,
        *,
        on_error: OnError = "dead_letter",
        max_failed_rows: int | None = None,
        max_failed_ratio: float | None = None,
        num_cpus: int | None = None,
        progress: str | bool = False,
    ) -> RunResult:
        """Run the failed rows of a finished job again, and nothing else; their answers come as further parts.

        Functions and models may be others than they were: that is what a retry is for. The input has to be as it was.
        Dead letters whose rows succeed are removed; rows that fail again stay, with one more attempt. A retry that was
        stopped goes on where it was.

        >>> import headrace as hr, tempfile
        >>> out = tempfile.mkdtemp() + "/ages"
        >>> people = hr.from_items([{"name": "ada", "born": "1815"}, {"name": "bob", "born": "c. 1900"}])
        >>> first = people.map(lambda row: row | {"born": int(row["born"])}).write_json(out).run(on_error="dead_letter")
        >>> mended = people.map(lambda row: row | {"born": int(row["born"].strip("c. "))}).write_json(out)
        >>> mended.retry().rows_written
        1
        """
        return run(
            self,
            on_error=on_error,
            max_failed_rows=max_failed_rows,
            max_failed_ratio=max_failed_ratio,
            retry_failed=True,
            num_cpus=num_cpus,
            progress=progress,
        )

    def abandon_retry(self) -> int:
        """Give up a retry that was stopped halfway; return how many rows are failed as they were before it.

        What it has answered stays. Where that is nothing, the job is again the one that it was before the retry.

        >>> import headrace as hr, tempfile
        >>> job = hr.range(3).write_json(tempfile.mkdtemp() + "/numbers")
        >>> result = job.run()
        >>> job.abandon_retry()
        Traceback (most recent call last):
            ...
        headrace.errors.ResumeError: ...: there is no retry to give up; none has begun, or it is finished
        """
        from headrace.engine.commit.abandoning import abandon_retry

        return abandon_retry(self.node.sink)

    def compact(self, *, target_part_bytes: int | None = None, rows_per_part: int | None = None) -> Compacted:
        """Put the parts of a finished output together anew: larger, and in the order of the input.

        By default parts have about 128 MB. Rows that came by a retry take their place among the others. A compaction
        that was killed is made up for by the next command that writes there; until then the folder may hold both old
        and new parts. Do not read the folder while it runs.

        >>> import headrace as hr, pathlib, tempfile
        >>> job = hr.range(6).write_json(tempfile.mkdtemp() + "/numbers", rows_per_part=2)
        >>> result = job.run()
        >>> done = job.compact()
        >>> done.parts_before, done.parts, done.rows
        (3, 1, 6)
        """
        from headrace.engine.commit.compaction import compact

        return compact(
            self.node.sink,
            target_part_bytes=whole_number("target_part_bytes", target_part_bytes, of="bytes", optional=True),
            rows_per_part=whole_number("rows_per_part", rows_per_part, optional=True),
        )

    def explain(self, format: str = "text", *, num_cpus: int | None = None) -> str:
        """Describe what would run, as "text" or "json": steps, the schema after each, stages. Reads samples only."""
        return explain_jobs(self, format=format, num_cpus=num_cpus)

    def __repr__(self) -> str:
        return f"<Job {self.node.sink.name}; call .run() to run it>"


def run(
    *jobs: Job,
    runner: str = "local",
    on_error: OnError = "fail",
    dead_letters: str | None = None,
    dead_letters_format: LettersFormat = "json",
    max_failed_rows: int | None = None,
    max_failed_ratio: float | None = None,
    retry_failed: bool = False,
    on_change: OnChange = "fail",
    num_cpus: int | None = None,
    memory_limit: int | str | None = None,
    disk_limit: int | str | None = None,
    stall_warning_secs: float | None = 300.0,
    max_outage_secs: float = 60.0,
    progress: str | bool = False,
) -> RunResult:
    """Run one or more jobs as one plan: what they share is read and computed once.

    Args:
        jobs: what `write_*` returned.
        runner: "local".
        on_error: "fail" ends the run at the first failed row; "dead_letter" sets failed rows aside; "null" keeps them
            with null answers. Steps may say otherwise for themselves.
        dead_letters: folder for failed rows; by default `_dead_letters` in each output folder.
        dead_letters_format: "json" (JSON Lines) or "parquet".
        max_failed_rows: the run ends once more rows of an output than that have failed, in earlier runs of the job too.
            What is finished stays, and a run with a higher limit goes on there.
        max_failed_ratio: the same as a share of the rows written, failed and filtered (0.01 is one in a hundred); it
            counts from the 1,000th row on, and at the end.
        retry_failed: run the failed rows of finished jobs again and nothing else; see `Job.retry`.
        on_change: what happens where input files were changed or removed since an output was begun: "fail" names them
            and runs nothing; "restart" starts that output afresh; "continue_new_input" keeps what is finished as it
            is, and runs the new content as new input. Files that were only added are run anyhow, behind the others.
        num_cpus: cores to use; by default those that the process may use.
        memory_limit: bytes, or text such as "1GB", for this process and its workers; by default 60 % of what the
            machine or its container has. Models and your own functions count, but cannot be held to it.
        disk_limit: the same for finished rows that wait on the disk for earlier ones; by default what there is, down
            to a reserve. Half of it used up, only what others wait for is read; all of it, the run ends. The rows of
            side inputs have as much for themselves.
        stall_warning_secs: a replica of a stage that makes no progress for so long is named in a warning, in the
            progress shown and in the report, with what it does; None: never. The run goes on.
        max_outage_secs: how long a store (S3, …) that is busy or out of reach is asked again, in reading and in
            writing, before the run ends; counted from the last answer. 0: not once more.
        progress: True or "auto" shows progress (live on a terminal, plain lines elsewhere), also "rich" and "plain".

    Raises:
        PlanError: something is wrong with the plan; nothing has been read or written.
        RunError: the run failed; what was committed stays.
        TooManyFailuresError: more rows failed than was allowed, or all of a step's first 100 did.
        RunInterrupted: Ctrl-C or SIGTERM; run again to go on.
    """
    from headrace.engine.options import ExecutionOptions
    from headrace.runners import local

    if runner != "local":
        raise PlanError(f"runner {runner!r} is not known; the runner that exists is 'local'")
    if on_error not in ("fail", "dead_letter", "null"):
        raise PlanError(f"on_error is {on_error!r}; use 'fail', 'dead_letter' or 'null'")
    if on_change not in ("fail", "restart", "continue_new_input"):
        raise PlanError(f"on_change is {on_change!r}; use 'fail', 'restart' or 'continue_new_input'")
    _check_limits(dead_letters_format, max_failed_rows, max_failed_ratio)
    options = ExecutionOptions.of(
        on_error=on_error,
        dead_letters=dead_letters,
        dead_letters_format=dead_letters_format,
        max_failed_rows=max_failed_rows,
        max_failed_ratio=max_failed_ratio,
        retry_failed=retry_failed,
        on_change=on_change,
        num_cpus=num_cpus,
        memory_limit=memory_limit,
        disk_limit=disk_limit,
        stall_warning_secs=stall_warning_secs,
        max_outage_secs=max_outage_secs,
    )
    return local.run(_plan(jobs), options, progress=progress)


def explain_jobs(*jobs: Job, format: str = "text", num_cpus: int | None = None) -> str:
    """Describe what several jobs would run as one plan."""
    return explained(_plan(jobs), format=format, num_cpus=num_cpus)


def explained(plan: Plan, *, format: str, num_cpus: int | None) -> str:
    """Describe what would run of a plan.

    Raises:
        PlanError: there is no such format, or something is wrong with the plan.
    """
    from headrace.engine.options import ExecutionOptions
    from headrace.engine.placing import places_told
    from headrace.plan.rules import optimised

    if format not in ("text", "json"):
        raise PlanError(f"format is {format!r}; use 'text' or 'json'")
    describe = explain_json if format == "json" else explain_text
    options = ExecutionOptions.of(num_cpus=num_cpus)
    place = partial(places_told, memory_limit_bytes=options.memory_limit_bytes)
    return describe(optimised(plan, on_error="fail"), cores=options.cores, place=place)


def _check_limits(dead_letters_format: str, rows: Any, ratio: Any) -> None:
    if dead_letters_format not in ("json", "parquet"):
        raise PlanError(f"dead_letters_format is {dead_letters_format!r}; use 'json' or 'parquet'")
    whole_number("max_failed_rows", rows, least=0, optional=True)
    if ratio is not None and (isinstance(ratio, bool) or not isinstance(ratio, Real) or not 0 <= float(ratio) <= 1):
        raise PlanError(f"max_failed_ratio is {ratio!r}; it is a share between 0 and 1, such as 0.01")


def _plan(jobs: tuple[Any, ...]) -> Plan:
    for job in jobs:
        if not isinstance(job, Job):
            raise PlanError(
                f"hr.run takes jobs, not {type(job).__name__}; a job is what ds.write_parquet('out/') returns"
            )
    return Plan([job.node for job in jobs])
