"""Keras models on any of its backends: .keras files, HDF5, weights with the code that makes the model, or in memory."""

from __future__ import annotations

import functools
import inspect
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import ModelLoadError, PlanError, first_line
from headrace.handlers.importing import BACKENDS, imported, imported_keras, usual_backend
from headrace.handlers.packages import require
from headrace.model.answers import as_numpy
from headrace.model.buckets import POWERS, PadTo, check_pad_to, run_in_buckets
from headrace.model.collation import collation_of, in_groups
from headrace.model.files import check_file, file_name, format_of, is_local, local_copy
from headrace.model.handler import ModelHandler
from headrace.model.slots import Slot, as_array, as_arrays, assign, fit
from headrace.model.uneven import why_uneven

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

_SUFFIXES = {"a Keras model": (".keras",), "an HDF5 file (older Keras)": (".h5", ".hdf5")}
"""What Keras wants files to be called, by what they hold."""


@dataclass(frozen=True, slots=True)
class LoadedKeras:
    """A Keras model ready to answer."""

    model: Any
    answer: Callable[[Any], Any]
    """The model as a function, compiled as its backend does it."""
    slots: tuple[Slot, ...] | None
    """Its inputs; None where it does not declare any, as with a class of the user's."""
    structure: type
    """How it wants them: `dict`, `list`, or `object` for one alone."""
    compiled: bool
    """Whether each shape of a batch is compiled anew."""


@dataclass(frozen=True, slots=True)
class SentModel:
    """A model in memory on its way to another process: the content of a .keras file."""

    content: bytes


class KerasModelHandler(ModelHandler[LoadedKeras]):
    """Runs a Keras model in inference mode; several outputs become a dict answer by name.

    Give one of: `path`, a .keras or HDF5 file; `build`, a function that makes the model, with the file of its weights
    as `weights_path`; `model`, a model in memory. Columns (or the names of an `inputs=` mapping) that are called like
    the model's inputs go there, and numbers are cast to what these want where their kind allows; the columns given to a
    model of one input make its matrix; rows of different lengths or sizes go in with `collate=`, as for
    `TorchModelHandler`. With `inference_fn`, that is called instead, as
    `inference_fn(batch, model, inference_args)`.

    `backend` is "tensorflow", "jax" or "torch"; None is what KERAS_BACKEND or keras.json say, or else the first that is
    installed. A process has one backend: with `isolation="process"` two models may have two. On JAX the model is
    compiled by XLA, for each shape anew, so batches are filled up to sizes as `pad_to` says (see `JaxModelHandler`); on
    TensorFlow so with `jit_compile=True` only.

    Files may hold lambdas, which are code: they are refused unless `trust_remote_code=True`, and HDF5, which older
    versions of Keras loaded regardless, is taken from local paths only. Classes of your own go into `custom_objects`.

    >>> KerasModelHandler("models/churn.keras", backend="jax").model_id
    'churn.keras'
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        model: Any = None,
        build: Callable[[], Any] | None = None,
        weights_path: str | os.PathLike[str] | None = None,
        backend: str | None = None,
        custom_objects: Mapping[str, Any] | None = None,
        inference_fn: Callable[..., Any] | None = None,
        jit_compile: bool = False,
        pad_to: PadTo = POWERS,
        collate: Any = None,
        trust_remote_code: bool = False,
        cache_dir: str | None = None,
    ) -> None:
        self.path = None if path is None else str(path)
        self.weights_path = None if weights_path is None else str(weights_path)
        self.model, self.build, self.backend = model, build, backend
        self.custom_objects, self.inference_fn = dict(custom_objects or {}), inference_fn
        self.jit_compile, self.pad_to = jit_compile, pad_to
        self.collate = collation_of(collate, needed_by="KerasModelHandler")
        self.trust_remote_code, self.cache_dir = trust_remote_code, cache_dir
        self.input_format = "pyarrow" if inference_fn is None else "auto"  # with names, since inputs go by name

    @property
    def model_id(self) -> str:
        if self.path is not None or self.weights_path is not None:
            return file_name(self.path or self.weights_path or "")
        return str(getattr(self.model, "name", None) or getattr(self.build, "__name__", type(self.build).__name__))

    def model_files(self) -> Sequence[str]:
        return tuple(path for path in (self.path, self.weights_path) if path is not None)

    def check(self) -> None:
        require("keras", package="keras", extra="keras", needed_by="KerasModelHandler")
        given = {"path": self.path, "model": self.model, "build": self.build}
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            said = " and ".join(named) or "none"
            raise PlanError(f"KerasModelHandler takes exactly one of path, model, build, and was given {said}")
        if (self.build is None) != (self.weights_path is None):
            raise PlanError(
                "KerasModelHandler: build= and weights_path= go together: the model, and what it has learnt"
            )
        if self.backend is not None and self.backend not in BACKENDS:
            raise PlanError(f"KerasModelHandler: backend={self.backend!r} is none of {', '.join(BACKENDS)}")
        if self.model is None:
            backend = self.backend or usual_backend()
            require(backend, package=backend, extra=backend, needed_by=f"KerasModelHandler (backend {backend})")
        elif not isinstance(self.model, SentModel) and not hasattr(self.model, "stateless_call"):
            raise PlanError(f"KerasModelHandler: model= takes a Keras model, not {type(self.model).__name__}")
        check_pad_to(self.pad_to, handler_name="KerasModelHandler")
        self._check_files()

    def _check_files(self) -> None:
        for path in self.model_files():
            check_file(path, handler_name="KerasModelHandler")
        remote = self.path is not None and not is_local(self.path)
        if remote and not self.trust_remote_code and not str(self.path).endswith(".keras"):
            raise PlanError(
                f"KerasModelHandler: {self.path} could carry code of whoever wrote it; copy it to a local path, "
                "save it as .keras, or pass trust_remote_code=True"
            )

    def preload(self) -> None:
        """Import the framework."""
        self._keras()

    def load_model(self) -> LoadedKeras:
        self.check()
        keras = self._keras()
        model, backend = self._made(keras), keras.config.backend()
        if self.jit_compile and backend == "torch":
            raise PlanError("KerasModelHandler: jit_compile= is for TensorFlow (on JAX all is compiled); leave it out")
        tensors, structure = _declared(model)
        return LoadedKeras(
            model,
            answering(model, backend, jit_compile=self.jit_compile),
            None if tensors is None else tuple(_slot(name, tensor) for name, tensor in tensors.items()),
            structure,
            compiled=self.jit_compile or backend == "jax",
        )

    def run_inference(self, batch: Any, model: LoadedKeras, inference_args: Mapping[str, Any] | None = None) -> Any:
        if self.inference_fn is not None:
            call, args = self.inference_fn, dict(inference_args or {})
            return in_groups(self.collate, batch, lambda part: call(part, model.model, args))
        if inference_args:
            raise PlanError("KerasModelHandler takes inference_args only with inference_fn=")
        if self.collate is None:
            return self._answers(batch, model)
        return in_groups(self.collate, as_arrays(batch), lambda part: self._answers(part, model))

    @property
    def weighs(self) -> bool:
        return hasattr(self.collate, "lengths")

    def weigh(self, batch: Any) -> Any:
        return self.collate.lengths(as_arrays(batch)) if self.weighs else None

    def _answers(self, batch: Any, model: LoadedKeras) -> Any:
        names = list(getattr(model.model, "output_names", ()))

        def run(part: Any) -> Any:
            if model.structure is list:
                part = list(part.values())
            elif model.slots is not None and model.structure is not dict:
                (part,) = part.values()
            return _named(model.answer(part), names)

        return run_in_buckets(run, _arrays(batch, model.slots), self.pad_to if model.compiled else None)

    def _keras(self) -> Any:
        return imported_keras(self.backend, needed_by="KerasModelHandler")

    def _made(self, keras: Any) -> Any:
        if isinstance(self.model, SentModel):
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "model.keras")
                file.write_bytes(self.model.content)
                return self._load(keras, file, "the model in memory", safe_mode=False)
        if self.path is not None:
            path = local_copy(self.path, self.cache_dir)
            _check_name(path, self.path)
            return self._load(keras, path, self.path, safe_mode=not self.trust_remote_code)
        if self.build is None or self.weights_path is None:
            return self.model
        model = self.build()
        try:
            model.load_weights(str(local_copy(self.weights_path, self.cache_dir)))
        except (ModelLoadError, MemoryError):
            raise
        except Exception as error:
            raise ModelLoadError(f"cannot load the weights {self.weights_path}: {first_line(error)}") from error
        return model

    def _load(self, keras: Any, path: Path, url: str, *, safe_mode: bool) -> Any:
        try:
            return keras.saving.load_model(
                str(path), custom_objects=self.custom_objects, compile=False, safe_mode=safe_mode
            )
        except MemoryError:
            raise
        except Exception as error:
            raise ModelLoadError(f"Keras cannot load {url}: {first_line(error)}{_advice(error)}") from error

    def __headrace_fingerprint__(self) -> Any:
        """Say what counts: a model in memory by its configuration and its weights."""
        settings = {name: value for name, value in vars(self).items() if name != "model"}
        weights = [] if self.model is None else [as_numpy(weight) for weight in self.model.get_weights()]
        return settings, None if self.model is None else self.model.to_json(), weights

    def __getstate__(self) -> dict[str, Any]:
        """Send a model in memory as a file, with the backend that it needs: another process has none yet."""
        state = dict(vars(self))
        if self.model is not None and not isinstance(self.model, SentModel):
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "model.keras")
                self.model.save(file)
                state |= {"model": SentModel(file.read_bytes()), "backend": self._keras().config.backend()}
        return state


def answering(model: Any, backend: str, *, jit_compile: bool) -> Callable[[Any], Any]:
    """Return a model as a function that any number of threads may call; Keras's own `predict` serves one at a time."""
    if backend == "jax":
        jax = imported("jax")
        trained = [variable.value for variable in model.trainable_variables]
        fixed = [variable.value for variable in model.non_trainable_variables]
        # Unlike `model(…)`, it hands this on to models that know nothing of training.
        options = {"training": False} if "training" in inspect.signature(model.call).parameters else {}
        call = jax.jit(lambda a, b, inputs: model.stateless_call(a, b, inputs, **options)[0])
        return lambda inputs: call(trained, fixed, inputs)
    if backend == "tensorflow":
        tf = imported("tensorflow")
        # Not a lambda: TensorFlow tells functions by their code, and would take several models for one that is traced
        # again and again, and warn of that.
        answer = functools.partial(model, training=False)
        graph: Callable[[Any], Any] = tf.function(answer, reduce_retracing=True, jit_compile=jit_compile or None)
        return graph
    torch = imported("torch")

    def eager(inputs: Any) -> Any:
        with torch.no_grad():
            return model(inputs, training=False)

    return eager


def _declared(model: Any) -> tuple[dict[str, Any] | None, type]:
    """Return the inputs that a model declares, by name, and how it wants them."""
    try:
        inputs = model.input if model.inputs else None
    except (AttributeError, ValueError):
        return None, object
    if inputs is None:
        return None, object
    if isinstance(inputs, Mapping):
        return {str(name): tensor for name, tensor in inputs.items()}, dict
    if isinstance(inputs, (list, tuple)):
        return {tensor.name: tensor for tensor in inputs}, list
    return {inputs.name: inputs}, object


def _slot(name: str, tensor: Any) -> Slot:
    type_name = str(tensor.dtype)
    if type_name == "string":
        dtype = np.dtype(object)
    else:
        dtype = np.dtype("float32" if type_name in ("bfloat16", "float8_e4m3fn", "float8_e5m2") else type_name)
    return Slot(name=name, dtype=dtype, shape=tuple(tensor.shape), type_name=type_name)


def _arrays(batch: Any, slots: Sequence[Slot] | None) -> Any:
    """Return the arrays of a batch: by the names of the model's inputs, or as they are where it declares none."""
    if slots is not None:
        return {slot.name: fit(array, slot) for slot, array in assign(batch, slots)}
    if isinstance(batch, Mapping):
        return {name: _arrays(part, None) for name, part in batch.items()}
    array = as_array(batch)
    first = next((value for value in array.reshape(-1) if value is not None), None) if array.dtype == object else None
    if isinstance(first, (np.ndarray, list)):
        raise ValueError(f"a Keras model was given {why_uneven(list(array))}")
    return array


def _named(answers: Any, names: Sequence[str]) -> Any:
    """Return answers as arrays on the host; several of them as a dict."""
    if isinstance(answers, (list, tuple)):
        known = names if len(names) == len(answers) else [f"output_{i}" for i in range(len(answers))]
        answers = dict(zip(known, answers, strict=True))
    if isinstance(answers, Mapping):
        return {name: as_numpy(answer) for name, answer in answers.items()}
    return as_numpy(answers)


def _check_name(path: Path, url: str) -> None:
    """Raise ModelLoadError where a file holds no Keras model, or is not called as Keras wants it."""
    kind = format_of(path)
    if kind not in _SUFFIXES:
        raise ModelLoadError(f"{url} is not a Keras model (.keras, or HDF5): it seems to be {kind}")
    if path.suffix not in _SUFFIXES[kind]:
        raise ModelLoadError(
            f"{url} holds {kind}, and Keras takes it under the name *{_SUFFIXES[kind][0]} only; rename it"
        )


def _advice(error: Exception) -> str:
    text = str(error).lower()
    if "safe_mode" in text or "safe mode" in text or "lambda" in text:
        return "; it holds code of whoever wrote it: pass trust_remote_code=True if you trust them"
    if "could not locate" in text or "unknown layer" in text:
        return "; pass classes and functions of your own as custom_objects={'Name': Name}"
    if "no model config" in text:
        return "; it holds weights only: pass it as weights_path=, with build= for the model"
    return "; it may be damaged, or made by another version of Keras"
