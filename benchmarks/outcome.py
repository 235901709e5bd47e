"""The result of a benchmark as one JSON object, and the exit code that it stands for."""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.rounds import spread

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.benchmark import Benchmark, Measurement, Settings

ALL_HOLD, BAR_MISSED = 0, 4


def outcome(
    benchmark: Benchmark, measurement: Measurement, *, settings: Settings, machine: Mapping[str, Any]
) -> dict[str, Any]:
    """Put bars beside figures.

    Raises:
        KeyError: a bar's figure was not measured, so that nobody takes silence for success.
    """
    figures = {
        bar.figure: {
            "value": round(measurement.figures[bar.figure], 4),
            "unit": bar.unit,
            "bar": f"{bar.relation} {bar.bound:g}",
            "holds": bar.holds(measurement.figures[bar.figure]),
        }
        for bar in benchmark.bars_for(settings)
    }
    return {
        "benchmark": benchmark.name,
        "quick": settings.quick,
        "full": settings.full,
        "versions": dict(measurement.versions),
        "machine": dict(machine),
        "runs": {name: _run(list(values)) for name, values in measurement.runs.items()},
        "figures": figures,
    }


def exit_code(result: Mapping[str, Any]) -> int:
    """Return 0 when all bars hold, 4 when one is missed.

    >>> exit_code({"figures": {"a": {"holds": True}, "b": {"holds": False}}})
    4
    """
    return ALL_HOLD if all(figure["holds"] for figure in result["figures"].values()) else BAR_MISSED


def save(result: Mapping[str, Any], folder: Path) -> Path:
    """Write the result to `NAME.json`; to `NAME-quick.json` so that a quick look never replaces a real figure."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = "-quick" if result["quick"] else "-full" if result.get("full") else ""
    path = folder / f"{result['benchmark']}{kind}.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    return path


def _run(values: list[float]) -> dict[str, Any]:
    return {
        "values": [round(v, 4) for v in values],
        "median": round(median(values), 4),
        "spread": round(spread(values), 3),
    }
