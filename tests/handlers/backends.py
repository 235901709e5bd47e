"""Cases that run on one backend of Keras, in a process of their own, since a process has one backend."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.handlers.importing import imported_keras

ROOT = Path(__file__).parents[2]


def run_cases(cases: list[Callable[[], None]], backend: str) -> None:
    """Run functions and print a JSON object: the name of each, and how it failed, or null."""
    imported_keras(backend, needed_by="the tests")
    results: dict[str, str | None] = {}
    for function in cases:
        try:
            function()
        except Exception:
            results[function.__name__] = traceback.format_exc()
        else:
            results[function.__name__] = None
    print(json.dumps(results))


@functools.cache
def results(module: str, backend: str, folder: Path) -> dict[str, Any]:
    """Run all cases of a module on a backend, and return what became of them, beside what was written to stderr."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), *sys.path])
    env = {name: value for name, value in os.environ.items() if name not in ("KERAS_BACKEND", "TF_CPP_MIN_LOG_LEVEL")}
    own = folder / backend
    own.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", module, backend],
        cwd=own,
        env={**env, "PYTHONPATH": paths, "KERAS_HOME": str(own)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return {"cases": json.loads(done.stdout.splitlines()[-1]), "stderr": done.stderr}
