"""Text models of KerasHub (Gemma, Llama, BERT, …) from preset folders."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from headrace.errors import ModelLoadError, PlanError
from headrace.handlers.hub import check_folder
from headrace.handlers.importing import BACKENDS, imported_keras
from headrace.handlers.keras import answering
from headrace.handlers.packages import require
from headrace.handlers.texts import surrogate_error
from headrace.model.answers import as_numpy
from headrace.model.buckets import POWERS, PadTo, check_pad_to, run_in_buckets
from headrace.model.files import file_name, is_local, local_copy, local_path
from headrace.model.handler import ModelHandler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

Task: TypeAlias = Literal["causal_lm", "text_classifier"]

_CLASSES: dict[str, str] = {"causal_lm": "CausalLM", "text_classifier": "TextClassifier"}
"""Tasks, and what KerasHub calls their classes; those of one architecture end with it, as in GemmaCausalLM."""


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """A task without its preprocessor, which stands beside it."""

    task: Any
    preprocessor: Any
    answer: Callable[[Any], Any]
    kind: str
    """Which of the tasks it is."""
    compiled: bool
    """Whether each shape of a batch is compiled anew."""
    generating: threading.Lock = field(default_factory=threading.Lock)
    """Held while text is generated: the state of a sampler belongs to the task."""


class KerasHubModelHandler(ModelHandler[LoadedTask]):
    """Runs a text model of KerasHub: language models generate text, classifiers answer their scores.

    `path` is a preset folder, as `task.save_to_preset(folder)` writes it, or a URL of one (with
    `trust_remote_code=True`, since its configuration names what is to be made). The kind of task is found in it, or
    said by `task`: "causal_lm" or "text_classifier". Give the texts as one column: `inputs="text"`. They become tokens
    on CPUs, in a step in front of the model.

    `max_length` bounds prompt and answer together, in tokens; by default it is that of the preset, which may be far
    more than answers need. The answer is the whole text, or with `strip_prompt=True` only what is new. `sampler` is a
    name or an object of KerasHub; "greedy" is the only one whose answers depend on the prompt alone. `backend` and
    `pad_to` are as for `KerasModelHandler`.

    >>> KerasHubModelHandler("models/gemma_tiny", max_length=64).model_id
    'gemma_tiny'
    """

    def __init__(
        self,
        path: str,
        *,
        task: Task | None = None,
        backend: str | None = None,
        max_length: int | None = None,
        sampler: Any = "greedy",
        strip_prompt: bool = False,
        dtype: str | None = None,
        pad_to: PadTo = POWERS,
        trust_remote_code: bool = False,
        cache_dir: str | None = None,
    ) -> None:
        self.path, self.task, self.backend = str(path), task, backend
        self.max_length, self.sampler, self.strip_prompt = max_length, sampler, strip_prompt
        self.dtype, self.pad_to = dtype, pad_to
        self.trust_remote_code, self.cache_dir = trust_remote_code, cache_dir

    @property
    def model_id(self) -> str:
        return file_name(self.path)

    def model_files(self) -> Sequence[str]:
        return (self.path,)

    def check(self) -> None:
        require("keras_hub", package="keras-hub", extra="keras-hub", needed_by="KerasHubModelHandler")
        if self.task is not None and self.task not in _CLASSES:
            raise PlanError(f"KerasHubModelHandler: task={self.task!r} is none of {', '.join(_CLASSES)}")
        if self.backend is not None and self.backend not in BACKENDS:
            raise PlanError(f"KerasHubModelHandler: backend={self.backend!r} is none of {', '.join(BACKENDS)}")
        if self.max_length is not None and not (isinstance(self.max_length, int) and self.max_length > 0):
            raise PlanError(f"KerasHubModelHandler: max_length={self.max_length!r} is no number of tokens")
        check_pad_to(self.pad_to, handler_name="KerasHubModelHandler")
        if is_local(self.path):
            check_folder(local_path(self.path), ("config.json",), "KerasHubModelHandler")
        elif not self.trust_remote_code:
            raise PlanError(
                f"KerasHubModelHandler: {self.path} names what is to be made; copy it to a local path, or pass "
                "trust_remote_code=True"
            )

    def preload(self) -> None:
        """Import the framework."""
        self._keras_hub()

    def preparer(self) -> Callable[[Any], Mapping[str, Any]]:
        return Tokenizing(self)

    def load_model(self) -> LoadedTask:
        self.check()
        keras, keras_hub = self._keras_hub()
        options = {} if self.dtype is None else {"dtype": self.dtype}
        kind = self._kind()
        try:
            task = getattr(keras_hub.models, _CLASSES[kind]).from_preset(str(self._folder()), **options)
            if kind == "causal_lm":
                task.compile(optimizer=None, loss=None, weighted_metrics=None, sampler=self.sampler)
        except (ModelLoadError, MemoryError):
            raise
        except Exception as error:
            raise ModelLoadError(f"KerasHub cannot load {self.path}: {type(error).__name__}: {error}") from error
        preprocessor, task.preprocessor = task.preprocessor, None
        backend = keras.config.backend()
        answer = answering(task, backend, jit_compile=False)
        return LoadedTask(task, preprocessor, answer, kind, compiled=backend != "torch")

    def run_inference(self, batch: Any, model: LoadedTask) -> Any:  # type: ignore[override]
        tokens = batch if isinstance(batch, Mapping) else self.tokens(batch, model.preprocessor)
        run = self._generated if model.kind == "causal_lm" else _scores
        return run_in_buckets(lambda part: run(part, model), tokens, self.pad_to if model.compiled else None)

    def tokens(self, texts: Any, preprocessor: Any) -> dict[str, NDArray[Any]]:
        """Return texts as the arrays that the task takes, all of one length.

        Raises:
            PlanError: rows are given in the place of texts.
            ValueError: one of them is no text.
        """
        for text in texts:
            if isinstance(text, Mapping):
                raise PlanError('KerasHubModelHandler takes texts, not rows: name their column with inputs="text"')
            if not isinstance(text, str):
                raise ValueError(f"KerasHubModelHandler takes texts, and was given {type(text).__name__}")
            if (error := surrogate_error(text)) is not None:
                raise error
        if hasattr(preprocessor, "generate_preprocess"):  # those of language models have it
            made = preprocessor.generate_preprocess(list(texts), sequence_length=self.max_length)
        else:
            made = preprocessor(list(texts))
        return {name: as_numpy(array) for name, array in made.items()}

    def loaded_preprocessor(self) -> Any:
        """Load the preprocessor alone, with its tokenizer."""
        _, keras_hub = self._keras_hub()
        kind = getattr(keras_hub.models, f"{_CLASSES[self._kind()]}Preprocessor")
        return kind.from_preset(str(self._folder()))

    def _generated(self, tokens: Mapping[str, NDArray[Any]], model: LoadedTask) -> list[str]:
        tokenizer = model.preprocessor.tokenizer
        ends = [getattr(tokenizer, name, None) for name in ("end_token_id", "end_token2_id")]
        with model.generating:
            made = model.task.generate(dict(tokens), stop_token_ids=tuple(end for end in ends if end is not None))
        made = {name: as_numpy(array) for name, array in made.items()}
        if self.strip_prompt:
            made["padding_mask"] = made["padding_mask"].astype(bool) & ~tokens["padding_mask"].astype(bool)
        texts: list[str] = model.preprocessor.generate_postprocess(made)
        return texts

    def _keras_hub(self) -> tuple[Any, Any]:
        keras = imported_keras(self.backend, needed_by="KerasHubModelHandler")
        return keras, importlib.import_module("keras_hub")

    def _folder(self) -> Path:
        return local_copy(self.path, self.cache_dir)

    def _kind(self) -> str:
        """Return the kind of the task, as given or as the preset says."""
        if self.task is not None:
            return self.task
        try:
            name = str(json.loads((self._folder() / "task.json").read_text()).get("class_name"))
        except FileNotFoundError:
            raise ModelLoadError(
                f"{self.path} does not say what it is for; pass task= ({', '.join(_CLASSES)})"
            ) from None
        for kind, ending in _CLASSES.items():
            if name.endswith(ending):
                return kind
        raise ModelLoadError(
            f"{self.path} holds a {name}, which KerasHubModelHandler does not run; load it in a handler of your own"
        )


class Tokenizing:
    """Makes tokens of texts in front of the model, with a preprocessor of its own."""

    def __init__(self, handler: KerasHubModelHandler) -> None:
        self._handler = handler
        self._preprocessor: Any = None

    def setup(self) -> None:
        """Load the preprocessor."""
        self._preprocessor = self._handler.loaded_preprocessor()

    def __call__(self, texts: Any) -> Mapping[str, Any]:
        return self._handler.tokens(texts, self._preprocessor)


def _scores(tokens: Mapping[str, NDArray[Any]], model: LoadedTask) -> NDArray[np.float32]:
    return as_numpy(model.answer(dict(tokens)))
