"""What a run learns of its batches is there for the run that goes on, and for nobody else."""

import pytest

import headrace as hr
from headrace.engine import model_stage
from headrace.engine.commit.journal import Journal
from headrace.engine.notes import Notes
from headrace.errors import HeadraceError
from headrace.model.learnt import Learnt
from headrace.plan.nodes import BatchLimits, InferenceSpec
from headrace.testing import FakeModelHandler

LEARNT = Learnt(costs=((64.0, 0.5), (128.0, 0.9)), fits=128.0, bursts=300.0)


@pytest.fixture
def journal(tmp_path):
    journal = Journal(str(tmp_path / "journal.sqlite"))
    yield journal
    journal.close()


def notes(journal, name="model", **limits) -> Notes:
    spec = InferenceSpec(handler=FakeModelHandler(answer=len), limits=BatchLimits(**limits))
    return Notes([journal], name, spec)


def test_a_stage_reads_its_own_notes(journal) -> None:
    assert notes(journal).read() == Learnt()
    notes(journal).write(LEARNT)
    assert notes(journal, max_batch_size=9).read() == LEARNT
    assert notes(journal, name="other").read() == Learnt()


def test_weights_of_another_kind_say_nothing(journal) -> None:
    notes(journal).write(LEARNT)
    assert notes(journal, weight_column="tokens", padded=True).read() == Learnt()


def test_without_an_output_nothing_is_kept() -> None:
    none = Notes([], "model", InferenceSpec(handler=FakeModelHandler(answer=len)))
    none.write(LEARNT)
    assert none.read() == Learnt()


class Fragile(hr.ModelHandler):
    """Takes a hundred rows at once; in the first run it breaks in the middle."""

    def __init__(self, *, breaks: bool) -> None:
        self.breaks, self.sizes = breaks, []

    def load_model(self):
        return None

    def run_inference(self, batch, model):
        self.sizes.append(len(batch))
        if len(batch) > 100:
            raise MemoryError
        if self.breaks and max(batch) > 4_000:
            raise KeyError("broken")
        return batch

    def __headrace_fingerprint__(self):
        return "fragile"


def test_a_run_that_goes_on_begins_with_the_learnt_size(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(model_stage, "NOTE_SECS", 0.0)

    def run(handler) -> None:
        hr.range(8_000).run_inference(handler, inputs="id").write_json(tmp_path / "out", rows_per_part=500).run()

    with pytest.raises(HeadraceError, match="broken"):
        run(Fragile(breaks=True))
    again = Fragile(breaks=False)
    run(again)
    assert 80 <= again.sizes[0] <= 100
    assert max(again.sizes) < 150, "what lies between may be tried still"
