import logging

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.processes.logs import LogCarrier, LogLevels, RateLimit

moments = st.lists(st.tuples(st.floats(0, 5), st.sampled_from("ab")), max_size=200).map(sorted)


@given(moments, st.integers(1, 5))
def test_every_record_is_shown_or_counted_and_no_second_shows_more_than_allowed(asked, per_sec):
    limit, shown, counted = RateLimit(per_sec), [], 0
    for now, key in asked:
        counted += sum(n for _, n in limit.overdue(now))
        if limit.admit(key, now):
            shown.append((now, key))
    counted += sum(n for _, n in limit.overdue(10.0, everything=True))
    assert len(shown) + counted == len(asked)
    for now, key in shown:
        # A window opens with its first record, so that any second touches two of them at most.
        assert sum(k == key and now <= t < now + 1 for t, k in shown) <= 2 * per_sec


def carried(per_sec=20):
    sent = []
    return LogCarrier(sent.append, per_sec=per_sec), sent


def record(message, *args):
    return logging.LogRecord("mine", logging.WARNING, "lang.py", 7, message, args, None)


def test_a_record_travels_as_plain_values():
    carrier, sent = carried()
    carrier.handle(record("row %d", 3))
    (plain,) = sent
    assert (plain["name"], plain["msg"], plain["lineno"]) == ("mine", "row 3", 7)
    assert all(isinstance(v, str | int | float | None) for v in plain.values())


def test_the_summary_repeats_the_last_record():
    carrier, sent = carried(per_sec=1)
    for i in range(4):
        carrier.handle(record("row %d", i))
    carrier.send_summaries(everything=True)
    assert [p["msg"] for p in sent] == ["row 0", "row 3 … and 3 more like it"]
    carrier.send_summaries(everything=True)
    assert len(sent) == 2


def test_a_bad_call_of_a_logger_does_not_stop_the_work(monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    carrier, sent = carried()
    carrier.handle(record("row %d", "three"))
    assert sent == []


def test_a_parent_that_is_gone_does_not_stop_the_work():
    def send(_plain):
        raise BrokenPipeError

    LogCarrier(send).handle(record("row"))


def test_levels_are_those_of_the_parent():
    logging.getLogger("mine.level").setLevel(logging.ERROR)
    try:
        levels = LogLevels.here()
        assert levels.by_logger["mine.level"] == logging.ERROR
        assert levels.by_logger[""] == logging.root.level
        logging.getLogger("mine.level").setLevel(logging.DEBUG)
        levels.apply()
        assert logging.getLogger("mine.level").level == logging.ERROR
    finally:
        logging.getLogger("mine.level").setLevel(logging.NOTSET)
