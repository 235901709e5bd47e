"""Loading: the collector rests meanwhile, and is as it was afterwards."""

import gc
import subprocess
import sys
import threading

import pytest

from headrace.model.handler import ModelHandler
from headrace.model.loading import FRAMEWORK_MODULES, import_framework, without_gc


def test_the_collector_runs_again_also_after_an_error() -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError, match="no model"), without_gc():
        assert not gc.isenabled()
        raise ValueError("no model")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with without_gc():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_an_imported_framework_is_looked_through_no_more(tmp_path) -> None:
    program = """
import gc, sys, types
sys.path.insert(0, sys.argv[1])
from headrace.model.loading import FRAMEWORK_MODULES, import_framework, without_gc
with without_gc():
    import small
print(gc.get_freeze_count(), end=" ")
with without_gc():
    import large
print(gc.get_freeze_count() > 10 * FRAMEWORK_MODULES, gc.isenabled())
"""
    (tmp_path / "small.py").write_text("objects = [[] for _ in range(5_000)]\n")
    (tmp_path / "large").mkdir()
    for n in range(FRAMEWORK_MODULES):
        (tmp_path / "large" / f"m{n}.py").write_text("objects = [[] for _ in range(10)]\n")
    (tmp_path / "large" / "__init__.py").write_text(
        "\n".join(f"from large import m{n}" for n in range(FRAMEWORK_MODULES))
    )
    shown = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["0", "True", "True"], shown


class Waiting(ModelHandler[None]):
    """Waits while it imports for somebody else who does."""

    def __init__(self) -> None:
        self.together, self.met = threading.Barrier(2), []

    def preload(self) -> None:
        try:
            self.together.wait(0.2)
        except threading.BrokenBarrierError:
            self.met.append(False)
            raise
        self.met.append(True)

    def load_model(self) -> None: ...

    def run_inference(self, batch, model) -> list[int]:
        return [0] * len(batch)


def test_one_thread_at_a_time_imports_and_errors_are_left_to_loading() -> None:
    handler = Waiting()
    threads = [threading.Thread(target=import_framework, args=(handler,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert handler.met == [False, False]
