"""ONNX models, run by ONNX Runtime."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import ModelLoadError, PlanError, suggestion
from headrace.handlers.onnx_file import declared_inputs
from headrace.handlers.packages import require
from headrace.model.buckets import run_in_buckets
from headrace.model.collation import collation_of, in_groups
from headrace.model.files import check_file, file_name, format_of, is_local, local_copy, local_path
from headrace.model.handler import ModelHandler
from headrace.model.slots import Slot, as_arrays, assign, check_width, fit, fixed_rows

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

_DTYPES: dict[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int8)": np.int8,
    "tensor(int16)": np.int16,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8,
    "tensor(uint16)": np.uint16,
    "tensor(uint32)": np.uint32,
    "tensor(uint64)": np.uint64,
    "tensor(bool)": np.bool_,
    "tensor(string)": object,
}

_PREFERRED = ("CUDAExecutionProvider", "ROCMExecutionProvider", "CPUExecutionProvider")


class OnnxModelHandler(ModelHandler[Any]):
    """Runs an ONNX model over named inputs; several outputs become a dict answer by name.

    Columns (or the names of an `inputs=` mapping) that are called like the model's inputs go there; the columns given
    to a model of one input make its matrix. Numbers are cast to what the model wants where their kind allows (float64
    to float32, int64 to int32 within range, integers to floats; never floats to integers). `inference_args` feed
    inputs that are no column, such as a sample rate. A model exported for batches of one size is fed in batches of
    that size. Rows of different lengths or sizes go in with `collate=`: `headrace.PadSequences`, `headrace.FitPictures`
    or a function from batch to batch.

    `providers=None` takes CUDA where it is there, else the CPU; `threads` bounds the threads of one operator;
    `session_options` are attributes of ONNX Runtime's SessionOptions.

    >>> OnnxModelHandler("models/types.onnx").model_id
    'types.onnx'
    """

    input_format = "pyarrow"  # with names, since inputs go by name

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        providers: Sequence[str] | None = None,
        session_options: Mapping[str, Any] | None = None,
        outputs: Sequence[str] | None = None,
        threads: int | None = None,
        collate: Any = None,
        cache_dir: str | None = None,
    ) -> None:
        self.path = str(path)
        self.providers = None if providers is None else tuple(providers)
        self.session_options = dict(session_options or {})
        self.outputs = None if outputs is None else tuple(outputs)
        self.threads = threads
        self.collate = collation_of(collate, needed_by="OnnxModelHandler")
        self.cache_dir = cache_dir

    @property
    def model_id(self) -> str:
        return file_name(self.path)

    def model_files(self) -> Sequence[str]:
        return (self.path,)

    def check(self) -> None:
        require("onnxruntime", package="onnxruntime", extra="onnx", needed_by="OnnxModelHandler")
        check_file(self.path, handler_name="OnnxModelHandler")

    def check_columns(self, columns: Sequence[str]) -> None:
        """Count columns against the shape in the file; a model in a store is seen only when it is loaded."""
        if is_local(self.path):
            self._check_width(declared_inputs(str(local_path(self.path))), columns)

    def preload(self) -> None:
        """Import the framework."""
        importlib.import_module("onnxruntime")

    def load_model(self) -> Any:
        self.check()
        import onnxruntime as ort

        path = local_copy(self.path, self.cache_dir)
        try:
            session = ort.InferenceSession(str(path), self._options(ort), providers=self._providers(ort))
        except (PlanError, MemoryError):
            raise
        except Exception as error:
            kind = format_of(path)
            if kind == "an ONNX model":
                raise ModelLoadError(f"ONNX Runtime cannot load {self.path}: {error}") from error
            raise ModelLoadError(f"{self.path} is not an ONNX model: it seems to be {kind}") from error
        self._check_outputs([output.name for output in session.get_outputs()])
        return session

    def check_model(self, model: Any, columns: Sequence[str]) -> None:
        """Count columns against the shape that the model has."""
        self._check_width(model.get_inputs(), columns)

    def run_inference(self, batch: Any, model: Any, inference_args: Mapping[str, Any] | None = None) -> Any:
        args = inference_args or {}
        if self.collate is None:
            return self._answers(batch, model, args)
        return in_groups(self.collate, as_arrays(batch), lambda part: self._answers(part, model, args))

    @property
    def weighs(self) -> bool:
        return hasattr(self.collate, "lengths")

    def weigh(self, batch: Any) -> Any:
        return self.collate.lengths(as_arrays(batch)) if self.weighs else None

    def _answers(self, batch: Any, model: Any, args: Mapping[str, Any]) -> Any:
        slots = [_slot(one) for one in model.get_inputs()]
        constants = {slot.name: np.asarray(args[slot.name], slot.dtype) for slot in slots if slot.name in args}
        wanted = [slot for slot in slots if slot.name not in args]
        feeds = {slot.name: fit(array, slot) for slot, array in assign(batch, wanted)}
        names = list(self.outputs or [output.name for output in model.get_outputs()])

        def run(part: Mapping[str, NDArray[Any]]) -> Any:
            results = model.run(names, {**part, **constants})
            return results[0] if len(names) == 1 else dict(zip(names, results, strict=True))

        return run_in_buckets(run, feeds, fixed_rows(wanted))

    def _options(self, ort: Any) -> Any:
        options = ort.SessionOptions()
        for name, value in self.session_options.items():
            if not hasattr(options, name):
                raise PlanError(f"OnnxModelHandler: SessionOptions has no {name!r};{suggestion(name, dir(options))}")
            setattr(options, name, value)
        if self.threads is not None:
            options.intra_op_num_threads = self.threads
        return options

    def _providers(self, ort: Any) -> list[str]:
        available = ort.get_available_providers()
        if self.providers is None:
            return [provider for provider in _PREFERRED if provider in available]
        for provider in self.providers:
            if provider not in available:
                raise PlanError(
                    f"OnnxModelHandler: provider {provider!r} is not available;{suggestion(provider, available)} "
                    f"Available here: {', '.join(available)}"
                )
        return list(self.providers)

    def _check_width(self, inputs: Sequence[Any], columns: Sequence[str]) -> None:
        """Look at the only input; of several some may be given by `inference_args`. A collation makes what it likes."""
        if self.collate is None and len(inputs) == 1 and inputs[0].type in _DTYPES:
            check_width([_slot(inputs[0])], columns)

    def _check_outputs(self, available: Sequence[str]) -> None:
        for name in self.outputs or ():
            if name not in available:
                raise ModelLoadError(
                    f"{self.path} has no output {name!r};{suggestion(name, available)} Outputs: {', '.join(available)}"
                )


def _slot(wanted: Any) -> Slot:
    """Describe an input of a session, or of a file."""
    slot = Slot(
        name=wanted.name,
        dtype=np.dtype(_DTYPES.get(wanted.type, object)),
        shape=tuple(wanted.shape) or None,
        type_name=wanted.type,
    )
    if wanted.type not in _DTYPES:
        raise PlanError(f"input {slot} is of a type that Headrace cannot make")
    return slot
