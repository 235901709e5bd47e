from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.handlers.keras_hub import KerasHubModelHandler
from tests.handlers.backends import results
from tests.handlers.keras_hub_cases import CASES

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keras_hub")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [function.__name__ for function in CASES])
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_on_two_backends(backend: str, name: str, folder: Path) -> None:
    failure = results("tests.handlers.keras_hub_cases", backend, folder)["cases"][name]
    assert failure is None, failure


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "no/preset"}, "there is no model folder no/preset"),
        ({"path": "."}, "holds no model, for it has no config.json"),
        ({"path": "s3://bucket/preset"}, "copy it to a local path, or pass trust_remote_code=True"),
        ({"path": "p", "task": "image_classifier"}, "task='image_classifier' is none of causal_lm, text_classifier"),
        ({"path": "p", "backend": "tf"}, "backend='tf' is none of tensorflow, jax, torch"),
        ({"path": "p", "max_length": 0}, "max_length=0 is no number of tokens"),
        ({"path": "p", "pad_to": 0}, "pad_to=0"),
    ],
)
def test_check_finds_wrong_options(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match=words):
        KerasHubModelHandler(**options).check()
