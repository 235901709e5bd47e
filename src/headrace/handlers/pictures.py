"""Pictures as models of pictures take them: from decoded arrays of every kind, or from encoded bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.sources.images import converted, open_picture

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CHANNELS = (1, 2, 3, 4)


def to_picture(value: Any, *, mode: str) -> Any:
    """Return a cell of a column of pictures as a picture of Pillow in one mode, such as "RGB" or "L".

    It is an array of height × width (× channels: grey and alpha, RGB, or RGB and alpha), as `read_images` gives it, or
    the bytes of a picture file, which are decoded and turned upright. Of 16 bits the upper 8 are taken; alpha is left
    out. An array of four channels is taken for RGB with alpha: CMYK has to be converted where it is read.

    >>> to_picture(np.zeros((2, 3), "uint8"), mode="RGB").size  # doctest: +SKIP
    (3, 2)

    Raises:
        ValueError: it is no picture; says what it is.
    """
    from PIL import Image

    if isinstance(value, (bytes, bytearray, memoryview)):
        return open_picture(bytes(value), mode=mode)
    if isinstance(value, Image.Image):
        return converted(value, mode)
    if value is None:
        raise ValueError("there is no picture: the cell is null")
    if not isinstance(value, (np.ndarray, list)):
        raise ValueError(
            f"a picture is an array of height x width (x channels) or the bytes of a picture file, not a "
            f"{type(value).__name__}; read_images() decodes files"
        )
    return converted(Image.fromarray(_eight_bits(_flat_or_deep(np.asarray(value)))), mode)


def _flat_or_deep(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array in one of the shapes that Pillow knows: without the axis of a single channel."""
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.size and (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in _CHANNELS)):
        return np.ascontiguousarray(array)
    hint = "; channels come last" if array.ndim == 3 and array.shape[0] in _CHANNELS else ""
    raise ValueError(f"an array of shape {array.shape} is no picture of height x width (x 1 to 4 channels){hint}")


def _eight_bits(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype == np.uint8:
        return array
    if array.dtype == bool:
        return array.astype(np.uint8) * 255
    if array.dtype == np.uint16:
        return (array >> 8).astype(np.uint8)
    if array.dtype.kind in "iu" and array.min() >= 0 and array.max() <= 255:  # lists of numbers, out of a file
        return array.astype(np.uint8)
    raise ValueError(
        f"a picture has whole numbers from 0 to 255, or uint16, not {array.dtype}"
        + (f" from {array.min():g} to {array.max():g}" if array.dtype.kind in "iuf" else "")
    )
