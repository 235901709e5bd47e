from typing import Any

import numpy as np
import pytest

from headrace.errors import PlanError
from headrace.model.collation import in_groups
from headrace.model.pictures import FitPictures


def pictures(*shapes: tuple[int, ...], dtype: Any = np.uint8) -> Any:
    made = np.empty(len(shapes), dtype=object)
    for i, shape in enumerate(shapes):
        made[i] = (np.arange(np.prod(shape)).reshape(shape) % 251).astype(dtype)
    return made


@pytest.mark.parametrize("shapes", [[(3, 5), (7, 2)], [(3, 5, 3), (7, 2, 3)], [(4, 6, 1), (4, 6, 1)]])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_pictures_are_resized(shapes: Any, dtype: Any) -> None:
    flat = [np.full(shape, 90 + i, dtype) for i, shape in enumerate(shapes)]
    resized = FitPictures(size=(4, 6))(flat)
    assert resized.shape == (len(shapes), 6, 4, *shapes[0][2:])
    assert resized.dtype == dtype
    for picture, one in zip(resized, flat, strict=True):
        assert (picture == one.flat[0]).all()


def test_resizing_is_pillows_and_the_same_for_all_kinds_of_numbers() -> None:
    from PIL import Image

    picture = np.random.default_rng(0).integers(0, 255, (40, 30, 3), dtype=np.uint8)
    expected = np.asarray(Image.fromarray(picture).resize((7, 9), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(FitPictures(size=(7, 9))([picture])[0], expected)
    np.testing.assert_allclose(FitPictures(size=(7, 9))([picture.astype(np.float64)])[0], expected, atol=1)
    first = FitPictures(size=(7, 9), channels="first")([np.moveaxis(picture, -1, 0)])[0]
    np.testing.assert_array_equal(np.moveaxis(first, 0, -1), expected)


@pytest.mark.parametrize("channels", ["last", "first"])
def test_pictures_are_padded_to_the_largest_with_a_mask(channels: Any) -> None:
    given = pictures((2, 3, 3), (4, 1, 3))
    if channels == "first":
        for i, picture in enumerate(given):
            given[i] = np.moveaxis(picture, -1, 0)
    collate = FitPictures("pad", value=255, mask="pixel_mask", channels=channels)
    collated = collate({"pixels": given, "id": np.array([1, 2])})
    padded = collated["pixels"] if channels == "last" else np.moveaxis(collated["pixels"], 1, -1)
    assert padded.shape == (2, 4, 3, 3)
    mask = collated["pixel_mask"]
    assert mask.dtype == np.int64
    for picture, found, there in zip(pictures((2, 3, 3), (4, 1, 3)), padded, mask.astype(bool), strict=True):
        np.testing.assert_array_equal(found[there], picture.reshape(-1, 3))
        assert (found[~there] == 255).all()
    assert collate.lengths({"pixels": given}).tolist() == [6, 4]


def test_padding_to_a_size_refuses_what_is_larger() -> None:
    assert FitPictures("pad", size=(4, 5))(pictures((2, 3), (5, 1))).shape == (2, 5, 4)
    with pytest.raises(ValueError, match=r"a picture of 3 × 2 does not fit into size=\(2, 5\)"):
        FitPictures("pad", size=(2, 5))(pictures((2, 3)))


def test_pictures_of_one_size_are_asked_about_together() -> None:
    given, asked = pictures((2, 3), (4, 4), (2, 3), (4, 4), (1, 1)), []

    def answer(batch: Any) -> Any:
        asked.append(batch.shape)
        return batch.reshape(len(batch), -1).max(axis=1)

    found = in_groups(FitPictures("group"), given, answer)
    assert [int(value) for value in found] == [5, 15, 5, 15, 0]
    assert asked == [(2, 2, 3), (2, 4, 4), (1, 1, 1)]
    assert FitPictures("group").lengths(given).tolist() == [6, 16, 6, 16, 1]
    assert len(FitPictures("pad").groups(given)) == 1


def test_what_is_no_picture_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="a picture is null"):
        FitPictures("pad")([np.zeros((2, 2)), None])
    with pytest.raises(ValueError, match=r"an array of shape \(3,\) is no picture"):
        FitPictures("pad")([np.zeros(3)])
    with pytest.raises(ValueError, match="pictures with none and 3 channels do not go together"):
        FitPictures("pad")([np.zeros((2, 2)), np.zeros((2, 2, 3))])
    assert FitPictures("pad").lengths([None, np.zeros((2, 2))]).tolist() == [0, 4]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"how": "crop"}, "by 'resize', 'pad' or 'group'"),
        ({}, r"needs size=\(width, height\)"),
        ({"how": "group", "size": (2, 2)}, "leave size= out"),
        ({"size": (0, 2)}, "both at least 1"),
        ({"size": (2, 2), "mask": "m"}, "with 'pad' only"),
        ({"how": "pad", "channels": "middle"}, "'last' or 'first'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: Any, told: str) -> None:
    with pytest.raises(PlanError, match=told):
        FitPictures(**settings)
    with pytest.raises(PlanError, match=r"needs names .* inputs=\{'pixel_values': 'image'\}"):
        FitPictures("pad", mask="m")(pictures((2, 2)))
