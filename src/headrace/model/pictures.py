"""Pictures of different sizes in one batch: resized, padded to the largest, or put together by size."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from headrace.errors import MissingDependencyError, PlanError
from headrace.model.collation import chosen_names, only_array, rows_in

if TYPE_CHECKING:
    from numpy.typing import NDArray

How: TypeAlias = Literal["resize", "pad", "group"]


@dataclass(frozen=True)
class FitPictures:
    """Makes arrays of pictures of different sizes; pass it as `collate=`.

    `how` is "resize" (to `size`, smoothly, by Pillow), "pad" (to `size`, or to the greatest width and height in the
    batch, with `value`, at the right and at the bottom) or "group" (the model is asked once for each size in the batch;
    answers keep the rows' order). `size` is (width, height) in pixels. Pictures are arrays of shape (height, width) or
    (height, width, channels); with `channels="first"` (channels, height, width). In a batch of named arrays all that
    hold pictures are fitted, or those in `names`. `mask` names one more input for the model, with "pad": 1 for the
    picture, 0 for padding, of shape (rows, height, width) and int64.

    >>> small, wide = np.ones((2, 2), np.uint8), np.ones((1, 3), np.uint8)
    >>> FitPictures("pad")([small, wide]).tolist()
    [[[1, 1, 0], [1, 1, 0]], [[1, 1, 1], [0, 0, 0]]]

    Raises:
        PlanError: a setting makes no sense.
        MissingDependencyError: Pillow is not there, and "resize" needs it.
        ValueError: a picture is null, no picture, or larger than the `size` to pad it to; it fails alone.
    """

    how: How = "resize"
    size: tuple[int, int] | None = None
    value: float = 0
    mask: str | None = None
    channels: Literal["last", "first"] = "last"
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.how not in ("resize", "pad", "group"):
            raise PlanError(f"FitPictures({self.how!r}): pictures are fitted by 'resize', 'pad' or 'group'")
        if self.channels not in ("last", "first"):
            raise PlanError(f"FitPictures(channels={self.channels!r}): channels are 'last' or 'first'")
        if (self.how == "resize") != (self.size is not None) and self.how != "pad":
            advice = "needs size=(width, height)" if self.how == "resize" else "keeps sizes; leave size= out"
            raise PlanError(f"FitPictures({self.how!r}) {advice}")
        if self.size is not None and (len(self.size) != 2 or min(self.size) < 1):
            raise PlanError(f"FitPictures(size={self.size!r}): it is (width, height) in pixels, both at least 1")
        if self.mask is not None and self.how != "pad":
            raise PlanError(f"FitPictures({self.how!r}, mask={self.mask!r}): there is padding to mask with 'pad' only")
        if self.how == "resize" and importlib.util.find_spec("PIL") is None:
            raise MissingDependencyError("pillow", extra="images", needed_by="FitPictures('resize')")

    def __call__(self, batch: Any) -> Any:
        """Return the batch with its pictures in arrays, and with the mask, where that is named."""
        if not isinstance(batch, Mapping):
            if self.mask is not None:
                raise PlanError(
                    f"FitPictures(mask={self.mask!r}) needs names for what the model takes: pass inputs= as a mapping,"
                    " such as inputs={'pixel_values': 'image'}"
                )
            return self._fitted(self._pictures(batch))
        pictures = {name: self._pictures(batch[name]) for name in chosen_names(batch, self.names, _are_pictures)}
        result = {**batch, **{name: self._fitted(its) for name, its in pictures.items()}}
        if self.mask is not None and self.mask not in batch:
            first = next(iter(pictures.values()), [])
            result[self.mask] = self._padded([np.ones(self._shape(picture), np.int64) for picture in first], 0)
        return result

    def lengths(self, batch: Any) -> NDArray[np.int64]:
        """Return the pixels of each row's pictures; rows of like size go together."""
        pixels = np.zeros(rows_in(batch), dtype=np.int64)
        for array in self._arrays(batch):
            pixels += [self._pixels(picture) for picture in array]
        return pixels

    def groups(self, batch: Any) -> list[NDArray[np.int64]]:
        """Return the rows that the model is asked about at a time: those of one size with "group", else all."""
        arrays = [self._pictures(array) for array in self._arrays(batch)]
        rows: dict[Any, list[int]] = {}
        for row, pictures in enumerate(zip(*arrays, strict=True)):
            rows.setdefault(tuple(p.shape for p in pictures) if self.how == "group" else None, []).append(row)
        return [np.array(some, dtype=np.int64) for some in rows.values()]

    def _arrays(self, batch: Any) -> list[Any]:
        if not isinstance(batch, Mapping):
            return [batch]
        return [batch[name] for name in chosen_names(batch, self.names, _are_pictures)]

    def _pictures(self, array: Any) -> list[NDArray[Any]]:
        if any(picture is None for picture in only_array(array)):
            raise ValueError("a picture is null; filter such rows out")
        pictures = [np.asarray(picture) for picture in array]
        for picture in pictures:
            if picture.ndim not in (2, 3):
                raise ValueError(f"an array of shape {picture.shape} is no picture: that has height and width")
        return pictures

    def _shape(self, picture: NDArray[Any]) -> tuple[int, int]:
        height, width = picture.shape[-2:] if self._channels_first(picture) else picture.shape[:2]
        return int(height), int(width)

    def _pixels(self, picture: Any) -> int:
        return 0 if picture is None or np.ndim(picture) < 2 else int(np.prod(self._shape(np.asarray(picture))))

    def _channels_first(self, picture: NDArray[Any]) -> bool:
        return picture.ndim == 3 and self.channels == "first"

    def _fitted(self, pictures: list[NDArray[Any]]) -> NDArray[Any]:
        if self.how == "resize":
            pictures = [self._resized(picture) for picture in pictures]
        elif self.how == "pad":
            return self._padded(pictures, self.value)
        self._check_alike(pictures)
        return np.stack(pictures)

    def _check_alike(self, pictures: list[NDArray[Any]]) -> None:
        kinds = {p.shape[:-2] if self._channels_first(p) else p.shape[2:] for p in pictures}
        if len(kinds) > 1:
            listed = " and ".join(f"{kind[0]} channels" if kind else "none" for kind in sorted(kinds))
            raise ValueError(f"pictures with {listed} do not go together; read_images(mode='RGB') makes them alike")

    def _padded(self, pictures: list[NDArray[Any]], value: float) -> NDArray[Any]:
        sizes = [self._shape(picture) for picture in pictures]
        height, width = np.max(sizes, axis=0).tolist()
        if self.size is not None:
            if width > self.size[0] or height > self.size[1]:
                raise ValueError(f"a picture of {width} × {height} does not fit into size={self.size}; resize it first")
            width, height = self.size
        first = pictures[0]
        self._check_alike(pictures)
        shape = (first.shape[0], height, width) if self._channels_first(first) else (height, width, *first.shape[2:])
        padded = np.full((len(pictures), *shape), value, dtype=np.result_type(*pictures))
        for place, picture in zip(padded, pictures, strict=True):
            if self._channels_first(picture):
                place[:, : picture.shape[1], : picture.shape[2]] = picture
            else:
                place[: picture.shape[0], : picture.shape[1]] = picture
        return padded

    def _resized(self, picture: NDArray[Any]) -> NDArray[Any]:
        assert self.size is not None
        if self._shape(picture) == (self.size[1], self.size[0]):
            return picture
        if self._channels_first(picture):
            return np.moveaxis(_resized(np.moveaxis(picture, 0, -1), self.size), -1, 0)
        return _resized(picture, self.size)


def _are_pictures(array: Any) -> bool:
    if isinstance(array, np.ndarray) and array.dtype != object:
        return array.ndim in (3, 4)
    return any(np.ndim(row) in (2, 3) for row in array if row is not None)


def _resized(picture: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    """Return a picture in another size: bilinear, over as many pixels as become one."""
    from PIL import Image

    if picture.dtype == np.uint8 and (picture.ndim == 2 or picture.shape[2] in (2, 3, 4)):
        return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BILINEAR))
    channels = np.moveaxis(picture, -1, 0) if picture.ndim == 3 else picture[np.newaxis]
    resized = [
        np.asarray(Image.fromarray(channel.astype(np.float32)).resize(size, Image.Resampling.BILINEAR))
        for channel in channels
    ]
    found = np.stack(resized, axis=-1) if picture.ndim == 3 else resized[0]
    return found.astype(picture.dtype) if picture.dtype.kind == "f" else np.rint(found).astype(picture.dtype)
