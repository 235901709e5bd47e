from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from headrace.handlers.pictures import to_picture

Image = pytest.importorskip("PIL.Image")

GREY = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20


@pytest.mark.parametrize(
    ("array", "red"),
    [
        (GREY, GREY),
        (GREY[..., np.newaxis], GREY),
        (np.stack([GREY, GREY * 0], axis=-1), GREY),
        (np.stack([GREY, GREY * 0, GREY * 0], axis=-1), GREY),
        (np.stack([GREY, GREY * 0, GREY * 0, GREY * 0], axis=-1), GREY),
        (GREY > 100, (GREY > 100) * 255),
        (GREY.astype(np.uint16) << 8, GREY),
        (GREY.astype(np.int64), GREY),
        (GREY.tolist(), GREY),
        (np.asfortranarray(GREY)[::-1], GREY[::-1]),
    ],
)
def test_arrays_of_every_kind(array: Any, red: Any) -> None:
    picture = to_picture(array, mode="RGB")
    assert picture.mode == "RGB"
    assert np.array_equal(np.asarray(picture)[..., 0], red)


def test_one_mode_for_all() -> None:
    assert to_picture(np.stack([GREY] * 3, axis=-1), mode="L").mode == "L"
    assert to_picture(Image.new("RGBA", (4, 3)), mode="RGB").mode == "RGB"


def test_encoded_pictures_are_decoded_and_turned_upright() -> None:
    file = io.BytesIO()
    lying = Image.new("L", (60, 20))
    exif = lying.getexif()
    exif[0x0112] = 6
    lying.save(file, format="JPEG", exif=exif)
    for data in (file.getvalue(), memoryview(file.getvalue())):
        assert to_picture(data, mode="RGB").size == (20, 60)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (np.zeros((3, 40, 50), np.uint8), "channels come last"),
        (np.zeros((4, 4, 5), np.uint8), r"shape \(4, 4, 5\) is no picture"),
        (np.zeros((4,), np.uint8), r"shape \(4,\)"),
        (np.zeros((0, 4, 3), np.uint8), r"shape \(0, 4, 3\)"),
        (np.full((4, 4, 3), 0.5, np.float32), "not float32 from 0.5 to 0.5"),
        (np.full((4, 4), 300, np.int64), "not int64 from 300 to 300"),
        (np.full((4, 4), -1, np.int8), "not int8 from -1"),
        (np.full((4, 4), 1j), "not complex128$"),
        ("a.png", r"not a str; read_images\(\) decodes files"),
        (None, "null"),
        (b"", "it is empty"),
        (b"no picture", "no picture of a kind"),
    ],
)
def test_what_is_no_picture_is_named(value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        to_picture(value, mode="RGB")
