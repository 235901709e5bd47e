"""What are all those files? A real model looks at the files of this Python installation and says what each one is.

The model is Magika's (a package of 3 MB that ships its ONNX file): it reads the first and last kilobyte of a file and
tells 214 kinds of content apart, whatever the file is called. Run it with `make demo` or `python -m examples.demo`.
"""

from __future__ import annotations

import argparse
import json
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet

import headrace as hr
from headrace.handlers.onnx import OnnxModelHandler

ENDS_BYTES = 1024
"""The model sees this much of both ends of a file."""
BLOCK_BYTES = 4096
"""Blanks are stripped within this much of both ends."""
PADDING = 256
"""What stands for "no byte here"."""
LARGEST_BYTES = 1_000_000


class NameKinds:
    """Turns the model's 214 scores a row into the likeliest kind and its probability."""

    def __init__(self, config_file: str) -> None:
        self.config_file = config_file

    def setup(self) -> None:
        """Read the names of the kinds, once a replica."""
        self.kinds = np.array(json.loads(Path(self.config_file).read_text())["target_labels_space"])

    def __call__(self, batch: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """Answer a batch, a row for a row."""
        scores = batch["scores"]
        return {
            "path": batch["path"],
            "size": batch["size"],
            "kind": self.kinds[scores.argmax(axis=1)],
            "probability": scores.max(axis=1),
        }


def not_empty(row: dict[str, Any]) -> bool:
    """Leave out the many `__init__.py` files that hold nothing to look at."""
    return bool(row["bytes"].strip())


def tokens(batch: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
    """Cut both ends off every file, as the model wants them: 2,048 numbers from 0 to 256."""
    return {
        "path": batch["path"],
        "size": np.array([len(content) for content in batch["bytes"]]),
        "tokens": np.stack([ends_of(content) for content in batch["bytes"]]),
    }


def ends_of(content: bytes) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return the first and the last kilobyte of a file without the blanks around them, padded in the middle.

    >>> ends_of(b"  hi ")[[0, 1, 2, -3, -2, -1]].tolist()
    [104, 105, 32, 32, 104, 105]
    """
    ends = np.full(2 * ENDS_BYTES, PADDING, dtype=np.int32)
    first = content[:BLOCK_BYTES].lstrip()[:ENDS_BYTES]
    last = content[-BLOCK_BYTES:].rstrip()[-ENDS_BYTES:]
    ends[: len(first)] = np.frombuffer(first, dtype=np.uint8)
    ends[len(ends) - len(last) :] = np.frombuffer(last, dtype=np.uint8)
    return ends


def files_of_this_python(limit: int) -> list[str]:
    """Return up to `limit` files of the running Python and its packages, taken evenly from all over."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    files = sorted(
        {
            str(path)
            for folder in folders
            for path in Path(folder).rglob("*")
            if path.is_file() and path.stat().st_size <= LARGEST_BYTES
        }
    )
    step = max(1, len(files) // limit)
    return files[::step][:limit]


def magika_folder() -> Path:
    """Return where the package magika keeps its model, without importing it."""
    spec = find_spec("magika")
    if spec is None or spec.origin is None:
        sys.exit("The demo runs the model of the package magika; install it with: pip install magika")
    return Path(spec.origin).parent / "models" / "standard_v3_3"


def name_files(paths: list[str], out: Path) -> Any:
    """Run the job and return its result."""
    model = magika_folder()
    return (
        hr.read_binary_files(paths)
        .filter(not_empty)
        .map_batches(tokens)
        .run_inference(OnnxModelHandler(str(model / "model.onnx")), inputs={"bytes": "tokens"}, output="scores")
        .map_batches(NameKinds, args=[str(model / "config.min.json")])
        .write_parquet(str(out), if_exists="overwrite")
        .run()
    )


def show(out: Path) -> None:
    """Print what was found, by kind."""
    from rich.console import Console
    from rich.table import Table

    predictions = pyarrow.parquet.read_table(out)
    kinds = predictions.group_by("kind").aggregate([("path", "count"), ("probability", "mean"), ("path", "max")])
    table = Table(title=f"What {len(predictions):,} files of Python {sys.version.split()[0]} are", title_style="bold")
    table.add_column("kind", no_wrap=True, min_width=14)
    table.add_column("files", no_wrap=True, justify="right", min_width=5)
    table.add_column("probability", no_wrap=True, justify="right", min_width=11)
    table.add_column("such as", no_wrap=True)
    for row in kinds.sort_by([("path_count", "descending")]).slice(0, 15).to_pylist():
        example = "/".join(Path(row["path_max"]).parts[-2:])
        table.add_row(row["kind"], f"{row['path_count']:,}", f"{row['probability_mean']:.1%}", example)
    Console().print(table)


def main() -> None:
    """Read the options, run, show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=2_000, help="look at no more files than this (2000)")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="folder for the predictions (demo-out)")
    options = parser.parse_args()
    paths = files_of_this_python(options.files)
    print(f"Looking at {len(paths):,} files of {sys.prefix} …")
    result = name_files(paths, options.out)
    show(options.out)
    print(result.report())
    print(f"The predictions are in {options.out}/, as Parquet.")


if __name__ == "__main__":
    main()
