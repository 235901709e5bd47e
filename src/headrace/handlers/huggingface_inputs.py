"""From texts, pictures and sounds to what models of Transformers take: the step in front of them, on CPUs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.errors import HeadraceError, PlanError, RowError
from headrace.handlers.hub import model_folder
from headrace.handlers.packages import require
from headrace.handlers.pictures import to_picture
from headrace.handlers.pretrained import load_tokenizer, loading, quieten, read_settings
from headrace.handlers.texts import surrogate_error
from headrace.model.inputs import column_array

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_log = logging.getLogger("headrace.handlers")

READY = frozenset({"input_ids", "inputs_embeds", "pixel_values", "input_values", "input_features"})
"""Main inputs of models: a batch that names one of them is prepared."""

_TOKENIZER_FILES = (
    *("tokenizer_config.json", "tokenizer.json", "vocab.txt"),
    *("vocab.json", "tokenizer.model", "spiece.model"),
)
_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
INPUT_FILES = (*_TOKENIZER_FILES, *_PROCESSOR_FILES)
"""A folder with a tokenizer or processor holds one of these."""

_FILES = frozenset({"image", "images", "audio", "audios", "video", "videos", "url", "path"})
"""Names under which processors, pipelines and chats take a path or URL too."""

_SHIFTED = frozenset({"roberta", "xlm-roberta", "camembert", "mpnet", "longformer", "data2vec-text", "esm"})
"""Kinds of model whose positions begin behind that of the padding, so that they hold fewer tokens than positions."""


@dataclass(kw_only=True)
class Processing:
    """Makes a model's inputs from what a column holds; texts, pictures and sounds are told by the values themselves.

    | values | inputs of the model |
    | --- | --- |
    | texts, or pairs of them | `input_ids` and what else its tokenizer makes, as long as the text |
    | pictures: arrays (height, width[, channels]), or the bytes of their files | `pixel_values` and so on |
    | arrays (samples,) of floats | `input_values` or `input_features` |
    | several by name (`images`, `text`, …) | what the model's processor makes of them |
    """

    model: str
    """Folder, URL or id of tokenizer and processors."""
    handler_name: str
    revision: str | None = None
    max_length: int | None = None
    truncation: bool = True
    sampling_rate: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    trust_remote_code: bool = False
    cache_dir: str | None = None
    column: str | None = None
    """The column that is prepared, where it is one: for messages."""

    def setup(self) -> None:
        """Find the model's folder; tokenizer and processors, a replica its own, are loaded when they are needed."""
        self._loaded: dict[str, Any] = {}
        self._told = False
        self._folder = model_folder(
            self.model, handler_name=self.handler_name, revision=self.revision, cache_dir=self.cache_dir
        )
        self._kinds = kinds_taken(self._folder)
        quieten()

    def __call__(self, batch: Any) -> Mapping[str, Any]:
        """Return the model's inputs, one value a row, not padded."""
        if isinstance(batch, Mapping):
            return self._of_named(batch)
        if isinstance(batch, list):
            raise PlanError(f"{self.handler_name} takes one column, not rows: name it with inputs=")
        if batch.ndim == 2 and batch.dtype == object:
            if batch.shape[1] == 2:
                return self._of_texts(batch[:, 0], batch[:, 1])
            if batch.shape[1] != 1:
                raise PlanError(
                    f"{self.handler_name} takes one column of texts or two, for pairs, not {batch.shape[1]}; name them "
                    "with inputs="
                )
            batch = batch[:, 0]
        return self._of_column(batch)

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        if "tokenizer" not in self._loaded:
            self._loaded["tokenizer"] = load_tokenizer(
                self._folder,
                handler_name=self.handler_name,
                trust_remote_code=self.trust_remote_code,
                **self.options,
            )
        return self._loaded["tokenizer"]

    def max_tokens(self) -> int | None:
        """Return how many tokens a text may have; None: any number."""
        settings = read_settings(self._folder)
        settings = settings.get("text_config") or settings
        positions = settings.get("max_position_embeddings")
        if isinstance(positions, int) and settings.get("model_type") in _SHIFTED:
            positions -= (settings.get("pad_token_id") or 0) + 1
        limits = [self.max_length, getattr(self.tokenizer, "model_max_length", None), positions]
        return min((n for n in limits if isinstance(n, int) and 0 < n < 1 << 30), default=None)

    def _processor(self, auto_class: str) -> Any:
        """Load a processor, once."""
        if auto_class not in self._loaded:
            import transformers

            what = f"what prepares the inputs of {self.model} (if it is elsewhere, pass tokenizer=)"
            with loading(what, handler_name=self.handler_name):
                self._loaded[auto_class] = getattr(transformers, auto_class).from_pretrained(
                    str(self._folder), trust_remote_code=self.trust_remote_code, **self.options
                )
        return self._loaded[auto_class]

    def _of_named(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        if is_prepared(batch):
            return batch
        names = set(batch)
        if names <= {"text", "text_pair"}:
            return self._of_texts(batch["text"], batch.get("text_pair"))
        if len(names) == 1:
            return self._of_column(next(iter(batch.values())))
        return self._of_several(batch)

    def _of_column(self, values: Any) -> Mapping[str, Any]:
        first = next((value for value in values if value is not None), None)
        kind, others = _kind_of(first), self._kinds - {"text"} or self._kinds
        if kind not in self._kinds and len(others) == 1:
            (kind,) = others  # what is none of that kind fails alone
        if kind == "text":
            return self._of_texts(values)
        if kind == "picture":
            return self._one_by_one("AutoImageProcessor", values, self._of_picture)
        if kind == "sound":
            return self._one_by_one("AutoFeatureExtractor", values, self._of_sound)
        raise PlanError(f"{self._where}{self.handler_name} takes texts, pictures or sounds, not {type(first).__name__}")

    @property
    def _where(self) -> str:
        return "" if self.column is None else f"column {self.column!r}: "

    def _of_texts(self, texts: Any, pairs: Any = None) -> Mapping[str, Any]:
        """Tokenize texts; those that are none, or too long where `truncation` is off, fail."""
        firsts, seconds = list(texts), None if pairs is None else list(pairs)
        errors = {
            row: error
            for values in (firsts, seconds or ())
            for row, value in enumerate(values)
            if (error := self._text_error(value)) is not None
        }
        rows = [row for row in range(len(firsts)) if row not in errors]
        found = self._tokens(rows, firsts, seconds, errors) if rows else {"input_ids": []}
        places = np.full(len(firsts), -1)
        places[rows] = np.arange(len(rows))
        return {
            name: [errors[row] if row in errors else values[place] for row, place in enumerate(places)]
            if errors
            else _lists(values)
            for name, values in found.items()
        }

    def _text_error(self, value: Any) -> RowError | None:
        if isinstance(value, str):
            return surrogate_error(value)
        return RowError(f"{self._where}a text is expected, not {_described(value)}")

    def _tokens(
        self, rows: Sequence[int], firsts: Sequence[str], seconds: Sequence[str] | None, errors: dict[int, RowError]
    ) -> dict[str, list[Any]]:
        """Return the tokens of those rows; what is too long is cut, or noted as an error."""

        def tokenized(chosen: Sequence[int], **options: Any) -> dict[str, list[Any]]:
            pairs = None if seconds is None else [seconds[row] for row in chosen]
            texts = [firsts[row] for row in chosen]
            return dict(self.tokenizer(texts, pairs, return_attention_mask=False, verbose=False, **options))

        found, limit = tokenized(rows), self.max_tokens()
        for row, ids in zip(rows, found["input_ids"], strict=True):
            if not ids:
                errors[row] = RowError("the text has no tokens; filter such rows out")
        long = [] if limit is None else [i for i, ids in enumerate(found["input_ids"]) if len(ids) > limit]
        if not self.truncation:
            for i in long:
                errors[rows[i]] = RowError(
                    f"{len(found['input_ids'][i]):,} tokens are more than the {limit:,} that the model takes; cut the "
                    "text, or pass truncation=True"
                )
        elif long:
            self._tell(len(found["input_ids"][long[0]]), limit)
            cut = tokenized([rows[i] for i in long], truncation=True, max_length=limit)
            for name, values in cut.items():
                for i, value in zip(long, values, strict=True):
                    found[name][i] = value
        return found

    def _tell(self, tokens: int, limit: int | None) -> None:
        if not self._told:
            self._told = True
            _log.warning(
                "%s: texts of more than %s tokens are cut there (the first has %s); truncation=False makes them fail",
                *(self.handler_name, limit, tokens),
            )

    def _of_picture(self, processor: Any, value: Any) -> Mapping[str, Any]:
        try:
            picture = as_rgb(value)
        except ValueError as error:
            raise ValueError(f"{self._where}{error}") from error
        return dict(processor(images=picture, return_tensors="pt"))

    def _of_sound(self, extractor: Any, value: Any) -> Mapping[str, Any]:
        rate = self.sampling_rate or extractor.sampling_rate
        if rate != extractor.sampling_rate:
            raise PlanError(
                f"{self.handler_name}: the model wants {extractor.sampling_rate} samples a second, and sampling_rate="
                f"{rate}; resample the sounds before"
            )
        if np.ndim(value) != 1 or isinstance(value, (str, bytes)):
            raise ValueError(
                f"{self._where}a sound is an array of its samples, of shape (samples,), in one channel, not "
                f"{_described(value)}"
            )
        return dict(extractor(np.asarray(value, dtype=np.float32), sampling_rate=rate, return_tensors="np"))

    def _one_by_one(self, auto_class: str, values: Any, make: Any) -> Mapping[str, Any]:
        processor = self._processor(auto_class)
        return _by_name([_attempted(lambda value: make(processor, value), value) for value in values])

    def _of_several(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        processor = self._processor("AutoProcessor")

        def make(values: Mapping[str, Any]) -> Mapping[str, Any]:
            refuse_addresses(values)
            given = {n: as_rgb(value) if n == "images" else value for n, value in values.items()}
            return dict(processor(**given, return_tensors="pt"))

        rows = zip(*batch.values(), strict=True)
        return _by_name([_attempted(make, dict(zip(batch, row, strict=True))) for row in rows])


def by_hand(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return prepared inputs as the engine hands them on, where nobody else does.

    Raises:
        RowError: a row could not be prepared.
    """
    for values in inputs.values():
        for value in values:
            if isinstance(value, Exception):
                raise value
    return {name: column_array(values) if isinstance(values, pa.Array) else values for name, values in inputs.items()}


def is_prepared(batch: Any) -> bool:
    """Say whether a batch is what `Processing` makes, or the user's own tokens by name."""
    return isinstance(batch, Mapping) and not READY.isdisjoint(batch)


def refuse_addresses(value: Any, name: str = "") -> None:
    """Raise RowError for a path or URL in the place of a file's content, which Transformers would open or fetch."""
    if isinstance(value, str) and name in _FILES:
        raise RowError(
            f"{name!r} is a text, and a picture or sound is expected; paths and URLs in data are not opened: read the "
            "files with read_images or read_binary_files"
        )
    if isinstance(value, Mapping):
        for inner, part in value.items():
            refuse_addresses(part, inner)
    elif isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.dtype == object):
        for part in value:
            refuse_addresses(part, name)


def as_rgb(value: Any) -> Any:
    """Return a picture of any kind as processors take it.

    Raises:
        ValueError: it is none.
    """
    require("PIL", package="pillow", extra="images", needed_by="a model that takes pictures")
    return to_picture(value, mode="RGB")


def kinds_taken(folder: Path) -> set[str]:
    """Return which of "text", "picture" and "sound" the files in a model's folder prepare; none where they do not tell.

    >>> import pathlib
    >>> kinds_taken(pathlib.Path("nowhere"))
    set()
    """
    kinds = {"text"} if any((folder / name).exists() for name in _TOKENIZER_FILES) else set()
    for name in _PROCESSOR_FILES:
        settings = read_settings(folder, name)
        keys = {*settings, *(key for part in settings.values() if isinstance(part, dict) for key in part)}
        if keys & {"image_processor_type", "image_mean", "do_resize"}:
            kinds.add("picture")
        if "sampling_rate" in keys:
            kinds.add("sound")
        if settings and not kinds - {"text"}:
            return set()  # of a kind that is not known here
    return kinds


def _kind_of(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return "text"
    if isinstance(value, bytes) or np.ndim(value) > 1:
        return "picture"
    return "sound" if np.ndim(value) == 1 else None


def _described(value: Any) -> str:
    """Say what stands in the place of something else.

    >>> _described(None), _described(1.5), _described(np.zeros((2, 3)))
    ('null', 'float', 'an array of shape (2, 3)')
    """
    if value is None:
        return "null"
    return f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__


def _attempted(make: Any, value: Any) -> Any:
    """Return what is made of a row's value, or what becomes of the row."""
    if value is None:
        return RowError("a picture or sound is expected, not null")
    try:
        return make(value)
    except (HeadraceError, MemoryError):
        raise
    except Exception as error:
        return error


def _by_name(rows: Sequence[Any]) -> dict[str, list[Any]]:
    """Turn one mapping of arrays (1, …) a row into one list a name; errors stand in the place of their rows."""
    names = next((list(row) for row in rows if isinstance(row, Mapping)), ["pixel_values"])
    return {name: [row if isinstance(row, Exception) else np.asarray(row[name])[0] for row in rows] for name in names}


def _lists(values: Sequence[Any]) -> Any:
    """Return lists of token ids as a column."""
    try:
        return pa.array(values, pa.list_(pa.int32()))
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # nested, such as the boxes of words
        return [np.asarray(value) for value in values]
