from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.latency import Latencies


def test_no_calls() -> None:
    assert Latencies().quantile(0.5) == 0.0


@given(st.lists(st.floats(1e-6, 1e4), min_size=1), st.sampled_from([0.01, 0.5, 0.99, 1.0]))
def test_quantiles_are_within_a_tenth(seconds: list[float], share: float) -> None:
    latencies = Latencies()
    for one in seconds:
        latencies.add(one)
    exact = sorted(seconds)[max(1, -(-int(share * 100) * len(seconds) // 100)) - 1]
    assert latencies.quantile(share) == pytest.approx(exact, rel=0.1)
