from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.handlers.keras import KerasModelHandler
from tests.handlers.backends import results
from tests.handlers.keras_cases import CASES

pytestmark = pytest.mark.heavy

MODULE = "tests.handlers.keras_cases"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keras")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [function.__name__ for function in CASES])
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_on_every_backend(backend: str, name: str, folder: Path) -> None:
    failure = results(MODULE, backend, folder)["cases"][name]
    assert failure is None, failure


def test_nothing_is_logged_past_python(folder: Path) -> None:
    told = results(MODULE, "tensorflow", folder)["stderr"].splitlines()
    assert [line for line in told if "saving your model as an HDF5 file" not in line] == []  # which a case does


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "exactly one of path, model, build, and was given none"),
        ({"path": "m.keras", "build": dict, "weights_path": "w.h5"}, "was given path and build"),
        ({"build": dict}, "build= and weights_path= go together"),
        ({"path": "m.keras", "backend": "tensorflw"}, "backend='tensorflw' is none of tensorflow, jax, torch"),
        ({"model": "m.keras"}, "model= takes a Keras model, not str"),
        ({"path": "no/m.keras"}, "there is no model file no/m.keras"),
        ({"path": "s3://bucket/m.h5"}, "could carry code .*save it as .keras, or pass trust_remote_code=True"),
        ({"path": "m.keras", "pad_to": -1}, "pad_to=-1"),
    ],
)
def test_check_finds_wrong_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(HeadraceError, match=words):
        KerasModelHandler(**options).check()
