"""Input in S3: found, read, and failing in a way that a person can act on."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import HeadraceError, ModelLoadError, NoInputError, ResumeError, SourceError
from headrace.sources.csv import CsvSource
from headrace.sources.json import JsonSource
from headrace.sources.parquet import ParquetSource
from tests.s3 import SECRET, Store, serving

pytestmark = pytest.mark.heavy


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with serving(monkeypatch) as store:
        yield store


@pytest.fixture
def csv(store: Store) -> Store:
    store.put("d/a.csv", b"id,t\n1,x\n2,y\n")
    store.put("d/b.csv", b"id,t\n3,z\n")
    store.put("d/sub/c.csv.gz", gzip.compress(b"id,t\n4,w\n"))
    store.put("d/_hidden.csv", b"id,t\n9,no\n")
    store.put("d/notes.md", b"no table")
    return store


def ids(ds: hr.Dataset) -> list[int]:
    return [row["id"] for row in ds.iter_rows()]


def test_folder_glob_list_and_file(csv: Store) -> None:
    assert ids(hr.read_csv("s3://bucket/d")) == [1, 2, 3, 4]
    assert ids(hr.read_csv("s3://bucket/d/")) == [1, 2, 3, 4]
    assert ids(hr.read_csv("s3://bucket")) == [1, 2, 3, 4]
    assert ids(hr.read_csv("s3://bucket/d/*.csv")) == [1, 2, 3]
    assert ids(hr.read_csv("s3://bucket/**/*.csv.gz")) == [4]
    assert ids(hr.read_csv(["s3://bucket/d/b.csv", "s3://bucket/d/a.csv"])) == [3, 1, 2]


def test_all_formats(store: Store) -> None:
    from PIL import Image

    store.put("j/a.jsonl", b'{"id": 1}\n{"id": 2}\n')
    store.put("j/b.jsonl.gz", gzip.compress(b'{"id": 3}\n'))
    assert ids(hr.read_json("s3://bucket/j")) == [1, 2, 3]
    data = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2]}), data)
    store.put("p/year=2024/a.parquet", data.getvalue())
    assert hr.read_parquet("s3://bucket/p").take() == [{"id": 1, "year": 2024}, {"id": 2, "year": 2024}]
    store.put("t/a.txt", b"one\ntwo\n")
    assert hr.read_text("s3://bucket/t/a.txt").take() == [{"text": "one"}, {"text": "two"}]
    assert hr.read_binary_files("s3://bucket/t").take() == [{"path": "s3://bucket/t/a.txt", "bytes": b"one\ntwo\n"}]
    picture = io.BytesIO()
    Image.new("RGB", (3, 2), (255, 0, 0)).save(picture, "PNG")
    store.put("i/a.png", picture.getvalue())
    ((row),) = hr.read_images("s3://bucket/i").take()
    assert row["image"].shape == (2, 3, 3)
    assert row["image"][0, 0].tolist() == [255, 0, 0]


def test_a_file_that_came_later_is_seen_by_the_next_pipeline(csv: Store) -> None:
    assert ids(hr.read_csv("s3://bucket/d")) == [1, 2, 3, 4]
    csv.put("d/later.csv", b"id,t\n7,new\n")
    assert sorted(ids(hr.read_csv("s3://bucket/d"))) == [1, 2, 3, 4, 7]


@pytest.mark.parametrize(
    "url", ["s3://nope/d", "s3://nope/*.csv", "s3://bucket/nope.csv", "s3://bucket/d/*.tsv", "s3://bucket/empty/"]
)
def test_what_is_not_there(csv: Store, url: str) -> None:
    with pytest.raises(NoInputError) as caught:
        hr.read_csv(url).take()
    assert url in str(caught.value)
    assert "check" in str(caught.value)


def refused(action: Callable[[], object]) -> str:
    """Return the one message of an action that fails, as a script would show it."""
    with pytest.raises(HeadraceError) as caught:
        action()
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


def test_wrong_credentials_or_none(csv: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    csv.demand_credentials()
    for url in ("s3://bucket/d", "s3://bucket/d/*.csv", "s3://bucket/d/a.csv"):
        message = refused(lambda url=url: hr.read_csv(url).take())  # type: ignore[misc]
        assert url in message
        assert "permission denied" in message
        assert "your credentials" in message
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    options = {"client_kwargs": {"endpoint_url": csv.url}, "skip_instance_cache": True}
    message = refused(lambda: hr.read_csv("s3://bucket/d", storage_options=options).take())
    assert "check the URL, the network, your credentials" in message


def test_options_that_the_store_does_not_know(csv: Store) -> None:
    message = refused(lambda: hr.read_csv("s3://bucket/d", storage_options={**csv.options, "nonsense": 1}).take())
    assert "nonsense" in message
    assert "storage_options=" in message


def test_a_server_that_is_not_there_or_goes_away(csv: Store, tmp_path: Path) -> None:
    for i in range(20):
        csv.put(f"many/{i:02d}.csv.gz", gzip.compress(b"id\n" + b"".join(b"%d\n" % n for n in range(20))))
    rows = hr.read_csv("s3://bucket/many")
    source = rows.node.source  # type: ignore[union-attr]
    assert len(source.splits()) >= 1  # listed, and not read yet
    csv.stop()
    message = refused(lambda: rows.write_csv(tmp_path / "out").run())
    assert "s3://bucket/many/00.csv.gz" in message
    assert "check the URL, the network" in message
    assert not (tmp_path / "out").exists()


def test_secrets_stay_out_of_plans_and_journals(csv: Store, tmp_path: Path) -> None:
    ds = hr.read_csv("s3://bucket/d", storage_options=csv.options)
    job = ds.write_json(tmp_path / "out")
    job.run()
    assert SECRET not in ds.explain() + ds.explain("json") + job.explain() + repr(ds.node) + repr(job.node)
    for path in (tmp_path / "out").rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()


def test_new_keys_make_no_new_job_but_new_content_does(csv: Store, tmp_path: Path) -> None:
    def run(key: str) -> hr.RunResult:
        options = {**csv.options, "key": key}
        return hr.read_csv("s3://bucket/d", storage_options=options).write_json(tmp_path / "out").run()

    assert run("old").rows_written == 4
    assert run("new").rows_written == 0
    csv.put("d/a.csv", b"id,t\n1,x\n5,y\n")
    with pytest.raises(ResumeError, match=r"a\.csv"):
        run("new")


def test_models(csv: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.linear_model import LinearRegression

    from headrace.handlers.sklearn import SklearnModelHandler

    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    csv.put("m.pkl", pickle.dumps(LinearRegression().fit([[1], [2]], [10, 20])))

    def scored(url: str) -> list[float]:
        handler = SklearnModelHandler(url, trust_remote_code=True)
        rows = hr.read_csv("s3://bucket/d").run_inference(handler, inputs=["id"]).iter_rows()
        return [round(row["prediction"]) for row in rows]

    assert scored("s3://bucket/m.pkl") == [10, 20, 30, 40]
    for url in ("s3://bucket/nope.pkl", "s3://nope/m.pkl"):
        with pytest.raises(ModelLoadError, match=f"there is no model file {url}; check the URL"):
            scored(url)
    csv.demand_credentials()
    with pytest.raises((ModelLoadError, SourceError), match="credentials"):
        scored("s3://bucket/m.pkl")


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
@pytest.mark.parametrize("url", ["s3://bucket/in/part-2.{}", "s3://bucket/in/*.{}"], ids=["one file", "pattern"])
def test_an_object_that_is_replaced_while_it_is_read_is_named(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, url: str
) -> None:
    def put(number: int, first: int) -> None:
        rows = pa.table({"id": range(first, first + 60), "text": [f"{first + i:08d}" * 25_000 for i in range(60)]})
        data = io.BytesIO()
        if kind == "parquet":
            pq.write_table(rows, data, compression="none", use_dictionary=False, row_group_size=10)
        elif kind == "csv":
            pyarrow.csv.write_csv(rows, data)
        else:
            data.write("".join(json.dumps(row) + "\n" for row in rows.to_pylist()).encode())
        store.put(f"in/part-{number}.{kind}", data.getvalue())

    for number in range(3):
        put(number, 1_000 * number)
    monkeypatch.setattr("headrace.sources.extents.CUT_ABOVE_BYTES", 6_000_000)
    monkeypatch.setattr("headrace.sources.extents.SPLIT_BYTES", 3_000_000)
    source = {"csv": CsvSource, "json": JsonSource, "parquet": ParquetSource}[kind]
    read, todo = source.read, [lambda: put(2, 900_000)]

    def reading(self: Any, split: Any, **options: Any) -> Any:
        yield from read(self, split, **options)
        if todo and "part-2" in split.label:
            todo.pop()()

    monkeypatch.setattr(source, "read", reading)
    job = getattr(hr, f"read_{kind}")(url.format(kind)).write_json(tmp_path / "out")
    with pytest.raises(SourceError, match=rf"part-2.{kind} changed while it was being read"):
        job.run(num_cpus=1)
