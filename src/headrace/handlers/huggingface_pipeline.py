"""Pipelines of Transformers, by task."""

from __future__ import annotations

import importlib
import pydoc
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import PlanError, RowError, suggestion
from headrace.handlers.hub import check_model, model_files, model_folder, model_name
from headrace.handlers.huggingface_inputs import as_rgb, refuse_addresses
from headrace.handlers.pretrained import (
    load_module,
    load_tokenizer,
    loading,
    model_class,
    quieten,
    require_transformers,
)
from headrace.handlers.texts import surrogate_error
from headrace.handlers.torch_cores import TorchHandler
from headrace.handlers.torch_devices import device_of, settle, stream_of_thread
from headrace.model.handler import changed

if TYPE_CHECKING:
    import os
    from pathlib import Path

_PARTS = {
    "tokenizer": "AutoTokenizer",
    "image_processor": "AutoImageProcessor",
    "feature_extractor": "AutoFeatureExtractor",
    "processor": "AutoProcessor",
}
"""What a pipeline may need beside its model, each found in the model's folder."""

_ALONE = ("feature-extraction",)
"""Tasks whose answers would hold the padding of their batch."""


class HuggingFacePipelineModelHandler(TorchHandler[Any]):
    """Runs a pipeline of Transformers for a task: "text-classification", "ner", "image-classification", …

    The answers are the pipeline's own dicts and lists; `inference_args` are what its call takes (`top_k`,
    `candidate_labels`, `max_new_tokens`), `pipeline_kwargs` what making it takes. `model` is a folder, its URL, or an
    id of the Hub (with `revision=`).

    The column of `inputs=` holds texts, pictures (arrays of uint8, or bytes) or sounds (arrays of floats at the model's
    rate). Two columns are pairs of texts; a mapping gives the pipeline dicts, such as `{"image": "scan", "question":
    "asked"}`, or `{"raw": "samples", "sampling_rate": "rate"}` for sounds of other rates. Texts that are paths or URLs
    of pictures are not opened: read the files with `read_images` or `read_binary_files`.

    Texts are sorted by their length in characters and go to the pipeline a batch at a time, except where their batch
    would show in the answers (feature-extraction, sounds of different lengths: `HuggingFaceModelHandler` is faster).
    Pipelines do not cut texts that are too long by themselves, so that such rows fail; most text tasks take
    `inference_args={"truncation": True}`.

    Pickled weights are read as tensors alone. Code that a model brings is run only with `trust_remote_code=True`.

    >>> HuggingFacePipelineModelHandler("text-classification", "org/moods").model_id
    'org/moods'
    """

    def __init__(
        self,
        task: str,
        model: str | os.PathLike[str],
        *,
        tokenizer: str | os.PathLike[str] | None = None,
        revision: str | None = None,
        device: str = "auto",
        dtype: str | None = None,
        model_kwargs: Mapping[str, Any] | None = None,
        pipeline_kwargs: Mapping[str, Any] | None = None,
        trust_remote_code: bool = False,
        cache_dir: str | None = None,
    ) -> None:
        self.task, self.model, self.revision = task, str(model), revision
        self.tokenizer = None if tokenizer is None else str(tokenizer)
        self.device, self.dtype = device, dtype
        self.model_kwargs, self.pipeline_kwargs = dict(model_kwargs or {}), dict(pipeline_kwargs or {})
        self.trust_remote_code = trust_remote_code
        self.cache_dir = cache_dir

    @property
    def model_id(self) -> str:
        return model_name(self.model, self.revision)

    def with_model(self, path: str) -> HuggingFacePipelineModelHandler:
        return changed(self, model=path, revision=None)

    def model_files(self) -> Sequence[str]:
        return model_files(
            self.model, handler_name=type(self).__name__, revision=self.revision, cache_dir=self.cache_dir
        )

    def check(self) -> None:
        require_transformers(type(self).__name__)
        check_model(self.model, handler_name=type(self).__name__, revision=self.revision)

    def preload(self) -> None:
        """Import the framework."""
        importlib.import_module("torch")
        importlib.import_module("transformers.pipelines")

    def weigh(self, batch: Any) -> Any:
        """Return the characters of each row's texts."""
        rows = zip(*batch.values(), strict=True) if isinstance(batch, Mapping) else batch
        return [_characters(row) for row in rows]

    def load_model(self) -> Any:
        self.check()
        quieten()
        import transformers

        name = type(self).__name__
        folder = model_folder(self.model, handler_name=name, revision=self.revision, cache_dir=self.cache_dir)
        device = device_of(self.device, needed_by=name)
        with loading(self.model, handler_name=name):
            kind = self._kind()
            class_ = model_class(folder, choices=kind["pt"])
        module = load_module(
            class_,
            folder,
            name=self.model,
            handler_name=name,
            dtype=self.dtype,
            options=self.model_kwargs,
            trust_remote_code=self.trust_remote_code,
            spare=("pooler",) if "feature-extraction" in self.task else (),
        )
        with loading(f"a pipeline {self.task!r} of {self.model}", handler_name=name):
            pipe = transformers.pipeline(
                self.task,
                module,
                **self._parts(kind["impl"], folder),
                device=None if "device_map" in self.model_kwargs else device,
                trust_remote_code=self.trust_remote_code,
                **self.pipeline_kwargs,
            )
        tokenizer = pipe.tokenizer
        if tokenizer is not None and getattr(tokenizer, "pad_token_id", None) is None and tokenizer.eos_token_id:
            tokenizer.pad_token_id = tokenizer.eos_token_id  # it is masked, so that any will do
        if tokenizer is not None and module.can_generate() and not module.config.is_encoder_decoder:
            tokenizer.padding_side = "left"  # a text goes on behind its end
        settle(device)
        return pipe

    def run_inference(self, batch: Any, model: Any, inference_args: Mapping[str, Any] | None = None) -> Any:
        import torch
        from transformers.pipelines.pt_utils import KeyDataset

        texts = self._kind()["type"] == "text"
        items = [_attempted(item, task=self.task, texts=texts) for item in _items(batch)]
        sound = [{"item": item} for item in items if not isinstance(item, RowError)]
        if not sound:
            return items
        alone = self.task in _ALONE or _uneven(item["item"] for item in sound)
        options = {"batch_size": 1 if alone else len(sound), **dict(inference_args or {})}
        with torch.inference_mode(), stream_of_thread(model.device):
            # As a data set, since a list of one is answered by some pipelines as if it were no list.
            answers = [_plain(answer) for answer in model(KeyDataset(sound, "item"), **options)]
        if len(answers) != len(sound):
            return answers  # which is told by those who count
        found = iter(answers)
        return [item if isinstance(item, RowError) else next(found) for item in items]

    def _kind(self) -> Mapping[str, Any]:
        """Return what Transformers knows about the task.

        Raises:
            PlanError: there is no such task; names the nearest.
        """
        from transformers.pipelines import PIPELINE_REGISTRY

        known = PIPELINE_REGISTRY.get_supported_tasks()
        if self.task not in known:
            raise PlanError(
                f"{type(self).__name__}: there is no task {self.task!r} in the installed Transformers;"
                f"{suggestion(self.task, known)} Tasks: {', '.join(known)}"
            )
        found: Mapping[str, Any] = PIPELINE_REGISTRY.check_task(self.task)[1]
        return found

    def _parts(self, pipeline_class: Any, folder: Path) -> dict[str, Any]:
        """Load what this kind of pipeline needs beside its model, where a model in memory does not tell it."""
        import transformers

        class_ = pydoc.locate(pipeline_class) if isinstance(pipeline_class, str) else pipeline_class
        parts = {}
        for part, auto_class in _PARTS.items():
            needed = getattr(class_, f"_load_{part}", None)  # None: if it is there
            if needed is False:
                continue
            try:
                if part == "tokenizer":
                    found = self._tokenizer(folder)
                else:
                    found = getattr(transformers, auto_class).from_pretrained(
                        str(folder), trust_remote_code=self.trust_remote_code
                    )
            except Exception:
                if needed:
                    raise
                continue
            if part != "processor" or isinstance(found, transformers.ProcessorMixin):
                parts[part] = found
        return parts

    def _tokenizer(self, folder: Path) -> Any:
        name = type(self).__name__
        if self.tokenizer is not None:
            folder = model_folder(self.tokenizer, handler_name=name, cache_dir=self.cache_dir)
        return load_tokenizer(folder, handler_name=name, trust_remote_code=self.trust_remote_code)


def _items(batch: Any) -> list[Any]:
    """Return what the pipeline gets for each row: a value, or a dict of values."""
    if isinstance(batch, Mapping):
        return [dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True)]
    if isinstance(batch, np.ndarray) and batch.ndim == 2 and batch.dtype == object:
        if batch.shape[1] != 2:
            raise PlanError(
                f"a pipeline takes one column, or two for pairs of texts, not {batch.shape[1]}; name its inputs: "
                'inputs={"image": "scan", "question": "asked"}'
            )
        return [{"text": text, "text_pair": pair} for text, pair in batch]
    return list(batch)


def _attempted(item: Any, *, task: str, texts: bool) -> Any:
    """Return an item as the pipeline takes it, or what becomes of its row."""
    try:
        if not texts:
            refuse_addresses(item, "image")
        if isinstance(item, dict):
            return {name: _value(value, task=task) for name, value in item.items()}
        return _value(item, task=task)
    except RowError as error:
        return error
    except ValueError as error:  # of a picture
        return RowError(str(error))


def _value(value: Any, *, task: str) -> Any:
    if value is None:
        raise RowError("a value is expected, not null")
    if isinstance(value, str) and (error := surrogate_error(value)) is not None:
        raise error
    if isinstance(value, bytes):
        return value if "audio" in task or "speech" in task else as_rgb(value)
    if isinstance(value, np.ndarray):
        return as_rgb(value) if value.ndim > 1 else value.astype(np.float32)
    return value.item() if isinstance(value, np.generic) else value


def _uneven(items: Iterable[Any]) -> bool:
    """Say whether there are sounds of different lengths; padding would change the answers of many models."""
    sounds = (item.get("raw", item.get("array")) if isinstance(item, dict) else item for item in items)
    return len({sound.shape for sound in sounds if isinstance(sound, np.ndarray)}) > 1


def _plain(answer: Any) -> Any:
    """Return an answer with arrays in the place of pictures and tensors, and numbers in that of numpy's."""
    if isinstance(answer, Mapping):
        return {name: _plain(value) for name, value in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [_plain(value) for value in answer]
    if hasattr(answer, "detach"):
        return answer.detach().float().cpu().numpy()
    if hasattr(answer, "getbands"):  # a picture of Pillow's
        return np.asarray(answer)
    return answer.item() if isinstance(answer, np.generic) else answer


def _characters(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    texts = value if isinstance(value, (tuple, list)) or getattr(value, "dtype", None) == np.dtype(object) else ()
    return sum(map(_characters, texts)) if len(texts) else 1
