"""The same job: what counts for it, and what does not."""

import headrace as hr
from headrace.engine.identity import identity_of
from headrace.plan.graph import Plan


class Model(hr.ModelHandler):
    def __init__(self, file=None, factor=1):
        self.file, self.factor = file, factor

    def load_model(self):
        return None

    def model_files(self):
        return [self.file] if self.file else []

    def run_inference(self, batch, model):
        return [self.factor for _ in batch]


def components(ds, **settings):
    job = ds.write_json("out", **settings)
    identity = identity_of(Plan([job.node]), job.node)
    assert not identity.unknown
    return identity.components


def test_every_node_behind_an_output_has_a_name_that_a_person_knows() -> None:
    ds = hr.range(10).map(lambda r: r, name="clean").run_inference(Model()).limit(3)
    assert list(components(ds)) == [
        "source range",
        "columns of range",
        "step clean",
        "model run_inference",
        "step limit",
    ]


def test_how_a_job_runs_does_not_count() -> None:
    def make(**how):
        return components(hr.range(10).run_inference(Model(), **how))

    assert make() == make(max_batch_size=7, concurrency=2, on_error="null", max_batch_duration_secs=1.0)


def test_what_a_job_computes_counts() -> None:
    base = components(hr.range(10).run_inference(Model()))
    for other in (
        hr.range(10).run_inference(Model(factor=2)),
        hr.range(10).run_inference(Model(), output="score"),
        hr.range(11).run_inference(Model()),
    ):
        changed = components(other)
        assert sum(changed[name] != base[name] for name in base) == 1


def test_batch_size_counts_where_a_step_can_see_it() -> None:
    def head(batch):
        return {"id": batch["id"][:1]}

    def size(rows, *, row_wise):
        return components(hr.range(10).map_batches(head, batch_size=rows, row_wise=row_wise))

    assert size(2, row_wise=False) != size(3, row_wise=False)
    assert size(2, row_wise=True) == size(3, row_wise=True)


def test_a_model_is_its_content_wherever_it_lies(tmp_path) -> None:
    here, there = tmp_path / "a.bin", tmp_path / "b.bin"
    for path in (here, there):
        path.write_bytes(b"weights")
    before = components(hr.range(3).run_inference(Model(str(here))))
    assert components(hr.range(3).run_inference(Model(str(there)))) == before
    here.write_bytes(b"others")
    assert components(hr.range(3).run_inference(Model(str(here)))) != before


def test_a_version_stands_for_the_content() -> None:
    one = components(hr.range(3).map(lambda r: {"a": 1}, name="m", version="7"))
    assert one == components(hr.range(3).map(lambda r: {"a": 2}, name="m", version="7"))


def test_what_cannot_be_fingerprinted_is_listed_with_its_reason() -> None:
    import threading

    lock = threading.Lock()
    job = hr.range(3).map(lambda r: r if lock else {}, name="locked", isolation="thread").write_json("out")
    assert list(identity_of(Plan([job.node]), job.node).unknown) == ["step locked"]


def test_keys_for_a_store_do_not_count(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n')

    def make(key, path=tmp_path / "a.jsonl"):
        return components(hr.read_json(path, storage_options={"key": key}))

    assert make("old") == make("new")
    assert make("old") == make("old", tmp_path), "files are compared one by one, however they are named"
