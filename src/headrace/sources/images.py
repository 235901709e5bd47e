"""Pictures: encoded bytes to arrays, upright, in one mode and size if asked for."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import MissingDependencyError, PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

IMAGE_PATTERNS = tuple(
    f"*.{kind}"
    for kind in ("jpg", "jpeg", "jpe", "png", "gif", "bmp", "webp", "tif", "tiff", "ppm", "pgm", "avif", "jp2")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeImage:
    """A row function: replaces `bytes` by `image`, an array of height × width (× channels).

    The camera's turn mark (EXIF orientation) is applied and palettes are resolved, so that the array is what a person
    sees. Channels are 8 bits, except that pictures of 16 bits keep their dtype while `mode` is not given.
    """

    mode: str | None = None
    size: tuple[int, int] | None = None
    """Width and height."""

    def check(self) -> None:
        """Raise MissingDependencyError or PlanError if decoding cannot work here."""
        try:
            from PIL import Image, ImageMode
        except ImportError:
            raise MissingDependencyError("pillow", extra="images", needed_by="read_images") from None
        known = ("1", "L", "LA", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "LAB", "I", "F", "P")
        if self.mode is not None and self.mode not in known:
            raise PlanError(
                f"read_images: there is no mode {self.mode!r}; use 'RGB', 'L' (grey), 'RGBA' or another of {known}"
            )
        del Image, ImageMode
        if self.size is not None and not _is_size(self.size):
            raise PlanError(f"read_images: size={self.size} is (width, height) in pixels, both at least 1")

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Decode one row; raises ValueError where the bytes are no picture."""
        image = decode(row["bytes"], mode=self.mode, size=self.size, label=str(row.get("path", "picture")))
        return {"path": row["path"], "image": image}


def _is_size(size: Any) -> bool:
    pair = isinstance(size, (list, tuple)) and len(size) == 2
    return pair and all(not isinstance(n, bool) and isinstance(n, (int, np.integer)) and n >= 1 for n in size)


def decode(
    data: bytes, *, mode: str | None = None, size: tuple[int, int] | None = None, label: str = ""
) -> NDArray[Any]:
    """Return a picture as an array of shape (height, width) or (height, width, channels).

    Raises:
        ValueError: the bytes are no picture that Pillow can read, or a damaged one.
    """
    array = np.asarray(open_picture(data, mode=mode, size=size, label=label))
    return array.astype(np.uint8) * 255 if array.dtype == bool else array


def open_picture(
    data: bytes, *, mode: str | None = None, size: tuple[int, int] | None = None, label: str = "the picture"
) -> Any:
    """Return encoded bytes as a picture of Pillow, decoded, upright and without a palette.

    Raises:
        ValueError: the bytes are no picture that Pillow can read, or a damaged one.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    if not data:
        raise ValueError(f"cannot decode {label}: it is empty")
    try:
        with Image.open(io.BytesIO(data)) as opened:
            picture: Any = opened
            ImageOps.exif_transpose(picture, in_place=True)  # pictures without a mark are not copied then
            picture.load()
            if mode is not None:
                picture = converted(picture, mode)
            elif picture.mode in ("P", "PA"):
                picture = picture.convert("RGBA" if "transparency" in picture.info or picture.mode == "PA" else "RGB")
            if size is not None and picture.size != size:
                picture = picture.resize(size, Image.Resampling.BILINEAR if picture.mode != "1" else None)
            return picture
    except UnidentifiedImageError as error:  # whose own message names an object in memory
        raise ValueError(f"cannot decode {label}: it is no picture of a kind that Pillow knows") from error
    except Exception as error:  # Pillow's plugins raise whatever they like, struct.error and SyntaxError among them
        raise ValueError(f"cannot decode {label}: {error or type(error).__name__}") from error


def converted(picture: Any, mode: str) -> Any:
    """Return a picture in another mode; 16 bits are scaled to 8."""
    if picture.mode.startswith("I;16") and mode not in ("I", "F"):
        # Pillow would clip at 255 instead of scaling
        from PIL import Image

        picture = Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    return picture if picture.mode == mode else picture.convert(mode)
