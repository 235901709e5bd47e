"""Loading: the collector rests meanwhile, and is as it was afterwards."""

import gc

import pytest

from headrace.model.loading import without_gc


def test_the_collector_runs_again_also_after_an_error() -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError, match="no model"), without_gc():
        assert not gc.isenabled()
        raise ValueError("no model")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with without_gc():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
