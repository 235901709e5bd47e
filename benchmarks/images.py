"""images: JPEG files decoded and put through a convolutional network, decoding and model overlapped."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.bars import Bar
from benchmarks.benchmark import DATA, FOLDER, WORK, Benchmark, Measurement, Settings, say
from benchmarks.equality import require_same
from benchmarks.machine import machine, versions
from benchmarks.pictures import write_picture_model, write_pictures
from benchmarks.process import wall_secs
from benchmarks.rounds import interleave, ratio

if TYPE_CHECKING:
    from pathlib import Path

HEADRACE, HAND = "headrace", "by hand"
SCRIPTS = {HEADRACE: "programs/headrace_images.py", HAND: "peers/hand_images.py"}
SPEED = "speed of headrace / speed of decoding and model overlapped by hand"
TOLERANCE = 1e-5


@dataclass(slots=True)
class Job:
    """A program on so many pictures, measured again and again; its first output is checked."""

    name: str
    pictures: Path
    model: Path
    checked: bool = field(default=False, init=False)

    def command(self, out: Path) -> list[str]:
        """Return the command that writes the answers into a folder."""
        script = str(FOLDER / SCRIPTS[self.name])
        return [sys.executable, script, str(self.pictures), str(self.model), str(out), str(model_threads())]

    def __call__(self) -> float:
        """Run once into an empty folder and return the seconds."""
        out = WORK / self.name.replace(" ", "-")
        shutil.rmtree(out, ignore_errors=True)
        took = wall_secs(self.command(out))
        if not self.checked and self.name != HAND:
            require_same(answers(), out, key="path", tolerance=TOLERANCE)
            self.checked = True
        shutil.rmtree(out, ignore_errors=True)
        return took


def model_threads() -> int:
    """Return the threads of ONNX Runtime, the same for all programs: half of the cores, for decoding takes as much."""
    return max(1, machine()["cores"] // 2)


def answers() -> Path:
    """Return the folder of the answers to compare with."""
    return WORK / "answers"


def measure(settings: Settings) -> Measurement:
    """Measure the programs side by side."""
    count = 60 if settings.quick else 1_000
    pictures = write_pictures(DATA / f"pictures-{count}", count=count)
    model = write_picture_model(DATA / "pictures.onnx")
    say(f"  answers to compare with, {count} pictures")
    wall_secs(Job(HAND, pictures, model).command(answers()))  # the files are in the page cache now
    jobs = {f"{name}, {count} pictures, s": Job(name, pictures, model) for name in SCRIPTS}
    runs = interleave(jobs, rounds=1 if settings.quick else 5)
    headrace, hand = runs.values()
    return Measurement(
        runs=runs,
        figures={SPEED: ratio(hand, headrace)},
        versions=versions("headrace", "onnxruntime", "pillow", "pyarrow", "numpy"),
    )


BENCHMARK = Benchmark(
    name="images",
    about="1,000 JPEG files of 1280 x 960 pixels, decoded, resized, through a convolutional network in ONNX, Parquet",
    bars=(Bar(figure=SPEED, unit="x", relation=">=", bound=0.9),),
    measure=measure,
)
