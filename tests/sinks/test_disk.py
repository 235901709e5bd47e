from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from headrace.sinks import folder
from headrace.sinks.disk import cannot_write


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (errno.ENOSPC, r"the disk is full \(\d+ MB free\); free some space and run the same command again"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EACCES, "permission denied; give this user the right"),
        (errno.EROFS, "the file system is read-only"),
        (errno.ENOTDIR, "a file or folder of another kind is in the way"),
        (errno.EIO, "Input/output error; mend it"),
    ],
)
def test_every_refusal_says_what_to_do(tmp_path: Path, code: int, says: str) -> None:
    path = str(tmp_path / "out" / "part-00000.csv")
    with pytest.raises(Exception, match=f"cannot write {path}: {says}"):
        raise cannot_write(path, OSError(code, os.strerror(code)))


def test_a_part_staged_on_another_disk_is_copied_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staging, out = tmp_path / "staging", tmp_path / "out"
    staging.mkdir()
    out.mkdir()
    hidden = folder.hidden_path(str(staging), "part-00000.csv")
    Path(hidden).write_text("x")
    receipt = folder.seal(hidden, folder=str(out), name="part-00000.csv").text()
    replace = os.replace

    def refuse_between_disks(source: str, target: str) -> None:
        if os.path.dirname(source) != os.path.dirname(target):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse_between_disks)
    folder.publish(receipt, folder=str(out))
    assert os.listdir(out) == ["part-00000.csv"]
    assert os.listdir(staging) == []
