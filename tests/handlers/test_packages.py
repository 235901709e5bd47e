from __future__ import annotations

import subprocess
import sys

import pytest

from headrace.errors import MissingDependencyError
from headrace.handlers.packages import is_installed, require


def test_what_is_not_there_is_named_with_the_way_to_get_it() -> None:
    assert is_installed("numpy")
    assert not is_installed("no_such_framework")
    with pytest.raises(
        MissingDependencyError, match=r"X needs the package fw; install it with: pip install 'headrace\[e\]'"
    ):
        require("no_such_framework", package="fw", extra="e", needed_by="X")


def test_no_framework_is_imported_before_a_model_is_loaded() -> None:
    code = """
import sys
from headrace.handlers import registry
from headrace.handlers.sklearn import SklearnModelHandler
from headrace.handlers.onnx import OnnxModelHandler
from headrace.handlers import jax, keras, tensorflow
from headrace.handlers.torch import TorchModelHandler
registry.installed()
registry.make_handler("sklearn:m.pkl")
heavy = {"sklearn", "onnxruntime", "torch", "pandas", "joblib", "skops", "fsspec", "jax", "keras", "tensorflow"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
