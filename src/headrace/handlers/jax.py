"""JAX: a pure function and its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import ModelLoadError, PlanError
from headrace.handlers.importing import imported
from headrace.handlers.packages import require
from headrace.model.answers import as_numpy
from headrace.model.buckets import POWERS, PadTo, check_pad_to, run_in_buckets
from headrace.model.collation import collation_of, in_groups
from headrace.model.files import check_file, file_name, format_of, local_copy
from headrace.model.handler import ModelHandler
from headrace.model.uneven import why_uneven

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class JaxModel:
    """A function, compiled or not, and the parameters on its device."""

    fn: Callable[..., Any]
    params: Any


class JaxModelHandler(ModelHandler[JaxModel]):
    """Runs `fn(params, batch)`, a pure function, compiled by `jax.jit`.

    `batch` is an array of what `inputs=` names, or a dict of arrays where that is a mapping; `inference_args` are
    keyword arguments (numbers and arrays; name others in `static_argnames`). The function answers an array, whose first
    dimension is the rows, or a dict of such; a tuple becomes a dict with keys "output_0", "output_1", …

    `params` is any pytree; or `params_path` a file: safetensors, or .npz (without pickles). Its arrays come as a dict
    by name, and `separator="/"` makes `{"dense": {"kernel": …}}` of the name "dense/kernel". Parameters are put on the
    device once. `device="auto"` is JAX's first one; others are named like "cpu", "gpu:1".

    XLA compiles a function anew for each shape, so batches are filled up to a power of two with copies of their last
    row, or to the size (or one of the sizes) that `pad_to` gives. `pad_to=None` leaves them as they come: for functions
    whose rows depend on each other. With `jit=False` nothing is compiled, nor padded. Rows of different lengths go in
    with `collate=headrace.PadSequences(multiple_of=64)`, so that there are few lengths as well.

    >>> JaxModelHandler(lambda params, x: x @ params["w"], params_path="models/net.npz").model_id
    'net.npz'
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        params: Any = None,
        *,
        params_path: str | None = None,
        separator: str | None = None,
        jit: bool = True,
        static_argnames: Sequence[str] = (),
        pad_to: PadTo = POWERS,
        collate: Any = None,
        device: str = "auto",
        cache_dir: str | None = None,
    ) -> None:
        self.fn, self.params, self.separator = fn, params, separator
        self.params_path = None if params_path is None else str(params_path)
        self.jit, self.static_argnames, self.pad_to = jit, tuple(static_argnames), pad_to
        self.collate = collation_of(collate, needed_by="JaxModelHandler")
        self.device, self.cache_dir = device, cache_dir

    @property
    def model_id(self) -> str:
        if self.params_path is not None:
            return file_name(self.params_path)
        return getattr(self.fn, "__name__", type(self.fn).__name__)

    def model_files(self) -> Sequence[str]:
        return () if self.params_path is None else (self.params_path,)

    def check(self) -> None:
        require("jax", package="jax", extra="jax", needed_by="JaxModelHandler")
        if not callable(self.fn):
            raise PlanError(f"JaxModelHandler takes a function fn(params, batch), not {type(self.fn).__name__}")
        if self.params is not None and self.params_path is not None:
            raise PlanError("JaxModelHandler takes params or params_path=, and was given both")
        check_pad_to(self.pad_to, handler_name="JaxModelHandler")
        if self.params_path is not None:
            check_file(self.params_path, handler_name="JaxModelHandler")

    def preload(self) -> None:
        """Import the framework."""
        imported("jax")

    def load_model(self) -> JaxModel:
        self.check()
        jax = imported("jax")
        params = self.params
        if self.params_path is not None:
            params = _nested(_load(local_copy(self.params_path, self.cache_dir), self.params_path), self.separator)
        fn = jax.jit(self.fn, static_argnames=self.static_argnames or None) if self.jit else self.fn
        return JaxModel(fn, jax.device_put(params, _device(jax, self.device)))

    def run_inference(self, batch: Any, model: JaxModel, inference_args: Mapping[str, Any] | None = None) -> Any:
        args = dict(inference_args or {})
        return in_groups(self.collate, batch, lambda part: self._answers(part, model, args))

    @property
    def weighs(self) -> bool:
        return hasattr(self.collate, "lengths")

    def weigh(self, batch: Any) -> Any:
        return self.collate.lengths(batch) if self.weighs else None

    def _answers(self, batch: Any, model: JaxModel, args: Mapping[str, Any]) -> Any:
        arrays = _arrays(batch, wide=imported("jax").config.jax_enable_x64)
        return run_in_buckets(
            lambda part: _named(model.fn(model.params, part, **args)), arrays, self.pad_to if self.jit else None
        )

    def __headrace_fingerprint__(self) -> Any:
        """Say what counts: parameters by their values, wherever they are kept."""
        settings = {name: value for name, value in vars(self).items() if name != "params"}
        return settings, _plain(self.params)


def _arrays(batch: Any, *, wide: bool) -> Any:
    """Return the arrays of a batch in the types that JAX has.

    Raises:
        ValueError: rows are ragged, no numbers, or integers that 32 bits do not hold; JAX would cut these off silently.
    """
    if isinstance(batch, Mapping):
        return {name: _arrays(part, wide=wide) for name, part in batch.items()}
    if isinstance(batch, list):
        raise PlanError("a JAX function takes arrays, not rows: name the columns with inputs=")
    if batch.dtype.kind not in "biufc":
        first = next((value for value in batch.reshape(-1) if value is not None), None)
        if isinstance(first, (np.ndarray, list)):
            raise ValueError(f"a JAX function was given {why_uneven(list(batch))}")
        raise ValueError(f"a JAX function takes numbers, not {type(first).__name__}")
    return batch if wide or batch.dtype not in ("int64", "uint64") else _narrow(batch)


def _narrow(array: NDArray[Any]) -> NDArray[Any]:
    dtype = np.dtype("int32" if array.dtype.kind == "i" else "uint32")
    bounds = np.iinfo(dtype)
    if array.size and (int(array.min()) < bounds.min or int(array.max()) > bounds.max):
        raise ValueError(f"numbers beyond {dtype}, which is what JAX has unless JAX_ENABLE_X64=1 is set")
    return array.astype(dtype)


def _named(answers: Any) -> Any:
    """Return answers as arrays on the host; several of them as a dict."""
    if hasattr(answers, "_asdict"):
        answers = answers._asdict()
    if isinstance(answers, tuple):
        answers = {f"output_{i}": answer for i, answer in enumerate(answers)}
    if isinstance(answers, Mapping):
        return {name: as_numpy(answer) for name, answer in answers.items()}
    return [as_numpy(answer) for answer in answers] if isinstance(answers, list) else as_numpy(answers)


def _load(path: Path, url: str) -> dict[str, Any]:
    kind = format_of(path)
    try:
        if kind == "a safetensors file":
            require("safetensors", package="safetensors", extra="jax", needed_by="JaxModelHandler(params_path=)")
            from safetensors.flax import load_file

            return dict(load_file(str(path)))
        if kind == "a zip archive":
            with np.load(path, allow_pickle=False) as archive:
                return dict(archive)
    except (MemoryError, ImportError):
        raise
    except Exception as error:
        raise ModelLoadError(f"cannot load the parameters {url}: {type(error).__name__}: {error}") from error
    raise ModelLoadError(f"{url} is not a safetensors or .npz file: it seems to be {kind}")


def _nested(arrays: Mapping[str, Any], separator: str | None) -> dict[str, Any]:
    """Make a tree of names that have parts.

    >>> _nested({"dense/kernel": 1, "dense/bias": 2, "scale": 3}, "/")
    {'dense': {'kernel': 1, 'bias': 2}, 'scale': 3}
    """
    if separator is None:
        return dict(arrays)
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        *parents, leaf = name.split(separator)
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
        branch[leaf] = array
    return tree


def _plain(tree: Any) -> Any:
    """Return a pytree with arrays of numpy in the place of JAX's."""
    if isinstance(tree, Mapping):
        return {name: _plain(part) for name, part in tree.items()}
    if isinstance(tree, tuple | list):
        return [_plain(part) for part in tree]
    return np.asarray(tree) if hasattr(tree, "__array__") else tree


def _device(jax: Any, name: str) -> Any:
    if name == "auto":
        return jax.devices()[0]
    platform, _, number = name.partition(":")
    try:
        return jax.devices(platform)[int(number or 0)]
    except (RuntimeError, ValueError, IndexError):
        there = ", ".join(f"{d.platform}:{d.id}" for d in jax.devices())
        raise PlanError(f"JaxModelHandler: there is no device {name!r}; here: {there}") from None
