"""Texts of mixed length for embedding: words as people use them, most texts short, a few long; the same every time."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

if TYPE_CHECKING:
    from pathlib import Path

SHORTEST, LONGEST = 5, 200
"""Tokens of a text, about: two of them are the marks at its ends, and most words are one."""
TYPICAL, SPREAD = 20.0, 0.9
"""Median of the tokens, and standard deviation of their logarithm."""
ROWS_A_FILE = 25_000
TEXT = """
the a of to and in that is was for on with as at by from this it not are be or an were which one all there when water
river mill wheel stone grain flour bread village bridge road winter summer rain morning evening harvest field farmer
miller baker merchant daughter brother letter market price cart horse barrel lantern window door roof cellar engine
turbine generator voltage current pressure valve pipe pump sensor signal network server request response customer
order invoice delivery refund account password support ticket complaint warranty product package return slow quick
heavy light broken clean narrow deep cold warm bright quiet loud empty full early late careful honest turned opened
carried measured repaired explained refused expected promised delivered forgotten remembered arrived science history
language mathematics weather government hospital university library parliament newspaper theatre because although
however therefore meanwhile nevertheless sometimes usually together without between against during thirty hundred
thousand percent kilometre second minute weekend february wednesday photograph temperature electricity
"""
WORDS = pa.array(TEXT.split())


def texts(rows: int, *, first_id: int = 0, seed: int = 0) -> pa.Table:
    """Make a table of texts whose lengths are spread log-normally.

    >>> texts(3).column_names
    ['id', 'text']
    """
    rng = np.random.default_rng([seed, first_id])
    lengths = np.clip(rng.lognormal(np.log(TYPICAL), SPREAD, rows), SHORTEST, LONGEST).astype(int) - 2
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    words = WORDS.take(pa.array(rng.integers(0, len(WORDS), int(offsets[-1]))))
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), words), " ")
    return pa.table({"id": np.arange(first_id, first_id + rows), "text": joined})


def write_texts(folder: Path, *, rows: int) -> Path:
    """Write `rows` texts into Parquet files under `folder`, once, and return the folder."""
    if folder.exists():
        return folder
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for number, first in enumerate(range(0, rows, ROWS_A_FILE)):
        table = texts(min(ROWS_A_FILE, rows - first), first_id=first)
        pyarrow.parquet.write_table(table, unfinished / f"part-{number:03d}.parquet")
    unfinished.rename(folder)
    return folder
