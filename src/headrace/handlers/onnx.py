"""ONNX models, run by ONNX Runtime."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.errors import ModelLoadError, PlanError, suggestion
from headrace.handlers.packages import require
from headrace.model.collation import collation_of, in_groups
from headrace.model.files import check_file, file_name, format_of, local_copy
from headrace.model.handler import ModelHandler
from headrace.model.inputs import column_array, matrix

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

    def run_inference(self, batch: Any, model: Any, inference_args: Mapping[str, Any] | None = None) -> Any:
        args = inference_args or {}
        if self.collate is None:
            return self._answers(batch, model, args)
        return in_groups(self.collate, _arrays(batch), lambda part: self._answers(part, model, args))

    @property
    def weighs(self) -> bool:
        return hasattr(self.collate, "lengths")

    def weigh(self, batch: Any) -> Any:
        return self.collate.lengths(_arrays(batch)) if self.weighs else None

    def _answers(self, batch: Any, model: Any, args: Mapping[str, Any]) -> Any:
        wanted = [one for one in model.get_inputs() if one.name not in args]
        feeds = {one.name: _fitted(array, one) for one, array in _assigned(batch, wanted)}
        constants = {
            one.name: np.asarray(args[one.name], _dtype(one)) for one in model.get_inputs() if one.name in args
        }
        names = list(self.outputs or [output.name for output in model.get_outputs()])
        size = _fixed_batch(wanted)
        if size is None:
            results = model.run(names, {**feeds, **constants})
        else:
            results = _run_in_batches(model, names, feeds, constants, size)
        return results[0] if len(names) == 1 else dict(zip(names, results, strict=True))

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

    def _check_outputs(self, available: Sequence[str]) -> None:
        for name in self.outputs or ():
            if name not in available:
                raise ModelLoadError(
                    f"{self.path} has no output {name!r};{suggestion(name, available)} Outputs: {', '.join(available)}"
                )


def _assigned(batch: Any, wanted: Sequence[Any]) -> list[tuple[Any, NDArray[Any]]]:
    """Say which columns go into which input: by name, or all of them into the only one."""
    if isinstance(batch, (pa.Array, np.ndarray)):
        named: dict[str, Any] = {"": batch}
    elif isinstance(batch, dict):
        named = batch
    else:
        named = dict(zip(batch.schema.names, batch.columns, strict=True))
    if wanted and all(one.name in named for one in wanted):
        return [(one, _array(named[one.name])) for one in wanted]
    if len(wanted) != 1 or (isinstance(batch, dict) and len(batch) > 1):
        missing = [one.name for one in wanted if one.name not in named]
        raise PlanError(
            f"the model's inputs are {_described(wanted)}; nothing is given for {', '.join(missing)}. Name a column "
            f"for each: inputs={{{missing[0]!r}: 'your column', …}}"
        )
    if len(named) == 1:
        return [(wanted[0], _array(next(iter(named.values()))))]
    width = wanted[0].shape[-1] if len(wanted[0].shape) == 2 else None
    if isinstance(width, int) and width != len(named):
        raise PlanError(
            f"the model's input is {_described(wanted)}, and was given {len(named)} columns ({', '.join(named)}); name "
            "those to take with inputs="
        )
    return [(wanted[0], matrix(list(named.values())))]


def _arrays(batch: Any) -> Any:
    """Return a batch as a collation takes it: an array, or a dict of arrays."""
    if isinstance(batch, pa.RecordBatch):
        batch = dict(zip(batch.schema.names, batch.columns, strict=True))
    return {name: _array(part) for name, part in batch.items()} if isinstance(batch, dict) else _array(batch)


def _array(part: Any) -> NDArray[Any]:
    if isinstance(part, np.ndarray):
        return part
    return matrix(part.columns) if isinstance(part, pa.RecordBatch) else column_array(part)


def _fitted(array: NDArray[Any], wanted: Any) -> NDArray[Any]:
    """Return the array in the dtype and rank of a model's input.

    Raises:
        ValueError: it does not fit; the rows to blame are found by halving the batch.
    """
    dtype = np.dtype(_dtype(wanted))
    if array.dtype.kind == "O" and dtype.kind != "O":
        first = next((value for value in array if value is not None), None)
        ragged = "rows of different lengths or with nulls; pass collate=hr.PadSequences()"
        what = ragged if isinstance(first, np.ndarray) else type(first).__name__
        raise ValueError(f"input {_described([wanted])} was given {what}")
    if array.ndim + 1 == len(wanted.shape) and wanted.shape[-1] == 1:
        array = array[..., np.newaxis]
    shape = wanted.shape
    fits = not shape or (
        len(shape) == array.ndim
        and all(not isinstance(n, int) or n == m for n, m in zip(shape[1:], array.shape[1:], strict=True))
    )
    if not fits:
        raise ValueError(f"input {_described([wanted])} was given an array of shape {tuple(array.shape)}")
    return np.ascontiguousarray(_cast(array, dtype, wanted))


def _cast(array: NDArray[Any], dtype: np.dtype[Any], wanted: Any) -> NDArray[Any]:
    if array.dtype == dtype:
        return array
    if dtype.kind == "O":
        return array.astype(str).astype(object)
    if array.dtype.kind in "iu" and dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        if array.size and (int(array.min()) < bounds.min or int(array.max()) > bounds.max):
            raise ValueError(f"input {_described([wanted])} was given numbers beyond {dtype}")
    elif not (np.can_cast(array.dtype, dtype, casting="same_kind") and dtype.kind != "b"):
        raise ValueError(f"input {_described([wanted])} was given {array.dtype}; cast the column first")
    return array.astype(dtype)


def _dtype(wanted: Any) -> Any:
    if wanted.type not in _DTYPES:
        raise PlanError(f"input {_described([wanted])} is of a type that Headrace cannot make")
    return _DTYPES[wanted.type]


def _described(inputs: Sequence[Any]) -> str:
    return ", ".join(f"{one.name!r} {one.type} {[n if n is not None else '?' for n in one.shape]}" for one in inputs)


def _fixed_batch(inputs: Sequence[Any]) -> int | None:
    sizes = {one.shape[0] for one in inputs if one.shape and isinstance(one.shape[0], int)}
    return sizes.pop() if len(sizes) == 1 else None


def _run_in_batches(
    model: Any, names: list[str], feeds: dict[str, NDArray[Any]], constants: dict[str, Any], size: int
) -> list[Any]:
    """Run a model that takes exactly `size` rows, filling the last batch up with copies of its last row."""
    rows = len(next(iter(feeds.values())))
    results = []
    for first in range(0, rows, size):
        chosen = np.minimum(np.arange(first, first + size), rows - 1)
        results.append(model.run(names, {**{name: array[chosen] for name, array in feeds.items()}, **constants}))
    return [
        np.concatenate(parts)[:rows] if isinstance(parts[0], np.ndarray) else [v for p in parts for v in p][:rows]
        for parts in zip(*results, strict=True)
    ]
