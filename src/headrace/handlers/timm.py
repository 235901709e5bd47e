"""Picture models of timm (PyTorch Image Models)."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import HeadraceError, ModelLoadError, PlanError, RowError, suggestion
from headrace.handlers.hub import check_model, model_folder, model_name
from headrace.handlers.importing import TORCHVISION
from headrace.handlers.packages import require
from headrace.handlers.pictures import to_picture
from headrace.handlers.torch_cores import TorchHandler
from headrace.handlers.torch_devices import device_of, dtype_of, settle, stream_of_thread, tensor_on
from headrace.model.files import check_file, file_name, format_of, is_local, local_copy, local_path
from headrace.model.handler import changed
from headrace.model.loading import importing

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAME = "TimmModelHandler"
_OUTPUTS = ("logits", "probabilities", "labels", "embeddings", "features")
_MODES = {1: "L", 3: "RGB"}
"""Of pictures, by the channels that a model takes."""
PIXELS = "pixel_values"
"""Prepared pictures: uint8, (channels, height, width)."""


class TimmModelHandler(TorchHandler["TimmModel"]):
    """Runs a picture model of timm over arrays, as `read_images` gives them, or over encoded pictures.

    `model` is a name of timm ("resnet50.a1_in1k"), or a folder, its URL or an id on the Hugging Face Hub with timm's
    `config.json` and weights. A name stands for its published weights, got from the Hub once, unless `checkpoint_path`
    names a file of weights (safetensors, or of torch.save: read with `weights_only=True`); `pretrained=False` without
    one leaves the weights at random. `num_classes` is the number of classes of the checkpoint; `model_kwargs` go to
    `timm.create_model`.

    `output` says what a row is answered with:

    | `output`        | answer                                                                                    |
    | --------------- | ----------------------------------------------------------------------------------------- |
    | "logits"        | array of (classes,)                                                                       |
    | "probabilities" | the same after softmax                                                                    |
    | "labels"        | `{"label", "score"}` of the most probable class; with `top_k` lists of the k most probable |
    | "embeddings"    | array of (width,): what goes into the classifier                                          |
    | "features"      | what the model's `forward_features` gives, not pooled                                     |

    Labels are those of `class_names`: a list, a text file with one a line, or "imagenet-1k" (or another of timm's
    ImageNets); without it those of the folder's `config.json`, else numbers of classes.

    Pictures of all modes and sizes are resized, cropped and normalised as timm's own data configuration of the model
    says, on CPUs beside the model; `input_size` (a number of pixels, or (channels, height, width)), `mean`, `std`,
    `interpolation`, `crop_pct` and `crop_mode` override it. They travel in 8 bits and are normalised on the model's
    device. Values are those of timm used directly. The column is `image` where `inputs=` says nothing.

    >>> TimmModelHandler("resnet18", checkpoint_path="models/flowers.safetensors", num_classes=5).model_id
    'flowers.safetensors'

    Raises:
        PlanError: `output` is none of those, or `top_k` does not go with it.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        checkpoint_path: str | os.PathLike[str] | None = None,
        pretrained: bool = True,
        num_classes: int | None = None,
        output: str = "logits",
        top_k: int | None = None,
        class_names: Sequence[str] | str | None = None,
        input_size: int | Sequence[int] | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        interpolation: str | None = None,
        crop_pct: float | None = None,
        crop_mode: str | None = None,
        model_kwargs: Mapping[str, Any] | None = None,
        device: str = "auto",
        dtype: str | None = None,
        revision: str | None = None,
        cache_dir: str | None = None,
    ) -> None:
        if output not in _OUTPUTS:
            raise PlanError(f"{_NAME}: output is {output!r};{suggestion(output, _OUTPUTS)} It is one of {_OUTPUTS}")
        if top_k is not None and (output != "labels" or top_k < 1):
            raise PlanError(f"{_NAME}: top_k={top_k} is a number of labels, at least 1, and goes with output='labels'")
        self.model = os.fspath(model).removeprefix("hf-hub:").removeprefix("local-dir:")
        self.checkpoint_path = None if checkpoint_path is None else os.fspath(checkpoint_path)
        self.pretrained = pretrained and checkpoint_path is None
        self.num_classes, self.output, self.top_k = num_classes, output, top_k
        self.class_names = class_names if class_names is None or isinstance(class_names, str) else tuple(class_names)
        self.model_kwargs = dict(model_kwargs or {})
        self.settings = _data_settings(
            input_size, self.model_kwargs, mean=mean, std=std, interpolation=interpolation,
            crop_pct=crop_pct, crop_mode=crop_mode,
        )  # fmt: skip
        self.device, self.dtype = device, dtype
        self.revision, self.cache_dir = revision, cache_dir

    @property
    def model_id(self) -> str:
        if self.checkpoint_path is not None:
            return file_name(self.checkpoint_path)
        return self.model if self._is_name else model_name(self.model, self.revision)

    def model_files(self) -> Sequence[str]:
        folder = None if self._is_name or not Path(local_path(self.model)).exists() else self.model
        return tuple(path for path in (self.checkpoint_path, folder, self._names_file) if path is not None)

    def with_model(self, path: str) -> TimmModelHandler:
        if self.checkpoint_path is not None:
            return changed(self, checkpoint_path=path)
        return changed(self, model=path, revision=None)

    @property
    def only_reads(self) -> bool:
        return True

    def default_inputs(self) -> str:
        return "image"

    def check(self) -> None:
        require("timm", package="timm", extra="timm", needed_by=_NAME)
        require("PIL", package="pillow", extra="timm", needed_by=_NAME)
        if not self._is_name:
            check_model(self.model, handler_name=_NAME, revision=self.revision)
        for path in (self.checkpoint_path, self._names_file):
            if path is not None:
                check_file(path, handler_name=_NAME)

    def preload(self) -> None:
        """Import the framework."""
        _imported()

    def preparer(self) -> Pictures:
        """Return what makes pictures ready: decoded, resized and cropped."""
        return Pictures(self)

    def load_model(self) -> TimmModel:
        self.check()
        timm, source = _imported(), self.source()
        module = self._module(timm, source)
        device = device_of(self.device, needed_by=_NAME)
        module = module.to(device, None if self.dtype is None else dtype_of(self.dtype, needed_by=_NAME)).eval()
        labels = self._labels(timm, source)
        if labels is not None and self.output == "labels" and len(labels) != module.num_classes:
            raise ModelLoadError(
                f"{_NAME}: {len(labels):,} class names for a model of {module.num_classes:,} classes; give one for each"
            )
        mean, std = (tensor_on(device, np.float32(source.data[name]).reshape(-1, 1, 1)) for name in ("mean", "std"))
        settle(device)
        return TimmModel(module, device, mean, std, None if labels is None else np.array(labels, dtype=object))

    def run_inference(self, batch: Any, model: TimmModel, inference_args: Mapping[str, Any] | None = None) -> Any:
        pixels = batch[PIXELS] if isinstance(batch, Mapping) else self._prepared(batch)
        import torch

        with torch.inference_mode(), stream_of_thread(model.device):
            found = self._found(model, model.inputs(pixels))
            if self.output != "labels":
                return found.float().cpu().numpy()
            scores, classes = found.topk(min(self.top_k or 1, found.shape[-1]), dim=-1)
            columns = {"label": model.labels_of(classes.cpu().numpy()), "score": scores.cpu().numpy()}
        return columns if self.top_k is not None else {name: column[:, 0] for name, column in columns.items()}

    def source(self) -> Source:
        """Find the model's configuration, and where its weights are; downloads them where they are on the Hub.

        Raises:
            ModelLoadError: there is no such model, or it cannot be had.
        """
        timm = _imported()
        name, folder = self.model, None
        if not self._is_name:
            folder = model_folder(self.model, handler_name=_NAME, revision=self.revision, cache_dir=self.cache_dir)
        else:
            config = _registered(timm, name)
            if self.pretrained and config.get("hf_hub_id"):
                hub_id, _, revision = config["hf_hub_id"].partition("@")
                folder = model_folder(hub_id, handler_name=f"{_NAME}({name!r})", revision=revision or None)
        labels = None
        if folder is not None:
            name = f"local-dir:{folder}"
            config, labels = _configured(folder)
        data = timm.data.resolve_data_config(self.settings, pretrained_cfg=config)
        return Source(name, _fitted(data, self.settings.get("in_chans")), labels)

    @property
    def _is_name(self) -> bool:
        """Whether the model is one of timm's own list rather than a folder or an id."""
        return "/" not in self.model and is_local(self.model)

    @property
    def _names_file(self) -> str | None:
        names = self.class_names
        return names if isinstance(names, str) and not names.startswith("imagenet-") else None

    def _module(self, timm: Any, source: Source) -> Any:
        try:
            module = timm.create_model(
                source.name, pretrained=self.pretrained, num_classes=self.num_classes, **self.model_kwargs
            )
            if self.checkpoint_path is not None:
                _load_checkpoint(timm, module, self.checkpoint_path, self.cache_dir)
        except (HeadraceError, MemoryError):
            raise
        except Exception as error:
            what = self.checkpoint_path or self.model
            advice = "; pass the num_classes= that it was trained for" if "size mismatch" in str(error) else ""
            raise ModelLoadError(f"{_NAME} cannot load {what}: {type(error).__name__}: {error}{advice}") from error
        return module

    def _labels(self, timm: Any, source: Source) -> Sequence[str] | None:
        names = self.class_names
        if names is None:
            return source.labels
        if not isinstance(names, str):
            return names
        if self._names_file is not None:
            return local_copy(names, self.cache_dir).read_text(encoding="utf-8").splitlines()
        try:
            labels: Sequence[str] = timm.data.ImageNetInfo(names).label_descriptions()
        except AssertionError as error:
            raise ModelLoadError(f"{_NAME}: class_names={names!r}: {error}") from None
        return labels

    def _prepared(self, batch: Any) -> NDArray[np.uint8]:
        pictures = self.preparer()
        pictures.setup()
        made = pictures(batch)[PIXELS]
        for row in made:
            if isinstance(row, RowError):
                raise row
        return np.stack(made)

    def _found(self, model: TimmModel, pixels: Any) -> Any:
        if self.output == "features":
            return model.module.forward_features(pixels)
        if self.output == "embeddings":
            return model.module.forward_head(model.module.forward_features(pixels), pre_logits=True)
        logits = model.module(pixels)
        return logits if self.output == "logits" else logits.float().softmax(dim=-1)


class Pictures:
    """Makes pictures ready for a model: a preparer (`ModelHandler.preparer`)."""

    native = True

    def __init__(self, handler: TimmModelHandler) -> None:
        self._handler = handler
        self._transform: Any = None
        self._mode = "RGB"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_transform": None}

    def setup(self) -> None:
        """Make timm's own transform for evaluation; what it does in floats is left to the model's device."""
        data = self._handler.source().data
        self._transform = _imported().data.create_transform(**data, is_training=False, normalize=False)
        self._mode = _MODES[data["input_size"][0]]

    def __call__(self, pictures: Any) -> dict[str, list[Any]]:
        """Return `pixel_values` of (channels, height, width) for each picture, or why there are none."""
        return {PIXELS: [self._ready(picture) for picture in pictures]}

    def _ready(self, picture: Any) -> NDArray[np.uint8] | RowError:
        try:
            ready: NDArray[np.uint8] = self._transform(to_picture(picture, mode=self._mode)).contiguous().numpy()
        except ValueError as error:
            return RowError(str(error))
        return ready


@dataclass(frozen=True, slots=True)
class Source:
    """What is known of a model before it is loaded."""

    name: str
    """As `timm.create_model` takes it."""
    data: Mapping[str, Any]
    """timm's data configuration."""
    labels: Sequence[str] | None


@dataclass(frozen=True, slots=True)
class TimmModel:
    """A loaded model with what its inputs and answers need."""

    module: Any
    device: Any
    mean: Any
    std: Any
    labels: NDArray[Any] | None

    def inputs(self, pixels: NDArray[np.uint8]) -> Any:
        """Return pictures of 8 bits as the model takes them, step by step as torchvision computes it."""
        floats = tensor_on(self.device, pixels).float().div_(255)
        return floats.sub_(self.mean).div_(self.std).to(next(self.module.parameters()).dtype)

    def labels_of(self, classes: NDArray[np.int64]) -> NDArray[Any]:
        """Return the names of classes; their numbers where they have none."""
        return classes if self.labels is None else self.labels[classes]


def _imported() -> Any:
    """Import timm, which imports torchvision, and that fails in its own way beside another build of PyTorch."""
    try:
        with importing():
            timm = importlib.import_module("timm")
            importlib.import_module("timm.data")
    except (ImportError, RuntimeError, OSError) as error:
        raise ModelLoadError(
            f"{_NAME}: timm cannot be imported ({type(error).__name__}: {error}); if torchvision is to blame, "
            f"{TORCHVISION}"
        ) from error
    return timm


def _data_settings(
    input_size: int | Sequence[int] | None, model_kwargs: Mapping[str, Any], **overrides: Any
) -> dict[str, Any]:
    """Return what overrides the model's data configuration, as `timm.data.resolve_data_config` takes it."""
    sizes: dict[str, Any] = {name: model_kwargs[name] for name in ("in_chans", "img_size") if name in model_kwargs}
    if isinstance(input_size, int):
        sizes["img_size"] = input_size
    elif input_size is not None:
        sizes["input_size"] = tuple(input_size)
    return {**sizes, **{name: value for name, value in overrides.items() if value is not None}}


def _fitted(data: Mapping[str, Any], channels: int | None) -> Mapping[str, Any]:
    """Return a data configuration for so many channels; None: for its own."""
    channels = channels or data["input_size"][0]
    if channels not in _MODES:
        raise PlanError(f"{_NAME}: the model takes {channels} channels; pictures have 1 (grey) or 3")
    for name in ("mean", "std"):
        if len(data[name]) != channels:
            raise PlanError(f"{_NAME}: {name} has {len(data[name])} values for {channels} channels; pass {name}=")
    return {**data, "input_size": (channels, *data["input_size"][1:])}


def _registered(timm: Any, name: str) -> Mapping[str, Any]:
    """Return the configuration of one of timm's own models."""
    if not timm.is_model(name):
        raise ModelLoadError(
            f"{_NAME}: timm {timm.__version__} has no model {name!r};{suggestion(name, timm.list_models())} See "
            "timm.list_models(); a folder is named with a slash, such as './model'"
        )
    try:
        config: Mapping[str, Any] = timm.get_pretrained_cfg(name).to_dict()
    except RuntimeError as error:
        tags = timm.list_models(f"{name.partition('.')[0]}.*", pretrained=True)
        raise ModelLoadError(f"{_NAME}: {error} Published weights: {', '.join(tags) or 'none'}") from None
    return config


def _configured(folder: Path) -> tuple[Mapping[str, Any], Sequence[str] | None]:
    """Read the data configuration and the labels of a folder in the format of timm's own."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config["architecture"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ModelLoadError(f"{_NAME}: {folder / 'config.json'} is no configuration of a timm model") from None
    data = {**config, **config.get("pretrained_cfg", {})}
    return data, data.get("label_names") or data.get("labels")


def _load_checkpoint(timm: Any, module: Any, url: str, cache_dir: str | None) -> None:
    path = local_copy(url, cache_dir)
    kind = format_of(path)
    try:
        timm.models.load_checkpoint(module, str(path))
    except MemoryError:
        raise
    except Exception as error:
        if "weights_only" in str(error):
            raise ModelLoadError(
                f"{url} holds Python objects rather than weights alone, and loading it could run code of whoever wrote "
                "it; save model.state_dict() instead"
            ) from error
        if kind not in ("a safetensors file", "a file of torch.save (a state dict)"):
            raise ModelLoadError(f"{url} is no file of weights: it seems to be {kind}") from error
        raise
