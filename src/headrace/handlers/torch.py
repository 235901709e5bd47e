"""PyTorch models: state dicts, safetensors, TorchScript, torch.export programs, and modules in memory."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import ModelLoadError, PlanError
from headrace.handlers.packages import require
from headrace.handlers.torch_cores import TorchHandler
from headrace.handlers.torch_devices import device_of, dtype_of, settle, stream_of_thread, tensor_on
from headrace.model.collation import collation_of, in_groups
from headrace.model.files import check_file, file_name, format_of, is_local, local_copy
from headrace.model.handler import changed
from headrace.model.uneven import why_uneven

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_SOURCES = ("state_dict_path", "safetensors_path", "torchscript_path", "exported_path", "model")
_FORMATS = {
    "state_dict_path": "a file of torch.save (a state dict)",
    "safetensors_path": "a safetensors file",
    "torchscript_path": "a TorchScript file",
    "exported_path": "a torch.export program",
}


class TorchModelHandler(TorchHandler[Any]):
    """Runs a PyTorch module in inference mode.

    Give one of: `model_class` (with `model_params`) and `state_dict_path` or `safetensors_path`; `torchscript_path`;
    `exported_path` (torch.export, .pt2); `model`, a module in memory. State dicts are read with `weights_only=True`;
    TorchScript and exported programs carry code and are taken from local paths only, unless `trust_remote_code=True`.

    The module is called with one tensor, or with keyword tensors where `inputs=` is a mapping; `inference_args` are
    further keywords. Floats are cast to the module's own dtype, integers stay (`input_dtype` casts all). With
    `inference_fn`, that is called instead, as `inference_fn(batch, model, device, inference_args)`, with rows and texts
    passed as they are. Several outputs (a tuple) become a dict answer with keys "output_0", "output_1", …

    Rows of different lengths or sizes go in with `collate=`: `headrace.PadSequences`, `headrace.FitPictures` or a
    function from batch to batch. `device="auto"` is CUDA, then MPS, then the CPU; `dtype` casts the module;
    `compile=True` is `torch.compile`.

    >>> TorchModelHandler(torchscript_path="models/net.pt").model_id
    'net.pt'
    """

    def __init__(
        self,
        model_class: Callable[..., Any] | None = None,
        *,
        model_params: Mapping[str, Any] | None = None,
        state_dict_path: str | None = None,
        safetensors_path: str | None = None,
        torchscript_path: str | None = None,
        exported_path: str | None = None,
        model: Any = None,
        device: str = "auto",
        dtype: str | None = None,
        input_dtype: str | None = None,
        compile: bool = False,
        inference_fn: Callable[..., Any] | None = None,
        collate: Any = None,
        trust_remote_code: bool = False,
        cache_dir: str | None = None,
    ) -> None:
        self.model_class, self.model_params, self.model = model_class, dict(model_params or {}), model
        self.paths = {
            name: str(path)
            for name, path in zip(
                _SOURCES, (state_dict_path, safetensors_path, torchscript_path, exported_path), strict=False
            )
            if path is not None
        }
        self.device, self.dtype, self.input_dtype, self.compile = device, dtype, input_dtype, compile
        self.inference_fn = inference_fn
        self.collate = collation_of(collate, needed_by="TorchModelHandler")
        self.trust_remote_code, self.cache_dir = trust_remote_code, cache_dir

    @property
    def model_id(self) -> str:
        for path in self.paths.values():
            return file_name(path)
        return type(self.model).__name__

    def model_files(self) -> Sequence[str]:
        return tuple(self.paths.values())

    def with_model(self, path: str) -> TorchModelHandler:
        if len(self.paths) != 1:
            raise PlanError(
                "TorchModelHandler can change a model while a run goes on where it was given one path to it"
            )
        return changed(self, paths=dict.fromkeys(self.paths, path))

    def check(self) -> None:
        require("torch", package="torch", extra="torch", needed_by="TorchModelHandler")
        given = [*self.paths, *(["model"] if self.model is not None else [])]
        if len(given) != 1:
            said = f"and was given {' and '.join(given)}" if given else "and was given none"
            raise PlanError(f"TorchModelHandler takes exactly one of {', '.join(_SOURCES)}, {said}")
        needs_class = given[0] in ("state_dict_path", "safetensors_path")
        if needs_class != (self.model_class is not None):
            advice = "pass the module's class as model_class=" if needs_class else "leave model_class= out"
            raise PlanError(
                f"TorchModelHandler: {given[0]} {'holds weights only' if needs_class else 'is whole'}; {advice}"
            )
        self._check_kinds()
        if given[0] == "safetensors_path":
            require(
                "safetensors", package="safetensors", extra="torch", needed_by="TorchModelHandler(safetensors_path=)"
            )
        for name, path in self.paths.items():
            if name in ("torchscript_path", "exported_path") and not is_local(path) and not self.trust_remote_code:
                raise PlanError(
                    f"TorchModelHandler: {path} carries code of whoever wrote it; copy it to a local path, or pass "
                    "trust_remote_code=True"
                )
            check_file(path, handler_name="TorchModelHandler")

    def _check_kinds(self) -> None:
        """Refuse a path for a module and a module for its class, both easily mixed up."""
        if self.model is not None and not hasattr(self.model, "state_dict"):
            advice = "; for a file pass one of the paths" if isinstance(self.model, str) else ""
            raise PlanError(f"TorchModelHandler: model= takes a module, not {type(self.model).__name__}{advice}")
        if hasattr(self.model_class, "state_dict") and not isinstance(self.model_class, type):
            name = type(self.model_class).__name__
            raise PlanError(f"TorchModelHandler: model_class= takes the class {name} itself, not a module made of it")

    def preload(self) -> None:
        """Import the framework."""
        importlib.import_module("torch")

    def load_model(self) -> Any:
        self.check()
        import torch

        device = device_of(self.device, needed_by="TorchModelHandler")
        module = self.model if not self.paths else self._load(torch, device)
        module = module.to(device) if "exported_path" not in self.paths else module
        if self.dtype is not None:
            module = module.to(dtype_of(self.dtype, needed_by="TorchModelHandler"))
        if "exported_path" not in self.paths:  # an exported program is in evaluation mode, and refuses eval()
            module.eval()
        settle(device)
        return torch.compile(module) if self.compile else module

    def run_inference(self, batch: Any, model: Any, inference_args: Mapping[str, Any] | None = None) -> Any:
        import torch

        device = device_of(self.device, needed_by="TorchModelHandler")
        args = dict(inference_args or {})
        with torch.inference_mode(), stream_of_thread(device):
            return in_groups(self.collate, batch, lambda part: self._answers(part, model, torch, device, args))

    @property
    def weighs(self) -> bool:
        return hasattr(self.collate, "lengths")

    def weigh(self, batch: Any) -> Any:
        return self.collate.lengths(batch) if self.weighs else None

    def _load(self, torch: Any, device: Any) -> Any:
        ((source, url),) = self.paths.items()
        path = local_copy(url, self.cache_dir)
        kind = format_of(path)
        if kind != _FORMATS[source] and kind in _FORMATS.values():  # PyTorch would go about it with warnings
            raise ModelLoadError(_other_kind(url, source, kind))
        try:
            if source == "torchscript_path":
                return torch.jit.load(str(path), map_location=device)
            if source == "exported_path":
                return _load_exported(torch, path, device)
            assert self.model_class is not None
            module = self.model_class(**self.model_params)
            module.load_state_dict(_load_weights(torch, path, source))
        except (ModelLoadError, MemoryError):
            raise
        except Exception as error:
            if kind != _FORMATS[source]:
                raise ModelLoadError(_other_kind(url, source, kind)) from error
            raise ModelLoadError(f"cannot load {url}: {type(error).__name__}: {error}") from error
        return module

    def _answers(self, batch: Any, model: Any, torch: Any, device: Any, args: Mapping[str, Any]) -> Any:
        if self.inference_fn is not None:
            return self.inference_fn(self._tensors(batch, model, torch, device, strict=False), model, device, args)
        tensors = self._tensors(batch, model, torch, device, strict=True)
        answers = model(**tensors, **args) if isinstance(tensors, dict) else model(tensors, **args)
        if isinstance(answers, tuple):
            return {f"output_{i}": answer for i, answer in enumerate(answers)}
        return answers

    def _tensors(self, batch: Any, model: Any, torch: Any, device: Any, *, strict: bool) -> Any:
        """Return arrays as tensors on the device; what cannot be one is refused if `strict`, else passed as it is."""
        if isinstance(batch, dict):
            return {name: self._tensors(part, model, torch, device, strict=strict) for name, part in batch.items()}
        if isinstance(batch, np.ndarray) and batch.dtype.kind in "biuf":
            return tensor_on(device, batch, self._dtype_for(batch, model, torch))
        if isinstance(batch, torch.Tensor):
            return batch.to(device)
        if not strict:
            return batch
        if isinstance(batch, list):
            raise PlanError(
                "a PyTorch module takes tensors, not rows: name the columns with inputs=, or pass inference_fn="
            )
        first = next((value for value in batch if value is not None), None)
        if first is None or isinstance(
            first, (np.ndarray, list)
        ):  # rows fail: PlanError would end the run over one null
            raise ValueError(f"a PyTorch module was given {why_uneven(list(batch))}")
        raise PlanError(f"a PyTorch module takes numbers, not {type(first).__name__}: pass inference_fn=")

    def _dtype_for(self, array: NDArray[Any], model: Any, torch: Any) -> Any:
        if self.input_dtype is not None:
            return dtype_of(self.input_dtype, needed_by="TorchModelHandler")
        return _own_dtype(torch, model) if array.dtype.kind == "f" else None


def _other_kind(url: str, source: str, kind: str) -> str:
    others = {known: name for name, known in _FORMATS.items()}
    if kind not in others:
        return f"{url} is not {_FORMATS[source]}: it seems to be {kind}"
    with_class = " with model_class=, in Python" if kind == _FORMATS["state_dict_path"] else ""
    return f"{url} is not {_FORMATS[source]}: it seems to be {kind}; pass it as {others[kind]}={with_class}"


def _load_weights(torch: Any, path: Path, source: str) -> Mapping[str, Any]:
    if source == "safetensors_path":
        from safetensors.torch import load_file

        weights: Mapping[str, Any] = load_file(str(path))
        return weights
    try:
        loaded = torch.load(str(path), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "Unsupported global" not in str(error):
            raise
        raise ModelLoadError(
            f"{path} holds Python objects, as torch.save(model) writes them, rather than weights alone, and loading "
            f"it could run code of whoever wrote it. Save model.state_dict() instead; or, if you trust the file, pass "
            f"model=torch.load({str(path)!r}, weights_only=False)"
        ) from error
    for key in ("state_dict", "model_state_dict"):  # a training checkpoint
        if isinstance(loaded, Mapping) and isinstance(loaded.get(key), Mapping):
            loaded = loaded[key]
    if not isinstance(loaded, Mapping):
        raise ModelLoadError(f"{path} holds a {type(loaded).__name__}, not a state dict; save model.state_dict()")
    return loaded


def _load_exported(torch: Any, path: Path, device: Any) -> Any:
    program = torch.export.load(str(path))
    if device.type != "cpu":
        from torch.export.passes import move_to_device_pass

        program = move_to_device_pass(program, str(device))
    return program.module()


def _own_dtype(torch: Any, model: Any) -> Any:
    parameters = (p.dtype for p in model.parameters() if p.is_floating_point())
    return next(parameters, torch.float32)
