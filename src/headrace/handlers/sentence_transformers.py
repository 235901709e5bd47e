"""Models of sentence-transformers: embeddings of texts, and scores of pairs of texts."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import ModelLoadError, PlanError
from headrace.handlers.hub import check_model, folder_here, is_hub_id, model_files, model_folder, model_name
from headrace.handlers.packages import require
from headrace.handlers.pretrained import check_at_least_one, loading, quieten
from headrace.handlers.sentence_tokens import MASK, TOKENS, SentenceTokens, has_scores, prompt_of, texts_of
from headrace.handlers.torch_cores import TorchHandler, alone_on_cores
from headrace.handlers.torch_devices import device_of, dtype_of, settle, stream_of_thread, tensors_on
from headrace.model.collation import pad
from headrace.model.handler import changed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_NAME = "SentenceTransformerModelHandler"
_OWNERS = {"embed": "sentence-transformers", "rerank": "cross-encoder"}
"""Whose models are meant on the Hub where an id names no owner, as sentence-transformers itself has it."""
_PRECISIONS = ("float32", "binary", "ubinary")
_PROBE = ["Water runs down the headrace. ", " and turns the mill\n"]


class SentenceTransformerModelHandler(TorchHandler[Any]):
    """Embeds texts with a SentenceTransformer, or scores pairs of texts with a CrossEncoder (`task="rerank"`).

    `model` is a folder, its URL, or an id on the Hugging Face Hub. "embed" takes one column of texts (`text` where
    `inputs=` says nothing) and answers a vector of shape (dimensions,); "rerank" takes two (`query` and `passage`) and
    answers a score, or one for each label. Values are those of `SentenceTransformer.encode` and
    `CrossEncoder.predict` for the same text alone.

    Texts are tokenised on CPUs beside the model, and those of like length go together. Texts longer than the model
    takes are cut, as sentence-transformers does it; `max_seq_length` is another length in tokens. Models whose first
    module does more than to call a tokenizer (chat templates, routers, bags of words) are left to `encode` and
    `predict`: these tokenise in their turn, and texts are sorted by characters. `tokenize_ahead=False` asks for that.

    `prompt` goes before each text (of a pair: before the first), `prompt_name` is one of the model's own prompts;
    `truncate_dim` keeps so many dimensions, `normalize` makes vectors of length 1 of them. `precision` is "float32", or
    "binary" or "ubinary": eight dimensions a byte. (int8 and uint8 depend on all vectors; make them of the output.)
    `dtype` casts the model, `model_kwargs` go to its transformer. `device="auto"` is an accelerator where there is one.
    Code in a model's folder is run with `trust_remote_code=True` only.

    >>> SentenceTransformerModelHandler("all-MiniLM-L6-v2").model_id
    'sentence-transformers/all-MiniLM-L6-v2'

    Raises:
        PlanError: `task` or `precision` is not one of those.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        task: str = "embed",
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize: bool = False,
        truncate_dim: int | None = None,
        precision: str = "float32",
        max_seq_length: int | None = None,
        device: str = "auto",
        dtype: str | None = None,
        model_kwargs: Mapping[str, Any] | None = None,
        tokenize_ahead: bool = True,
        revision: str | None = None,
        trust_remote_code: bool = False,
        cache_dir: str | None = None,
    ) -> None:
        if task not in _OWNERS:
            raise PlanError(f"{_NAME}: task is {task!r}; it is 'embed' or 'rerank'")
        if precision not in _PRECISIONS:
            why = " (int8 and uint8 depend on all vectors)" if precision in ("int8", "uint8") else ""
            raise PlanError(f"{_NAME}: precision is {precision!r}; it is one of {', '.join(_PRECISIONS)}{why}")
        self.model = os.fspath(model)
        if is_hub_id(self.model) and "/" not in self.model:
            self.model = f"{_OWNERS[task]}/{self.model}"
        self.task, self.prompt, self.prompt_name = task, prompt, prompt_name
        self.normalize, self.truncate_dim, self.precision = normalize, truncate_dim, precision
        self.max_seq_length, self.device, self.dtype = max_seq_length, device, dtype
        self.model_kwargs = dict(model_kwargs or {})
        self.tokenize_ahead = tokenize_ahead
        self.revision, self.trust_remote_code, self.cache_dir = revision, trust_remote_code, cache_dir

    @property
    def model_id(self) -> str:
        return model_name(self.model, self.revision)

    def with_model(self, path: str) -> SentenceTransformerModelHandler:
        return changed(self, model=path, revision=None)

    def model_files(self) -> Sequence[str]:
        return model_files(self.model, handler_name=_NAME, revision=self.revision, cache_dir=self.cache_dir)

    @property
    def only_reads(self) -> bool:
        return self.tokenize_ahead and not self.trust_remote_code

    def default_inputs(self) -> Sequence[str] | str:
        return ("query", "passage") if self._pairs else "text"

    def check(self) -> None:
        require(
            "sentence_transformers", package="sentence-transformers", extra="sentence-transformers", needed_by=_NAME
        )
        for setting in ("truncate_dim", "max_seq_length"):
            check_at_least_one(getattr(self, setting), setting, handler_name=_NAME)
        check_model(self.model, handler_name=_NAME, revision=self.revision, holds=("modules.json", "config.json"))
        if (folder := folder_here(self.model)) is not None:
            prompt_of(folder, self.prompt, self.prompt_name)

    def preload(self) -> None:
        """Import the framework."""
        importlib.import_module("sentence_transformers")

    def preparer(self) -> SentenceTokens | None:
        """Return what makes tokens of texts; None where that is left to the model."""
        return self._tokens() if self.tokenize_ahead else None

    def load_model(self) -> Any:
        self.check()
        with loading("sentence-transformers", handler_name=_NAME):
            import sentence_transformers

        quieten()
        kind = sentence_transformers.CrossEncoder if self._pairs else sentence_transformers.SentenceTransformer
        folder = model_folder(self.model, handler_name=_NAME, revision=self.revision, cache_dir=self.cache_dir)
        if self._pairs and not has_scores(folder):
            raise ModelLoadError(
                f"{_NAME}: {self.model} has no head for scores, and one of random weights means nothing"
            )
        dtype = {} if self.dtype is None else {"dtype": dtype_of(self.dtype, needed_by=_NAME)}
        with loading(self.model, handler_name=_NAME):
            model = kind(
                str(folder),
                device=str(device_of(self.device, needed_by=_NAME)),
                model_kwargs={**self.model_kwargs, **dtype},
                trust_remote_code=self.trust_remote_code,
                local_files_only=True,
            )
        if self.max_seq_length is not None:
            model.max_seq_length = self.max_seq_length
        if self.tokenize_ahead:
            self._require_same_tokens(model)
        settle(model.device)
        return model.eval()

    def weigh(self, batch: Any) -> Any:
        """Return the tokens of each row; its characters, where the model makes its tokens itself."""
        if _is_tokens(batch):
            return np.fromiter(map(len, batch[TOKENS]), dtype=np.int64, count=len(batch[TOKENS]))
        lengths = [[len(text) for text in column] for column in texts_of(batch, pairs=self._pairs)]
        return np.sum(lengths, axis=0, dtype=np.int64)

    def run_inference(self, batch: Any, model: Any) -> NDArray[Any]:  # type: ignore[override]  # takes no arguments
        if not _is_tokens(batch):
            with alone_on_cores():  # tokenizers are no good for two threads
                return self._left_to(model, texts_of(batch, pairs=self._pairs))
        import torch

        with torch.inference_mode(), stream_of_thread(model.device):
            features = model(_features(batch, model))
            return self._scores(features, model) if self._pairs else self._embeddings(features, torch)

    @property
    def _pairs(self) -> bool:
        return self.task == "rerank"

    def _tokens(self) -> SentenceTokens:
        return SentenceTokens(
            self.model,
            revision=self.revision,
            cache_dir=self.cache_dir,
            pairs=self._pairs,
            prompt=self.prompt,
            prompt_name=self.prompt_name,
            max_seq_length=self.max_seq_length,
            trust_remote_code=self.trust_remote_code,
            handler_name=_NAME,
        )

    def _require_same_tokens(self, model: Any) -> None:
        """Raise if the model makes other tokens of a text than `SentenceTokens`, which goes by the model's files."""
        ahead = self._tokens()
        ahead.setup()
        made = ahead([_PROBE] if self._pairs else _PROBE)
        if not _is_tokens(made):
            return
        own = model.preprocess([tuple(_PROBE)] if self._pairs else _PROBE[:1], prompt=ahead.prefix)[TOKENS]
        if own[0].tolist() != made[TOKENS][0].as_py() or model.max_seq_length != ahead.longest:
            raise ModelLoadError(
                f"{_NAME}: {self.model} makes other tokens of a text than its tokenizer and its settings say; pass "
                "tokenize_ahead=False, to leave tokens to the model"
            )

    def _left_to(self, model: Any, columns: Sequence[Sequence[str]]) -> NDArray[Any]:
        """Answer texts by the model's own method, which tokenises them."""
        options = {
            "prompt": self.prompt,
            "prompt_name": self.prompt_name if self.prompt is None else None,
            "batch_size": len(columns[0]),
            "show_progress_bar": False,
        }
        if self._pairs:
            return np.asarray(model.predict(list(zip(*columns, strict=True)), **options))
        vectors = model.encode(
            list(columns[0]),
            normalize_embeddings=self.normalize,
            truncate_dim=self.truncate_dim,
            precision=self.precision,
            **options,
        )
        return np.asarray(vectors)

    def _embeddings(self, features: Mapping[str, Any], torch: Any) -> NDArray[Any]:
        vectors = features["sentence_embedding"][:, : self.truncate_dim].float()
        if self.normalize:
            vectors = torch.nn.functional.normalize(vectors, p=2, dim=1)
        array: NDArray[Any] = vectors.cpu().numpy()
        if self.precision == "float32":
            return array
        from sentence_transformers.util import quantize_embeddings

        precision: Any = self.precision
        return np.asarray(quantize_embeddings(array, precision=precision))

    def _scores(self, features: Mapping[str, Any], model: Any) -> NDArray[Any]:
        scores = model.activation_fn(features["scores"].float())
        if model.num_labels == 1 and scores.ndim > 1:
            scores = scores.squeeze(-1)
        return np.asarray(scores.cpu())


def _is_tokens(batch: Any) -> bool:
    return isinstance(batch, Mapping) and TOKENS in batch


def _features(batch: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """Return tokens as the model's forward pass takes them: padded, with a mask, on its device."""
    tokenizer = model.tokenizer
    padding = {TOKENS: tokenizer.pad_token_id or 0, "token_type_ids": tokenizer.pad_token_type_id}
    features = {}
    for name, rows in batch.items():
        padded, features[MASK] = pad(rows, value=padding.get(name, 0), side=tokenizer.padding_side)
        features[name] = padded.astype(np.int64)
    return tensors_on(model.device, features)
