import pytest

import headrace as hr
from headrace.testing import assert_same_rows, scatter

READ = {"csv": hr.read_csv, "json": hr.read_json, "parquet": hr.read_parquet}


@pytest.mark.parametrize("format", READ)
@pytest.mark.parametrize(("rows", "files"), [(10, 3), (2, 4), (5, 1)])
def test_what_is_scattered_is_read_back_in_order(tmp_path, format, rows, files):
    data = [{"id": i, "text": f"a, {i}\n"} for i in range(rows)]
    paths = scatter(data, tmp_path / "in", files=files, format=format)
    assert len(paths) == files
    assert_same_rows(READ[format](tmp_path / "in"), data, order=True)
