"""How frameworks are imported: quietly, and without taking all of a GPU's memory for themselves."""

from __future__ import annotations

import importlib
import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import PlanError
from headrace.handlers.packages import is_installed, require
from headrace.model.loading import importing

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS: dict[str, dict[str, str]] = {
    "tensorflow": {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_FORCE_GPU_ALLOW_GROWTH": "true"},
    "jax": {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
}
"""Variables that each framework reads when it is imported; those that the user has set stay as they are.

TensorFlow logs to the terminal from C++, past Python's logging. Both frameworks would take (nearly) all memory of a GPU
at their first use, which leaves none for a second model.
"""

BACKENDS = ("tensorflow", "jax", "torch")
"""Of Keras, in the order in which they are looked for."""

TORCHVISION = "install the torchvision that was built for this PyTorch, from the same index"
"""What to do where it cannot be imported: Transformers and timm import it wherever it is installed."""


def imported(name: str) -> Any:
    """Import a framework with its settings."""
    for variable, value in SETTINGS.get(name, {}).items():
        os.environ.setdefault(variable, value)
    return importlib.import_module(name)


def imported_keras(backend: str | None, *, needed_by: str) -> Any:
    """Import Keras on a backend; None is the user's own choice (KERAS_BACKEND, keras.json), or the first installed.

    Raises:
        PlanError: Keras runs on another backend in this process already.
        MissingDependencyError: the backend is not installed.
    """
    chosen = backend or usual_backend()
    with importing():
        if "keras" not in sys.modules:
            require(chosen, package=chosen, extra=chosen, needed_by=f"{needed_by} (backend {chosen})")
            # Keras imports TensorFlow for its own ends too, where it is there.
            for variable, value in (SETTINGS["tensorflow"] | SETTINGS.get(chosen, {})).items():
                os.environ.setdefault(variable, value)
        with _environment(KERAS_BACKEND=chosen):
            keras = importlib.import_module("keras")
    running: str = keras.config.backend()
    if backend is not None and running != backend:
        raise PlanError(
            f"{needed_by}: backend={backend!r}, but Keras runs on {running!r} in this process already, and can have "
            f'one backend only; set KERAS_BACKEND={backend} before Keras is imported, or pass isolation="process"'
        )
    return keras


def usual_backend() -> str:
    """Return the backend that Keras would take by itself, if it is installed; else the first that is."""
    if named := os.environ.get("KERAS_BACKEND"):
        return named
    folder = Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser()
    try:
        named = json.loads((folder / "keras.json").read_text()).get("backend")
    except (OSError, ValueError):
        named = None
    return next((name for name in (named, *BACKENDS) if name and is_installed(name)), BACKENDS[0])


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Set variables of the environment for a moment."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
