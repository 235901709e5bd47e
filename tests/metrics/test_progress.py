from __future__ import annotations

import io
import threading

import pytest

from headrace.metrics import progress
from headrace.metrics.progress import line_of, progress_of, show_progress, table_of
from headrace.metrics.statistics import (
    ModelStatistics,
    RunStatistics,
    SourceStatistics,
    StageStatistics,
    StepStatistics,
)

HALF_WAY = RunStatistics(
    elapsed_secs=10.0,
    peak_memory_bytes=5_000_000,
    sources=(SourceStatistics(name="read", rows=500, splits=4, splits_read=2, bytes_total=100, bytes_read=50),),
    stages=(
        StageStatistics(
            name="infer_1",
            busy=0.75,
            steps=(StepStatistics(name="infer_1", rows_in=500, rows_out=498, failed=2),),
            model=ModelStatistics(handler="Net", batches=10, rows=500),
        ),
    ),
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Watched:
    """A snapshot function that lets a test wait until it has been asked some times."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.asked = threading.Event()

    def __call__(self) -> RunStatistics:
        self.left -= 1
        if self.left <= 0:
            self.asked.set()
        return HALF_WAY


def progress_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "headrace-progress"]


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECS", 0.001)
    monkeypatch.setattr(progress, "FRAME_SECS", 0.001)


def test_line_tells_time_share_speed_stages_and_failures() -> None:
    expected = "10.0 s  50 %  500 rows  50 rows/s  10.0 s left  infer_1 busy 75 %, batches of 50  2 failed"
    assert line_of(HALF_WAY) == expected


def test_share_by_splits_where_bytes_are_unknown() -> None:
    statistics = RunStatistics(
        sources=(SourceStatistics(name="read", splits=4, splits_read=1, splits_found_finished=1),)
    )
    assert progress_of(statistics).share == 0.5


def test_size_unknown() -> None:
    now = progress_of(RunStatistics(elapsed_secs=1.0, sources=(SourceStatistics(name="stream", rows=5),)))
    assert (now.share, now.eta_secs, now.rows_per_sec) == (None, None, 5.0)
    assert "left" not in line_of(RunStatistics(elapsed_secs=1.0))


def test_what_was_found_finished_does_not_make_the_rest_look_fast() -> None:
    found = SourceStatistics(
        name="read", splits=10, splits_found_finished=8, splits_read=1, bytes_total=1_000, bytes_read=100
    )
    assert progress_of(RunStatistics(elapsed_secs=60.0, sources=(found,))).eta_secs == pytest.approx(60.0)


def test_rows_that_wait_in_queues_are_not_through() -> None:
    source = SourceStatistics(name="read", rows=1_000, splits=1, splits_read=1, bytes_total=9, bytes_read=9)
    slow = StageStatistics(name="infer", steps=(StepStatistics(name="infer", rows_in=250, rows_out=250),))
    now = progress_of(RunStatistics(elapsed_secs=10.0, sources=(source,), stages=(slow,)))
    assert (now.rows, now.rows_per_sec, now.share, now.eta_secs) == (250, 25.0, 0.25, 30.0)


def test_rows_that_a_model_has_taken_in_but_not_answered_are_not_through() -> None:
    source = SourceStatistics(name="read", rows=1_000, splits=1, splits_read=1, bytes_total=9, bytes_read=9)
    model = StageStatistics(name="infer", steps=(StepStatistics(name="infer", rows_in=1_000, rows_out=90, failed=10),))
    now = progress_of(RunStatistics(elapsed_secs=10.0, sources=(source,), stages=(model,)))
    assert (now.rows, now.share, now.eta_secs) == (100, 0.1, 90.0)


def test_filtered_rows_are_through() -> None:
    source = SourceStatistics(name="read", rows=100, splits=1, splits_read=1)
    steps = (
        StepStatistics(name="few", rows_in=100, rows_out=5, filtered=95),
        StepStatistics(name="infer", rows_in=5, rows_out=5),
    )
    now = progress_of(
        RunStatistics(elapsed_secs=1.0, sources=(source,), stages=(StageStatistics(name="s", steps=steps),))
    )
    assert now.rows == 100


def test_plain_lines_where_there_is_no_terminal() -> None:
    stream, snapshot = io.StringIO(), Watched(2)
    with show_progress(snapshot, stream=stream):
        assert snapshot.asked.wait(10)
    assert stream.getvalue().splitlines()[0] == line_of(HALF_WAY)
    assert "\x1b" not in stream.getvalue()


def test_a_live_table_on_a_terminal_and_the_cursor_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    stream, snapshot = Terminal(), Watched(3)
    with show_progress(snapshot, stream=stream):
        assert snapshot.asked.wait(10)
    text = stream.getvalue()
    assert "infer_1" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


@pytest.mark.parametrize("mode", ["rich", "plain"])
def test_an_exception_ends_the_thread_too(mode: progress.ProgressMode) -> None:
    stream, snapshot = Terminal(), Watched(2)
    with pytest.raises(KeyboardInterrupt), show_progress(snapshot, stream=stream, mode=mode):
        assert snapshot.asked.wait(10)
        raise KeyboardInterrupt
    assert progress_threads() == []


def test_none_starts_no_thread() -> None:
    stream = io.StringIO()
    with show_progress(lambda: HALF_WAY, stream=stream, mode="none"):
        assert progress_threads() == []
    assert stream.getvalue() == ""


def test_a_reader_that_went_away_does_not_hurt_the_run() -> None:
    stream = io.StringIO()
    stream.close()
    with show_progress(lambda: HALF_WAY, stream=stream, mode="plain"):
        for thread in progress_threads():
            thread.join(10)
        assert progress_threads() == []


def test_table_has_a_row_a_stage() -> None:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=120)
    console.print(table_of(HALF_WAY))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "infer_1" in text
    assert "2 failed" in text
    assert "5.0 MB" in text


def drawn(statistics: RunStatistics, *, columns: int) -> list[str]:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=columns)
    console.print(table_of(statistics, columns=columns))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


def test_the_only_reader_shows_the_rows_read() -> None:
    reading = RunStatistics(sources=HALF_WAY.sources, stages=(StageStatistics(name="read"), *HALF_WAY.stages))
    (line,) = [line for line in drawn(reading, columns=100) if "read " in line]
    assert " 500 " in line


def test_a_narrow_terminal_gets_fewer_columns_and_whole_words() -> None:
    lines = drawn(HALF_WAY, columns=45)
    assert [word for word in ("stage", "rows", "busy", "batch") if word not in "".join(lines)] == []
    assert "starved" not in "".join(lines)
    assert any(line.startswith("500 rows  50 rows/s  10.0 s left") for line in lines)


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream, snapshot = Terminal(), Watched(2)
    with show_progress(snapshot, stream=stream):
        assert snapshot.asked.wait(10)
    assert stream.getvalue().splitlines()[0] == line_of(HALF_WAY)
