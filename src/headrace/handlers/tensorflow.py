"""TensorFlow SavedModels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import ModelLoadError, PlanError, suggestion
from headrace.handlers.hub import check_folder
from headrace.handlers.importing import imported
from headrace.handlers.packages import require
from headrace.model.answers import as_numpy
from headrace.model.buckets import run_in_buckets
from headrace.model.collation import collation_of, in_groups
from headrace.model.files import file_name, is_local, local_copy, local_path
from headrace.model.handler import ModelHandler
from headrace.model.slots import Slot, as_arrays, assign, fit, fixed_rows

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A signature, and the loaded object, whose variables it refers to weakly."""

    signature: Any
    loaded: Any


class TensorFlowModelHandler(ModelHandler[SavedModel]):
    """Runs a signature of a SavedModel over named inputs; several outputs become a dict answer by name.

    Columns (or the names of an `inputs=` mapping) that are called like the signature's inputs go there; the columns
    given to a signature of one input make its matrix. Numbers are cast to what it wants where their kind allows
    (float64 to float32, int64 to int32 within range; never floats to integers), texts go in and come out as UTF-8
    (`text_outputs=False` leaves outputs as bytes). `inference_args` feed inputs that are no column, such as a
    threshold. A model exported for batches of one size is fed in batches of that size. Rows of different lengths or
    sizes go in with `collate=`, as for `OnnxModelHandler`.

    A SavedModel is a program, which can read and write files: it is taken from local paths only, unless
    `trust_remote_code=True`. On GPUs memory is taken as it is needed, and TensorFlow's C++ log shows errors only,
    unless TF_FORCE_GPU_ALLOW_GROWTH and TF_CPP_MIN_LOG_LEVEL say otherwise.

    >>> TensorFlowModelHandler("models/churn/1").model_id
    'churn/1'
    """

    input_format = "pyarrow"  # with names, since inputs go by name

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        signature: str = "serving_default",
        outputs: Sequence[str] | None = None,
        text_outputs: bool = True,
        collate: Any = None,
        trust_remote_code: bool = False,
        cache_dir: str | None = None,
    ) -> None:
        self.path, self.signature = str(path), signature
        self.outputs = None if outputs is None else tuple(outputs)
        self.text_outputs = text_outputs
        self.collate = collation_of(collate, needed_by="TensorFlowModelHandler")
        self.trust_remote_code, self.cache_dir = trust_remote_code, cache_dir

    @property
    def model_id(self) -> str:
        name = file_name(self.path)
        if not name.isdigit():
            return name
        return f"{file_name(self.path.rstrip('/').removesuffix(name))}/{name}"  # the version alone would say little

    def model_files(self) -> Sequence[str]:
        return (self.path,)

    def check(self) -> None:
        require("tensorflow", package="tensorflow", extra="tensorflow", needed_by="TensorFlowModelHandler")
        if is_local(self.path):
            check_folder(local_path(self.path), ("saved_model.pb", "saved_model.pbtxt"), "TensorFlowModelHandler")
        elif not self.trust_remote_code:
            raise PlanError(
                f"TensorFlowModelHandler: {self.path} is a program of whoever wrote it; copy it to a local path, or "
                "pass trust_remote_code=True"
            )

    def preload(self) -> None:
        """Import the framework."""
        imported("tensorflow")

    def load_model(self) -> SavedModel:
        self.check()
        tf = imported("tensorflow")
        folder = local_copy(self.path, self.cache_dir)
        try:
            loaded = tf.saved_model.load(str(folder))
        except MemoryError:
            raise
        except Exception as error:
            raise ModelLoadError(
                f"TensorFlow cannot load {self.path}: {type(error).__name__}: {error}; it may be damaged, or made by "
                "another version of TensorFlow"
            ) from error
        signature = self._signature_of(loaded)
        for name in self.outputs or ():
            if name not in signature.structured_outputs:
                known = sorted(signature.structured_outputs)
                raise ModelLoadError(
                    f"{self.path}: signature {self.signature!r} has no output {name!r};{suggestion(name, known)} "
                    f"Outputs: {', '.join(known)}"
                )
        return SavedModel(signature, loaded)

    def run_inference(self, batch: Any, model: SavedModel, inference_args: Mapping[str, Any] | None = None) -> Any:
        args = inference_args or {}
        if self.collate is None:
            return self._answers(batch, model, args)
        return in_groups(self.collate, as_arrays(batch), lambda part: self._answers(part, model, args))

    @property
    def weighs(self) -> bool:
        return hasattr(self.collate, "lengths")

    def weigh(self, batch: Any) -> Any:
        return self.collate.lengths(as_arrays(batch)) if self.weighs else None

    def _answers(self, batch: Any, model: SavedModel, args: Mapping[str, Any]) -> Any:
        tf = imported("tensorflow")
        specs = model.signature.structured_input_signature[1]
        constants = {name: tf.constant(args[name], spec.dtype) for name, spec in specs.items() if name in args}
        slots = [_slot(name, spec, tf) for name, spec in sorted(specs.items()) if name not in args]
        feeds = {slot.name: fit(array, slot) for slot, array in assign(batch, slots)}

        def run(part: Mapping[str, NDArray[Any]]) -> Any:
            given = {name: tf.cast(tf.constant(array), specs[name].dtype) for name, array in part.items()}
            results = model.signature(**given, **constants)
            chosen = {name: self._on_host(results[name]) for name in self.outputs or sorted(results)}
            return next(iter(chosen.values())) if len(chosen) == 1 else chosen

        return run_in_buckets(run, feeds, fixed_rows(slots))

    def _signature_of(self, loaded: Any) -> Any:
        known = sorted(loaded.signatures)
        if self.signature in loaded.signatures:
            return loaded.signatures[self.signature]
        if not known:
            raise ModelLoadError(
                f"{self.path} was saved without signatures; save it with tf.saved_model.save(model, path, signatures=…)"
            )
        raise ModelLoadError(
            f"{self.path} has no signature {self.signature!r};{suggestion(self.signature, known)} "
            f"Signatures: {', '.join(known)}"
        )

    def _on_host(self, tensor: Any) -> Any:
        array = as_numpy(tensor)
        if array.dtype.kind != "O" or not self.text_outputs:
            return array
        texts = np.empty(array.size, dtype=object)
        texts[:] = [_text(value) for value in array.reshape(-1)]
        return texts.reshape(array.shape)


def _slot(name: str, spec: Any, tf: Any) -> Slot:
    """Describe an input of a signature.

    Raises:
        PlanError: it is ragged, sparse, or of a type that columns cannot fill.
    """
    if not isinstance(spec, tf.TensorSpec):
        raise PlanError(f"input {name!r} of the model is a {type(spec).__name__}; columns can fill plain tensors only")
    dtype = np.dtype(object) if spec.dtype == tf.string else _numpy_dtype(spec.dtype)
    if dtype is None:
        raise PlanError(f"input {name!r} of the model is of type {spec.dtype.name}, which columns cannot fill")
    shape = None if spec.shape.rank is None else tuple(spec.shape)
    return Slot(name=name, dtype=dtype, shape=shape, type_name=spec.dtype.name)


def _numpy_dtype(dtype: Any) -> np.dtype[Any] | None:
    """Return the dtype that arrays for TensorFlow are given; float32 for short floats, which it casts itself."""
    if dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        return np.dtype(np.float32)
    made = np.dtype(dtype.as_numpy_dtype)
    return made if made.kind in "biufc" else None


def _text(value: Any) -> Any:
    """Decode a text; what is none fails its row."""
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError as error:
        return ValueError(
            f"the model answered bytes that are no UTF-8 ({error}); text_outputs=False leaves them as they are"
        )
