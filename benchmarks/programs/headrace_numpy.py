"""Generated rows through a numpy transform into Parquet, with Headrace. ROWS OUT"""

import sys

import numpy as np

import headrace as hr


def transform(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Make two columns of the one."""
    x = batch["id"].astype(np.float64)
    return {"id": batch["id"], "root": np.sqrt(x), "wave": np.sin(x * 1e-3)}


def main() -> None:
    """Transform every row."""
    hr.range(int(sys.argv[1])).map_batches(transform, batch_format="numpy").write_parquet(sys.argv[2]).run()


if __name__ == "__main__":
    main()
