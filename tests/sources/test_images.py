from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from headrace.errors import PlanError
from headrace.sources.images import DecodeImage, decode

Image = pytest.importorskip("PIL.Image")

SHAPES = {
    "RGB": (30, 40, 3),
    "L": (30, 40),
    "RGBA": (30, 40, 4),
    "P": (30, 40, 3),
    "CMYK": (30, 40, 4),
    "LA": (30, 40, 2),
    "I;16": (30, 40),
    "1": (30, 40),
}


def encoded(mode: str, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.new(mode, (40, 30)).save(file, format="JPEG" if mode == "CMYK" else "PNG", **options)
    return file.getvalue()


@pytest.mark.parametrize(("mode", "shape"), SHAPES.items())
def test_own_shape_without_options(mode: str, shape: tuple[int, ...]) -> None:
    image = decode(encoded(mode))
    assert image.shape == shape
    assert image.dtype == (np.uint16 if mode == "I;16" else np.uint8)


@pytest.mark.parametrize("mode", SHAPES)
def test_one_mode_and_size(mode: str) -> None:
    image = decode(encoded(mode), mode="RGB", size=(32, 16))
    assert (image.shape, image.dtype) == ((16, 32, 3), np.uint8)


@pytest.mark.parametrize("mode", SHAPES)
def test_size_alone(mode: str) -> None:
    assert decode(encoded(mode), size=(8, 6)).shape[:2] == (6, 8)


def test_sixteen_bits_are_scaled_not_clipped() -> None:
    file = io.BytesIO()
    Image.fromarray(np.full((2, 2), 0x8000, dtype=np.uint16)).save(file, format="PNG")
    assert decode(file.getvalue()).tolist() == [[0x8000, 0x8000]] * 2
    assert decode(file.getvalue(), mode="L").tolist() == [[0x80, 0x80]] * 2


def test_the_turn_mark_is_applied() -> None:
    turned = Image.new("RGB", (60, 20), (200, 10, 10))
    exif = turned.getexif()
    exif[0x0112] = 6
    file = io.BytesIO()
    turned.save(file, format="JPEG", exif=exif)
    assert decode(file.getvalue()).shape == (60, 20, 3)


@pytest.mark.parametrize(
    ("data", "why"), [(b"", "it is empty"), (b"no picture", "no picture of a kind"), (encoded("RGB")[:60], "")]
)
def test_what_is_no_picture_is_named(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=rf"cannot decode shelf/a\.png: .*{why}") as caught:
        DecodeImage()({"path": "shelf/a.png", "bytes": data})
    assert "0x" not in str(caught.value)


def test_black_and_white_spans_the_whole_range() -> None:
    file = io.BytesIO()
    Image.new("1", (1, 1), 1).save(file, format="PNG")
    assert decode(file.getvalue()).tolist() == [[255]]


def test_unknown_mode() -> None:
    with pytest.raises(PlanError, match="no mode 'RBG'"):
        DecodeImage(mode="RBG").check()


def test_a_size_of_nothing() -> None:
    with pytest.raises(PlanError, match=r"size=\(0, 8\)"):
        DecodeImage(size=(0, 8)).check()
