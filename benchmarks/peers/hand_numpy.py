"""Generated rows through a numpy transform into Parquet, by hand: two threads, a file each. ROWS OUT GROUP_ROWS"""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

SCHEMA = pa.schema({"id": pa.int64(), "root": pa.float64(), "wave": pa.float64()})


def main() -> None:
    """Transform every row, a row group at a time, so that memory stays small."""
    rows, out, group = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    out.mkdir(parents=True, exist_ok=True)

    # Headrace's own options for such columns; with pyarrow's dictionaries it would take much longer.
    options = {"compression": "snappy", "use_dictionary": False}

    def half(number: int) -> None:
        first, end = rows * number // 2, rows * (number + 1) // 2
        with pyarrow.parquet.ParquetWriter(out / f"part-{number}.parquet", SCHEMA, **options) as writer:
            for start in range(first, end, group):
                ids = np.arange(start, min(start + group, end))
                x = ids.astype(np.float64)
                columns = [pa.array(ids), pa.array(np.sqrt(x)), pa.array(np.sin(x * 1e-3))]
                writer.write_batch(pa.record_batch(columns, schema=SCHEMA), row_group_size=group)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(half, range(2)))


main()
