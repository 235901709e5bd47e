"""model-host: tensors to a model in a process of its own and back."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from benchmarks.bars import Bar
from benchmarks.benchmark import FOLDER, Benchmark, Measurement, Settings, say
from benchmarks.environment import peer_versions, peers_python
from benchmarks.machine import versions
from benchmarks.process import output_of
from benchmarks.rounds import ratio

SIZES = {1 << 10: 2_000, 1 << 20: 200, 16 << 20: 50}
"""Calls by number of bytes."""
NAMES = {1 << 10: "1 KB", 1 << 20: "1 MB", 16 << 20: "16 MB"}
ROUNDS = 7

LARGE = "beam / headrace, 16 MB, through the model"
MIDDLE = "beam / headrace, 1 MB, through the model"
SMALL = "headrace / beam, 1 KB, the way there and back"


def measure(settings: Settings) -> Measurement:
    """Run the programs in turns, each in a process of its own."""
    sizes = json.dumps({nbytes: 20 if settings.quick else calls for nbytes, calls in SIZES.items()})
    python = peers_python()
    runs: dict[str, list[float]] = defaultdict(list)
    for number in range(1 if settings.quick else ROUNDS):
        said = _said(python, "programs/headrace_host.py", sizes)
        found = {"headrace, model": said["model"], "headrace, way": said["way"]}
        if settings.peers:
            found["beam"] = _said(python, "peers/beam_shared.py", sizes)
        for program, times in found.items():
            for nbytes, secs in times.items():
                runs[f"{program}, {NAMES[int(nbytes)]}, ms"].append(1e3 * secs)
        shown = ", ".join(f"{name} {values[-1]:.3f}" for name, values in runs.items())
        say(f"  round {number + 1}: {shown}")
    return Measurement(runs=runs, figures=_figures(runs) if settings.peers else {}, versions=_versions(settings))


def _said(python: str, script: str, sizes: str) -> Any:
    return json.loads(output_of([python, str(FOLDER / script), sizes]).splitlines()[-1])


def _figures(runs: dict[str, list[float]]) -> dict[str, float]:
    return {
        LARGE: ratio(runs["beam, 16 MB, ms"], runs["headrace, model, 16 MB, ms"]),
        MIDDLE: ratio(runs["beam, 1 MB, ms"], runs["headrace, model, 1 MB, ms"]),
        SMALL: ratio(runs["headrace, way, 1 KB, ms"], runs["beam, 1 KB, ms"]),
    }


def _versions(settings: Settings) -> dict[str, str]:
    others = ("apache-beam",) if settings.peers else ()
    return versions("headrace") | peer_versions(peers_python(), *others, "pyarrow", "numpy")


BENCHMARK = Benchmark(
    name="model-host",
    about="tensors to a model in a process of its own and back, all compared; beside Beam's MultiProcessShared",
    bars=(
        Bar(figure=LARGE, unit="x", relation=">=", bound=8, needs_peers=True),
        Bar(figure=MIDDLE, unit="x", relation=">=", bound=1, needs_peers=True),
        Bar(figure=SMALL, unit="x", relation="<=", bound=1, needs_peers=True),
    ),
    measure=measure,
)
