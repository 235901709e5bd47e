"""Models for which large batches need more memory than there is: sizes are found, and no row is lost."""

import json
import resource
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import HeadraceError
from headrace.model.predictor import Predictor
from headrace.plan.nodes import InferenceSpec
from headrace.plan.retry import Retry


class Limited(hr.ModelHandler):
    """Takes so many rows at once; a row with `size` takes the place of so many."""

    def __init__(self, *limits: int, every: int = 1) -> None:
        self.limits, self.every, self.calls, self.failed = limits, every, [], 0

    def load_model(self):
        return None

    def run_inference(self, batch, model):
        limit = self.limits[min(len(self.calls) // self.every, len(self.limits) - 1)]
        self.calls.append(len(batch))
        if sum(row.get("size", 1) for row in batch) > limit:
            self.failed += 1
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return [row["id"] for row in batch]

    def __headrace_fingerprint__(self):
        return "limited"


def model_of(result):
    return next(stage.model for stage in result.statistics.stages if stage.model is not None)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_hidden_limit_is_found_and_every_row_is_answered(tmp_path, isolation) -> None:
    ds = hr.range(5_000).run_inference(Limited(100), isolation=isolation)
    result = ds.write_json(tmp_path / "out").run()
    lines = [json.loads(line) for part in sorted((tmp_path / "out").glob("*.jsonl")) for line in part.open()]
    assert [line["prediction"] for line in lines] == list(range(5_000))
    model = model_of(result)
    assert 1 <= model.out_of_memory <= 9
    assert model.mean_batch_rows > 70
    assert "calls out of memory" in str(result.report())


def test_a_limit_that_moves_is_followed() -> None:
    handler = Limited(300, 40, 150, every=60)
    assert hr.range(20_000).run_inference(handler).count() == 20_000
    assert handler.failed <= 40
    assert max(handler.calls[-20:]) > 75, "more room is found again"


def test_a_row_that_does_not_fit_alone_fails_with_the_numbers_and_teaches_nothing(tmp_path) -> None:
    rows = [{"id": i, "size": 500 if i == 1_234 else 1} for i in range(4_000)]
    handler = Limited(300)
    job = hr.from_items(rows).run_inference(handler, retry=Retry(3, backoff_secs=0)).write_json(tmp_path / "out")
    result = job.run(on_error="dead_letter")
    assert (result.report().balance().written, result.report().balance().failed) == (3_999, 1)
    (path,) = (tmp_path / "out" / "_dead_letters").glob("*.jsonl")
    (letter,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert (letter["error_type"], letter["row"]["id"]) == ("RowTooLarge", 1_234)
    assert "memory does not suffice for a row, alone in its batch, of " in letter["message"]
    assert "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB" in letter["message"]
    assert handler.calls[-3] > 100


def test_under_on_error_fail_the_run_ends_and_says_which_row() -> None:
    rows = [{"id": i, "size": 500 if i == 7 else 1} for i in range(20)]
    with pytest.raises(HeadraceError, match=r"row 7 .*RowTooLarge: memory does not suffice for a row"):
        hr.from_items(rows).run_inference(Limited(300)).count()


def test_both_halves_of_a_batch_that_does_not_fit_are_asked_whole() -> None:
    handler = Limited(8)
    predictor = Predictor(InferenceSpec(handler=handler), "model", "dead_letter")
    prediction = predictor.predict(pa.record_batch({"id": list(range(16))}))
    assert handler.calls == [16, 8, 8]
    assert prediction.exhausted == (16,)
    assert predictor.statistics().out_of_memory == 1


def test_a_single_row_is_asked_once_more_when_memory_has_been_freed() -> None:
    handler = Limited(0, 1)
    prediction = Predictor(InferenceSpec(handler=handler), "model", "dead_letter").predict(pa.record_batch({"id": [5]}))
    assert (handler.calls, prediction.rows, prediction.exhausted) == ([1, 1], 1, ())


class Hungry(hr.ModelHandler):
    """Takes 16 MB a row, in a process that may have 512 MB more than it has when the model is loaded."""

    def load_model(self):
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + 512 * 2**20, resource.RLIM_INFINITY))

    def run_inference(self, batch, model):
        scratch = np.empty((len(batch), 2**21))
        scratch[:, 0] = batch
        return scratch[:, 0].copy()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the size of a process is read from /proc")
def test_allocations_that_really_fail_are_survived(tmp_path) -> None:
    ds = hr.range(500).run_inference(Hungry(), inputs="id", isolation="process")
    result = ds.write_json(tmp_path / "out").run()
    assert result.report().balance().written == 500
    assert model_of(result).out_of_memory >= 1


@pytest.mark.heavy
def test_a_device_that_runs_out_of_memory_is_survived(tmp_path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")

    class Large(hr.ModelHandler):
        def load_model(self):
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, 2**32 / total))

        def run_inference(self, batch, model):
            scratch = torch.zeros((len(batch), 2**26), device="cuda")  # 256 MB a row, of 4 GB
            return scratch[:, 0].cpu().numpy() + batch

        def unload(self, model):
            torch.cuda.set_per_process_memory_fraction(1.0)

    result = hr.range(200).run_inference(Large(), inputs="id", version="1").write_json(tmp_path / "out").run()
    assert result.report().balance().written == 200
    assert model_of(result).out_of_memory >= 1
