from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from headrace.errors import AnswerError, PlanError, RowError
from headrace.model.collation import PadSequences, collation_of, in_groups, pad
from headrace.model.pictures import FitPictures


@st.composite
def ragged(draw: st.DrawFn) -> list[np.ndarray]:
    dtype = draw(st.sampled_from(["u1", "i4", "i8", "f4", "f8", "?"]))
    inner = draw(st.lists(st.integers(1, 3), max_size=2).map(tuple))
    lengths = draw(st.lists(st.integers(0, 6), min_size=1, max_size=8))
    return [draw(arrays.arrays(dtype, (length, *inner))) for length in lengths]


@given(ragged(), st.sampled_from(["left", "right"]), st.none() | st.integers(1, 8), st.booleans())
def test_what_the_mask_shows_is_what_was_there(rows: list[np.ndarray], side: str, multiple_of, as_objects) -> None:
    given_rows = rows
    if as_objects:
        given_rows = np.empty(len(rows), dtype=object)
        for i, row in enumerate(rows):
            given_rows[i] = row
    padded, mask = pad(given_rows, side=side, multiple_of=multiple_of)
    longest = max(map(len, rows))
    assert padded.shape[:2] == mask.shape
    assert mask.shape[0] == len(rows)
    assert longest <= mask.shape[1] < longest + (multiple_of or 1)
    assert mask.shape[1] % (multiple_of or 1) == 0
    assert mask.dtype == np.int64
    for i, row in enumerate(rows):
        there = mask[i].astype(bool)
        assert there.sum() == len(row)
        assert (there[: len(row)] if side == "right" else there[len(there) - len(row) :]).all()
        if row.size:
            np.testing.assert_array_equal(padded[i][there], row)
            assert padded.dtype == row.dtype
        assert not padded[i][~there].any()


def test_matrices_are_padded_as_rows_are() -> None:
    matrix = np.arange(6, dtype=np.int32).reshape(2, 3)
    padded, mask = pad(matrix, multiple_of=4, value=9)
    assert padded.tolist() == [[0, 1, 2, 9], [3, 4, 5, 9]]
    assert mask.tolist() == [[1, 1, 1, 0], [1, 1, 1, 0]]
    assert padded.dtype == np.int32


def test_a_value_that_the_dtype_cannot_hold_widens_it() -> None:
    padded, _ = pad([np.array([1, 2], np.int32), np.array([3], np.int32)], value=np.nan)
    assert padded.dtype == np.float64
    assert np.isnan(padded[1, 1])
    padded, _ = pad([np.array([1, 2], np.uint8), np.array([3], np.uint8)], value=-100)
    assert padded.tolist() == [[1, 2], [3, -100]]


def test_a_length_is_kept_to() -> None:
    padded, mask = pad([[1, 2], [3]], length=4, side="left")
    assert padded.tolist() == [[0, 0, 1, 2], [0, 0, 0, 3]]
    assert mask.tolist() == [[0, 0, 1, 1], [0, 0, 0, 1]]
    with pytest.raises(ValueError, match=r"a row of length 3 does not fit into length=2"):
        pad([[1, 2, 3], [4]], length=2)


def test_what_has_no_length_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="a row is null"):
        pad([np.array([1]), None])
    with pytest.raises(ValueError, match="a single number"):
        pad([1, 2])
    with pytest.raises(ValueError, match=r"differ in more than their lengths: by \(2,\) and \(3,\)"):
        pad([np.zeros((1, 2)), np.zeros((1, 3))])


RAGGED = {"ids": [[1, 2, 3], [4]], "types": [[0, 1, 1], [1]], "year": np.array([1999, 2001]), "name": ["a", "b"]}


def test_named_sequences_are_padded_and_all_else_stays() -> None:
    collated = PadSequences(value={"ids": 9}, mask="attention_mask", side="left")(RAGGED)
    assert collated["ids"].tolist() == [[1, 2, 3], [9, 9, 4]]
    assert collated["types"].tolist() == [[0, 1, 1], [0, 0, 1]]
    assert collated["attention_mask"].tolist() == [[1, 1, 1], [0, 0, 1]]
    assert collated["year"] is RAGGED["year"]
    assert collated["name"] is RAGGED["name"]
    assert PadSequences().lengths(RAGGED).tolist() == [3, 1]


def test_a_mask_that_is_there_is_padded_like_the_rest() -> None:
    batch = {"ids": [[1, 2], [3]], "mask": [[1, 0], [1]]}
    assert PadSequences(value={"ids": 7}, mask="mask")(batch)["mask"].tolist() == [[1, 0], [1, 0]]


def test_sequences_of_unlike_lengths_have_a_width_each_and_no_common_mask() -> None:
    batch = {"question": [[1, 2], [3]], "answer": [[1], [2, 3, 4]]}
    assert {name: array.shape for name, array in PadSequences()(batch).items()} == {
        "question": (2, 2),
        "answer": (2, 3),
    }
    assert PadSequences().lengths(batch).tolist() == [2, 3]
    with pytest.raises(ValueError, match="the sequences of 'question' and 'answer' differ in length"):
        PadSequences(mask="mask")(batch)
    assert PadSequences(mask="mask", names=["question"])(batch)["mask"].tolist() == [[1, 1], [1, 0]]


def test_one_array_is_padded_without_a_mask() -> None:
    assert PadSequences(length=3)([[1, 2], [3]]).tolist() == [[1, 2, 0], [3, 0, 0]]
    assert PadSequences().lengths(np.zeros((2, 5))).tolist() == [5, 5]
    assert PadSequences().lengths([[1, 2], None]).tolist() == [2, 0]
    with pytest.raises(PlanError, match=r"needs names .* inputs=\{'input_ids': 'tokens'\}"):
        PadSequences(mask="mask")([[1, 2], [3]])
    with pytest.raises(PlanError, match="takes arrays, not rows: name the columns"):
        PadSequences()([{"id": 1}])


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"side": "top"}, "'left' or to the 'right'"),
        ({"multiple_of": 0}, r"multiple_of=0\): it is a whole number"),
        ({"length": 1.5}, r"length=1.5\): it is a whole number"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: Any, told: str) -> None:
    with pytest.raises(PlanError, match=told):
        PadSequences(**settings)


def test_names_that_are_not_there_are_told() -> None:
    with pytest.raises(PlanError, match=r"names the input 'id', which is not there; did you mean 'ids'"):
        PadSequences(names=["id"])(RAGGED)


class Groups:
    """Asks about even and odd numbers apart."""

    def __call__(self, batch: Any) -> Any:
        return batch

    def groups(self, batch: Any) -> list[Any]:
        numbers = batch["n"] if isinstance(batch, dict) else batch
        return [rows for odd in (0, 1) if len(rows := np.flatnonzero(numbers % 2 == odd))]


def test_answers_to_groups_are_put_back_in_order() -> None:
    numbers, asked = np.array([5, 2, 7, 4]), []

    def answer(batch: Any) -> Any:
        asked.append(batch.tolist())
        return {"twice": 2 * batch, "error": [RowError(str(n)) for n in batch]}

    found = in_groups(Groups(), numbers, answer)
    assert asked == [[2, 4], [5, 7]]
    assert [int(n) for n in found["twice"]] == [10, 4, 14, 8]
    assert [str(error) for error in found["error"]] == ["5", "2", "7", "4"]
    named = in_groups(Groups(), {"n": numbers, "x": numbers * 10}, lambda batch: batch["x"] + batch["n"])
    assert [int(n) for n in named] == [55, 22, 77, 44]
    asked.clear()
    in_groups(Groups(), np.array([2, 4]), answer)
    assert asked == [[2, 4]]
    assert in_groups(None, numbers, len) == 4


def test_groups_whose_numbers_of_answers_make_up_for_each_other_are_noticed() -> None:
    with pytest.raises(AnswerError, match="answered 1 times for a group of 2 rows"):
        in_groups(Groups(), np.array([1, 2, 3, 4]), lambda batch: [0] * (3 if batch[0] % 2 else 1))
    squeezed = in_groups(Groups(), np.array([5, 2]), np.squeeze)
    assert [int(answer) for answer in squeezed] == [5, 2]


def test_collations_have_names_in_files() -> None:
    def own(batch: Any) -> Any:
        return batch

    assert collation_of(None, needed_by="Net") is None
    assert collation_of(own, needed_by="Net") is own
    assert collation_of("pad_sequences", needed_by="Net") == PadSequences()
    assert collation_of({"pad_sequences": {"value": 3}}, needed_by="Net") == PadSequences(value=3)
    assert collation_of({"fit_pictures": {"how": "group"}}, needed_by="Net") == FitPictures("group")
    for wrong in ("pad", {"pad_sequences": 3}, {"a": {}, "b": {}}, 7):
        with pytest.raises(PlanError, match=r"Net: collate=.* is none; pass hr.PadSequences"):
            collation_of(wrong, needed_by="Net")
    with pytest.raises(PlanError, match=r"collate=PadSequences is a class; pass one made of it: PadSequences\("):
        collation_of(PadSequences, needed_by="Net")
    with pytest.raises(PlanError, match="unexpected keyword argument 'valu'"):
        collation_of({"pad_sequences": {"valu": 3}}, needed_by="Net")
