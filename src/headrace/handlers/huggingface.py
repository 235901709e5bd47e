"""Models of Hugging Face's Transformers: any AutoModel with its tokenizer or processor, and pipelines by task."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import PlanError, suggestion
from headrace.handlers.hub import check_model, folder_here, model_files, model_folder, model_name
from headrace.handlers.huggingface_inputs import INPUT_FILES, Processing, by_hand, is_prepared
from headrace.handlers.huggingface_pipeline import HuggingFacePipelineModelHandler as HuggingFacePipelineModelHandler
from headrace.handlers.pretrained import (
    check_at_least_one,
    check_weights,
    load_module,
    loading,
    model_class,
    only_reads,
    quieten,
    read_settings,
    require_transformers,
)
from headrace.handlers.torch_cores import TorchHandler
from headrace.handlers.torch_devices import device_of, settle, stream_of_thread, tensor_on
from headrace.model.collation import Side, pad
from headrace.model.handler import changed

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from numpy.typing import NDArray

_POOLINGS = ("mean", "cls", "max", "last")
_WRITERS = ("LMHeadModel", "ForCausalLM", "ForConditionalGeneration", "ForSeq2SeqLM", "ForSpeechSeq2Seq")
"""How the classes end that write texts."""
_NEW_TOKENS = 20
"""Written where nothing else is said; a length of the whole would depend on the padding of the batch."""
_OF_SEQUENCES = frozenset({"vocab_size", "text_config", "feat_extract_norm"})
"""Settings that models of texts or sounds have."""
_SHAPED = ("pixel_values", "input_values", "input_features")
"""Inputs that are not padded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """A model with what stands in front of it."""

    module: Any
    processing: Processing
    device: Any
    pooling: str


class HuggingFaceModelHandler(TorchHandler[Any]):
    """Runs a model of Transformers with its own tokenizer or processor.

    `model` is a folder, its URL, or an id of the Hub (with `revision=`). `auto_class` ("AutoModelForMaskedLM") is found
    in the model's settings if it is not given. The column of `inputs=` holds texts, pictures (arrays of uint8, or
    bytes) or sounds (arrays of floats); two columns are pairs of texts; a mapping of several names goes to the model's
    processor. They are prepared on CPUs, beside the model, sorted by length and padded to the longest of their batch.

    | the model is for | the answer |
    | --- | --- |
    | nothing in particular (`AutoModel`) | an embedding: `pooling` of the last hidden state |
    | classes of texts, pictures, sounds | `label` and `score`, as the pipeline answers them |
    | writing (`…ForCausalLM`, `…ForConditionalGeneration`) | the text; `inference_args` go to `generate` |
    | all else | its outputs, by name if there are several; a token a row each, without padding |

    `outputs` names other ones ("logits", ["last_hidden_state", "pooler_output"]). `pooling` is "mean", "cls", "max" or
    "last"; by default what the folder says (as sentence-transformers writes it), else "mean"; `normalize=True` makes
    embeddings of length 1. With `inference_fn`, that is called instead, as `inference_fn(tensors, module, device,
    inference_args)`.

    **Texts longer than the model takes are cut** at `max_length` or its own limit, with one warning; with
    `truncation=False` such a row fails and says how many tokens it has.

    Pickled weights are read as tensors alone. Code that a model brings is run only with `trust_remote_code=True`.
    `device="auto"` is CUDA, then MPS, then the CPU; `dtype` ("bfloat16") is that of the weights if it is not given.

    >>> HuggingFaceModelHandler("org/minilm", revision="v2").model_id
    'org/minilm@v2'
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        auto_class: str | None = None,
        tokenizer: str | os.PathLike[str] | None = None,
        revision: str | None = None,
        pooling: str | None = None,
        normalize: bool = False,
        outputs: str | Sequence[str] | None = None,
        max_length: int | None = None,
        truncation: bool = True,
        sampling_rate: int | None = None,
        device: str = "auto",
        dtype: str | None = None,
        model_kwargs: Mapping[str, Any] | None = None,
        tokenizer_kwargs: Mapping[str, Any] | None = None,
        trust_remote_code: bool = False,
        inference_fn: Callable[..., Any] | None = None,
        cache_dir: str | None = None,
    ) -> None:
        self.model, self.revision = str(model), revision
        self.auto_class = auto_class
        self.tokenizer = None if tokenizer is None else str(tokenizer)
        self.pooling, self.normalize = pooling, normalize
        self.outputs = outputs if outputs is None or isinstance(outputs, str) else tuple(outputs)
        self.max_length, self.truncation, self.sampling_rate = max_length, truncation, sampling_rate
        self.device, self.dtype = device, dtype
        self.model_kwargs, self.tokenizer_kwargs = dict(model_kwargs or {}), dict(tokenizer_kwargs or {})
        self.trust_remote_code = trust_remote_code
        self.inference_fn = inference_fn
        self.cache_dir = cache_dir

    @property
    def model_id(self) -> str:
        return model_name(self.model, self.revision)

    def with_model(self, path: str) -> HuggingFaceModelHandler:
        return changed(self, model=path, revision=None)

    def model_files(self) -> Sequence[str]:
        return model_files(
            self.model, handler_name=type(self).__name__, revision=self.revision, cache_dir=self.cache_dir
        )

    @property
    def only_reads(self) -> bool:
        """Not where code is not the library's own, nor where texts are written, which keeps caches."""
        own = self.inference_fn is None and not self.trust_remote_code
        return own and only_reads(folder_here(self.model), self.auto_class, writers=_WRITERS)

    def check(self) -> None:
        name = type(self).__name__
        require_transformers(name)
        if self.pooling is not None and self.pooling not in _POOLINGS:
            raise PlanError(
                f"{name}: there is no pooling {self.pooling!r};{suggestion(self.pooling, _POOLINGS)} "
                f"Poolings: {', '.join(_POOLINGS)}"
            )
        if self.pooling is not None and self.outputs is not None:
            raise PlanError(f"{name}: outputs= names what is answered as it is, and pooling= makes one of it; pass one")
        check_at_least_one(self.max_length, "max_length", handler_name=name)
        check_model(self.model, handler_name=name, revision=self.revision)
        if self.tokenizer is not None:
            check_model(self.tokenizer, handler_name=name, holds=INPUT_FILES)
        folder = folder_here(self.model)
        if folder is not None and not self.model_kwargs:
            check_weights(folder, handler_name=name)

    def preload(self) -> None:
        """Import the framework."""
        importlib.import_module("torch")
        transformers = importlib.import_module("transformers")
        for name in ("PreTrainedModel", "AutoModel", "AutoTokenizer", "AutoProcessor"):  # what is named is imported
            getattr(transformers, name)

    def preparer(self) -> Processing:
        """Return what tokenizes texts and processes pictures and sounds."""
        return Processing(
            model=self.tokenizer or self.model,
            handler_name=type(self).__name__,
            revision=None if self.tokenizer else self.revision,
            max_length=self.max_length,
            truncation=self.truncation,
            sampling_rate=self.sampling_rate,
            options=self.tokenizer_kwargs,
            trust_remote_code=self.trust_remote_code,
            cache_dir=self.cache_dir,
        )

    @property
    def weighs(self) -> bool:
        """Whether rows differ in length, as those of models with a vocabulary or for sounds do, and pictures do not."""
        folder = folder_here(self.model)
        settings = {} if folder is None else read_settings(folder)
        return not settings or bool(_OF_SEQUENCES & set(settings))

    def weigh(self, batch: Any) -> Any:
        """Return the tokens (or samples) of each row; pictures weigh alike."""
        values = next((batch[name] for name in ("input_ids", "input_values") if name in batch), None)
        return np.ones(len(next(iter(batch.values())))) if values is None else [np.size(value) for value in values]

    def load_model(self) -> Any:
        self.check()
        quieten()
        name = type(self).__name__
        folder = model_folder(self.model, handler_name=name, revision=self.revision, cache_dir=self.cache_dir)
        device = device_of(self.device, needed_by=name)
        with loading(self.model, handler_name=name):
            class_ = model_class(folder, auto_class=self.auto_class)
        module = load_module(
            class_,
            folder,
            name=self.model,
            handler_name=name,
            dtype=self.dtype,
            options=self.model_kwargs,
            trust_remote_code=self.trust_remote_code,
            spare=() if "pooler_output" in (self.outputs or ()) else ("pooler",),
        )
        if _is_base(module) and self.outputs is None and module.config.is_encoder_decoder:
            module = module.get_encoder()
        processing = self.preparer()
        processing.setup()
        pooling = self.pooling or pooling_of(read_settings(folder / "1_Pooling"))
        if "device_map" not in self.model_kwargs:
            module = module.to(device)
        settle(module.device)
        return _Loaded(module=module, processing=processing, device=module.device, pooling=pooling)

    def run_inference(self, batch: Any, model: Any, inference_args: Mapping[str, Any] | None = None) -> Any:
        import torch

        inputs = batch if is_prepared(batch) else by_hand(model.processing(batch))
        with torch.inference_mode(), stream_of_thread(model.device):
            parts = [
                (rows, self._answer(part, model, dict(inference_args or {}))) for rows, part in _of_one_shape(inputs)
            ]
        return parts[0][1] if len(parts) == 1 else _in_order(parts)

    def _answer(self, inputs: Mapping[str, Any], model: _Loaded, args: dict[str, Any]) -> Any:
        """Answer rows whose pictures or sounds are of one shape; texts may be of any length."""
        module, kind = model.module, type(model.module).__name__
        writes = self.outputs is None and kind.endswith(_WRITERS) and module.can_generate()
        arrays = _padded(inputs, model, left=writes and not module.config.is_encoder_decoder)
        mask = arrays.get("attention_mask") if "input_ids" in arrays else None
        tensors = _tensors(arrays, module, model.device)
        if self.inference_fn is not None:
            return self.inference_fn(tensors, module, model.device, args)
        if writes:
            return _written(tensors, model, args)
        found = module(**tensors, **args)
        if self.outputs is not None:
            return _named(found, self.outputs, mask)
        if "Classification" in kind and "TokenClassification" not in kind:
            return _labelled(found.logits, module.config)
        if "last_hidden_state" in found and _is_base(module):
            return self._embedded(found.last_hidden_state, mask, model.pooling)
        named = {name: value for name, value in found.items() if hasattr(value, "shape")}
        return _named(found, tuple(named) if len(named) > 1 else next(iter(named)), mask)

    def _embedded(self, hidden: Any, mask: Any, pooling: str) -> Any:
        import torch

        if hidden.ndim == 4:  # (n, channels, height, width) of convolutions
            hidden = hidden.flatten(2).transpose(1, 2)
        ones = torch.ones(hidden.shape[:2], device=hidden.device, dtype=hidden.dtype)
        weights = ones if mask is None else torch.as_tensor(mask).to(ones)
        pooled = pool(hidden, weights, pooling)
        return torch.nn.functional.normalize(pooled, dim=-1) if self.normalize else pooled


def pool(hidden: Any, weights: Any, pooling: str) -> Any:
    """Pool hidden states (rows, tokens, width) over the tokens whose weight is 1 and not 0."""
    if pooling == "mean":
        total = weights.sum(dim=1, keepdim=True).clamp(min=1e-9)
        return (hidden * weights.unsqueeze(-1)).sum(dim=1) / total
    if pooling == "max":
        return hidden.masked_fill(weights.unsqueeze(-1) == 0, float("-inf")).amax(dim=1)
    first = weights.argmax(dim=1)
    places = first if pooling == "cls" else first + weights.sum(dim=1).long() - 1
    return hidden[range(len(hidden)), places]


def pooling_of(settings: Mapping[str, Any]) -> str:
    """Return the pooling that sentence-transformers has written beside a model, else "mean".

    >>> pooling_of({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}), pooling_of({})
    ('cls', 'mean')
    """
    old = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "last": "lasttoken"}
    chosen = [name for name, key in old.items() if settings.get(f"pooling_mode_{key}")]
    named = settings.get("pooling_mode")
    return named if named in _POOLINGS else next(iter(chosen), "mean")


def _is_base(module: Any) -> bool:
    """Say whether a model has no head of its own."""
    return "For" not in type(module).__name__ and "LMHead" not in type(module).__name__


def _of_one_shape(inputs: Mapping[str, Any]) -> list[tuple[Sequence[int], Mapping[str, Any]]]:
    """Part rows whose pictures or sounds differ in shape, since padding would change the answers."""
    shaped = [name for name in inputs if name in _SHAPED]
    groups: dict[Any, list[int]] = {}
    for row, values in enumerate(zip(*(inputs[name] for name in shaped), strict=True)):
        groups.setdefault(tuple(np.shape(value) for value in values), []).append(row)
    if len(groups) < 2:
        return [((), inputs)]
    return [
        (rows, {name: [values[row] for row in rows] for name, values in inputs.items()}) for rows in groups.values()
    ]


def _in_order(parts: Sequence[tuple[Sequence[int], Any]]) -> Any:
    """Put the answers of parts in the order of their rows."""
    if isinstance(parts[0][1], Mapping):
        return {name: _in_order([(rows, answers[name]) for rows, answers in parts]) for name in parts[0][1]}
    found = {row: answer for rows, answers in parts for row, answer in zip(rows, answers, strict=True)}
    return [found[row] for row in range(len(found))]


def _padded(inputs: Mapping[str, Any], model: _Loaded, *, left: bool) -> dict[str, Any]:
    """Return arrays of one length a name, with the mask of what is no padding."""
    if "input_ids" not in inputs:
        return {name: np.stack(list(values)) for name, values in inputs.items()}
    tokenizer = model.processing.tokenizer
    fill = {"input_ids": _padding_token(tokenizer), "token_type_ids": getattr(tokenizer, "pad_token_type_id", 0)}
    side: Side = "left" if left or tokenizer.padding_side == "left" else "right"
    arrays: dict[str, Any] = {}
    for name, values in inputs.items():
        if name in _SHAPED:
            arrays[name] = np.stack(list(values))
            continue
        arrays[name], mask = pad(list(values), value=fill.get(name, 0), side=side)
        if name == "input_ids":
            arrays.setdefault("attention_mask", mask)
    return arrays


def _padding_token(tokenizer: Any) -> int:
    """Models that write seldom have a token for padding; it is masked, so that any will do."""
    return next((token for token in (tokenizer.pad_token_id, tokenizer.eos_token_id) if token is not None), 0)


def _tensors(arrays: Mapping[str, NDArray[Any]], module: Any, device: Any) -> dict[str, Any]:
    """Return what the model takes of the arrays: floats in its own dtype, whole numbers of 64 bits."""
    import torch

    takes = inspect.signature(module.forward).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    tensors = {}
    for name, array in arrays.items():
        if name in takes or (open_ended and name != "token_type_ids"):
            tensors[name] = tensor_on(device, array, module.dtype if array.dtype.kind == "f" else torch.int64)
    return tensors


def _written(tensors: Mapping[str, Any], model: _Loaded, args: dict[str, Any]) -> list[str]:
    module, settings = model.module, model.module.generation_config
    answers = module.config.is_encoder_decoder  # others go on behind what they were given
    told = settings.max_new_tokens or (answers and settings.max_length not in (None, 20))
    if not told and not {"max_new_tokens", "max_length", "generation_config"} & set(args):
        args["max_new_tokens"] = _NEW_TOKENS
    tokens = module.generate(**tensors, **args)
    if not answers:
        tokens = tokens[:, tensors["input_ids"].shape[1] :]
    texts: list[str] = model.processing.tokenizer.batch_decode(tokens, skip_special_tokens=True)
    return texts


def _labelled(logits: Any, config: Any) -> dict[str, Any]:
    """Return the best class of each row and its score."""
    logits = logits.float()
    if config.problem_type == "multi_label_classification" or config.num_labels == 1:
        scores = logits if config.problem_type == "regression" else logits.sigmoid()
    else:
        scores = logits if config.problem_type == "regression" else logits.softmax(dim=-1)
    best, places = scores.max(dim=-1)
    return {"label": [config.id2label[place] for place in places.tolist()], "score": best.cpu().numpy()}


def _named(found: Any, outputs: str | Sequence[str], mask: NDArray[Any] | None) -> Any:
    """Return some of a model's outputs; those of tokens without the padding."""
    if not isinstance(outputs, str):
        return {name: _named(found, name, mask) for name in outputs}
    if outputs not in found:
        raise PlanError(
            f"{type(found).__name__} has no {outputs!r};{suggestion(outputs, found)} It has {', '.join(found)}"
        )
    value = found[outputs]
    of_tokens = value.ndim > 2 or outputs in ("start_logits", "end_logits")
    if mask is not None and of_tokens and value.shape[1] == mask.shape[1]:
        array = value.float().cpu().numpy()
        return [row[kept] for row, kept in zip(array, mask.astype(bool), strict=True)]
    return value
