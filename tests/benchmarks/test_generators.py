import pickle

import pyarrow as pa
import pyarrow.csv
import pytest

from benchmarks.generators import FEATURES, customers, feature_matrix, write_churn_model, write_customers


def test_the_same_call_makes_the_same_rows():
    assert customers(50, first_id=7).equals(customers(50, first_id=7))
    assert not customers(50, seed=1).equals(customers(50, seed=2))


def test_files_hold_all_ids_once_and_read_back_with_their_types(tmp_path):
    folder = write_customers(tmp_path / "customers", rows=60, files=3)
    files = sorted(folder.iterdir())
    assert [f.name for f in files] == ["part-000.csv", "part-001.csv", "part-002.csv"]
    table = pa.concat_tables([pyarrow.csv.read_csv(f) for f in files])
    assert table["customer_id"].to_pylist() == list(range(60))
    assert table.schema.equals(customers(1).schema)


def test_input_that_is_there_is_kept(tmp_path):
    folder = write_customers(tmp_path / "customers", rows=2, files=1)
    (folder / "part-000.csv").write_text("mine")
    assert (write_customers(folder, rows=2, files=1) / "part-000.csv").read_text() == "mine"


def test_rows_that_do_not_go_evenly_into_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="10 rows do not go evenly into 3 files"):
        write_customers(tmp_path / "customers", rows=10, files=3)


def test_the_model_answers_with_probabilities_that_tell_customers_apart(tmp_path):
    model = pickle.loads(write_churn_model(tmp_path / "churn.pkl").read_bytes())
    assert model.n_features_in_ == len(FEATURES)
    answers = model.predict_proba(feature_matrix(customers(1_000)))[:, 1]
    assert answers.min() < 0.1
    assert answers.max() > 0.9
    assert 0.2 < answers.mean() < 0.8
