from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import MissingDependencyError
from headrace.handlers import importing
from headrace.handlers.importing import imported, imported_keras, usual_backend


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KERAS_BACKEND", "TF_CPP_MIN_LOG_LEVEL", "TF_FORCE_GPU_ALLOW_GROWTH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))


def test_settings_are_made_before_the_import_and_the_users_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a_framework.py").write_text("import os\nlevel = os.environ.get('LEVEL'), os.environ.get('GROWTH')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(importing.SETTINGS, "a_framework", {"LEVEL": "2", "GROWTH": "true"})
    monkeypatch.setenv("LEVEL", "0")
    monkeypatch.delenv("GROWTH", raising=False)
    assert imported("a_framework").level == ("0", "true")
    monkeypatch.delenv("GROWTH")


def test_the_backend_is_the_users_choice_or_one_that_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importing, "is_installed", lambda name: name in ("jax", "torch"))
    assert usual_backend() == "jax"
    (tmp_path / "keras.json").write_text('{"backend": "torch"}')
    assert usual_backend() == "torch"
    (tmp_path / "keras.json").write_text('{"backend": "tensorflow"}')  # as Keras writes it by itself
    assert usual_backend() == "jax"
    (tmp_path / "keras.json").write_text("nonsense")
    assert usual_backend() == "jax"
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    assert usual_backend() == "tensorflow"


def test_a_backend_that_is_missing_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    monkeypatch.setattr(importing, "BACKENDS", ("no_such_backend",))
    with pytest.raises(
        MissingDependencyError, match=r"X \(backend no_such_backend\) needs the package no_such_backend"
    ):
        imported_keras("no_such_backend", needed_by="X")


KERAS = """
import os
class config:
    backend = staticmethod(lambda chosen=os.environ["KERAS_BACKEND"]: chosen)
"""


def test_keras_is_told_its_backend_and_the_environment_stays_as_it_was(tmp_path: Path) -> None:
    """A stand-in for Keras, which reads the variable when it is imported, in a process of its own."""
    (tmp_path / "keras.py").write_text(KERAS)
    code = """
import os
from headrace.errors import PlanError
from headrace.handlers import importing
importing.require = lambda *a, **k: None
assert importing.imported_keras("jax", needed_by="X").config.backend() == "jax"
assert "KERAS_BACKEND" not in os.environ
assert importing.imported_keras(None, needed_by="X").config.backend() == "jax"
try:
    importing.imported_keras("torch", needed_by="X")
except PlanError as error:
    assert "X: backend='torch', but Keras runs on 'jax' in this process already" in str(error), error
else:
    raise AssertionError("two backends in one process")
"""
    path = os.pathsep.join([str(tmp_path), *sys.path])
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": path})
