"""Handwritten digits: pictures through a PyTorch model.

Writes scikit-learn's 1,797 digits as PNG files, trains a small network on half of them, and lets it read the other
half. Run it with `python -m examples.images`; it needs torch, pillow and scikit-learn.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

import headrace as hr
from headrace.handlers.torch import TorchModelHandler

SIDE = 8


class DigitNet(torch.nn.Module):
    """Two layers are enough for pictures of 8 × 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(SIDE * SIDE, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return ten scores a picture."""
        answer: torch.Tensor = self.layers(pixels)
        return answer


def pixels(batch: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
    """Flatten pictures of (rows, 8, 8) into numbers from 0 to 1."""
    images = batch["image"]
    return {"path": batch["path"], "pixels": (images.reshape(len(images), -1) / 255).astype(np.float32)}


def likeliest(batch: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
    """Name the digit with the highest score, and the true one, which the file's name begins with."""
    truth = [int(Path(path).name[0]) for path in batch["path"]]
    return {"path": batch["path"], "digit": batch["scores"].argmax(axis=1), "truth": truth}


def write_digits(folder: Path) -> Path:
    """Write the digits to learn from and to read as PNG files named DIGIT-NUMBER.png."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    for number, (image, digit) in enumerate(zip(digits.images, digits.target, strict=True)):
        path = folder / ("learn" if number % 2 else "read") / f"{digit}-{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 255 / 16).astype(np.uint8)).save(path)
    return folder


def train(folder: Path, state_dict_file: Path) -> Path:
    """Fit the network in about a second; its input is read with Headrace too."""
    learn = hr.read_images(str(folder)).map_batches(pixels, batch_format="numpy").to_arrow()
    features = torch.tensor(np.array(learn["pixels"].to_pylist(), dtype=np.float32))
    truth = torch.tensor([int(Path(path).name[0]) for path in learn["path"].to_pylist()])
    torch.manual_seed(0)
    net = DigitNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(features), truth).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    torch.save(net.state_dict(), state_dict_file)
    return state_dict_file


def read_digits(folder: Path, state_dict_file: Path, out: Path) -> Any:
    """Let the network read every picture and return the run's result."""
    model = TorchModelHandler(model_class=DigitNet, state_dict_path=str(state_dict_file))
    return (
        hr.read_images(str(folder))
        .map_batches(pixels, batch_format="numpy")
        .run_inference(model, inputs="pixels", output="scores")
        .map_batches(likeliest, batch_format="numpy")
        .write_parquet(str(out), if_exists="overwrite")
        .run()
    )


def main() -> None:
    """Make pictures and model, read the pictures, say how many were read rightly."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("digits-demo"), help="for pictures, model and output")
    options = parser.parse_args()
    folder = write_digits(options.folder)
    state_dict_file = train(folder / "learn", folder / "digits.pt")
    result = read_digits(folder / "read", state_dict_file, folder / "out")
    answers = hr.read_parquet(str(folder / "out")).to_arrow()
    right = sum(a == b for a, b in zip(answers["digit"].to_pylist(), answers["truth"].to_pylist(), strict=True))
    print(f"{right} of {len(answers)} digits read rightly")
    print(result.report())


if __name__ == "__main__":
    main()
