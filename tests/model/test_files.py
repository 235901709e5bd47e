from __future__ import annotations

import gzip
import io
import os
import pickle
import zipfile
from pathlib import Path

import fsspec
import pytest

from headrace.errors import MissingDependencyError, ModelLoadError
from headrace.model.files import check_file, format_of, local_copy, local_folder


@pytest.fixture
def store() -> fsspec.AbstractFileSystem:
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    return memory


def test_local_files_are_left_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "m.pkl"
    path.write_bytes(b"x")
    assert local_copy(path) == path
    assert local_copy(f"file://{path}") == path


def test_remote_files_are_fetched_once_a_version(store: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    store.pipe("/models/m.pkl", b"one")
    first = local_copy("memory://models/m.pkl", tmp_path)
    assert (first.name, first.read_bytes()) == ("m.pkl", b"one")
    inode = first.stat().st_ino
    assert local_copy("memory://models/m.pkl", tmp_path).stat().st_ino == inode, "fetched again"
    store.pipe("/models/m.pkl", b"newer")
    second = local_copy("memory://models/m.pkl", tmp_path)
    assert second != first
    assert second.read_bytes() == b"newer"


def test_a_torn_download_leaves_nothing(
    store: fsspec.AbstractFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Torn(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 0:
                raise OSError("connection reset")
            return super().read(3)

    store.pipe("/models/m.pkl", b"content")
    monkeypatch.setattr(type(store), "open", lambda self, path, mode: Torn(b"content"))
    with pytest.raises(
        ModelLoadError, match="cannot fetch the model file memory://models/m.pkl: OSError: connection reset"
    ):
        local_copy("memory://models/m.pkl", tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_cache_folder_can_be_chosen(
    store: fsspec.AbstractFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.pipe("/m.pkl", b"x")
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "chosen"))
    assert (tmp_path / "chosen") in local_copy("memory://m.pkl").parents
    monkeypatch.delenv("HEADRACE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert (tmp_path / "xdg" / "headrace") in local_copy("memory://m.pkl").parents


def test_what_cannot_be_fetched(
    store: fsspec.AbstractFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelLoadError, match="there is no model file memory://nowhere/m.pkl"):
        local_copy("memory://nowhere/m.pkl", tmp_path)
    with pytest.raises(ModelLoadError, match="cannot fetch the model file nope://m.pkl"):
        local_copy("nope://m.pkl", tmp_path)

    def missing(url: str) -> None:
        raise ImportError("install s3fs")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(MissingDependencyError, match=r"s3fs; install it with: pip install 'headrace\[s3\]'"):
        local_copy("s3://bucket/m.pkl", tmp_path)


def test_check_file_names_the_nearest_neighbour(tmp_path: Path) -> None:
    (tmp_path / "model.pkl").touch()
    check_file(tmp_path / "model.pkl", handler_name="H")
    check_file("s3://bucket/is-seen-later.pkl", handler_name="H")
    with pytest.raises(ModelLoadError, match=r"H: there is no model file .*modle.pkl; did you mean 'model.pkl'"):
        check_file(tmp_path / "modle.pkl", handler_name="H")
    with pytest.raises(ModelLoadError, match="check the path"):
        check_file(tmp_path / "no" / "folder.pkl", handler_name="H")
    with pytest.raises(ModelLoadError, match="is a folder"):
        check_file(tmp_path, handler_name="H")


def zipped(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "an empty file"),
        (pickle.dumps([1]), "a pickle"),
        (gzip.compress(b"x"), "a gzip file"),
        (zipped("a/data.pkl", "a/version"), "a file of torch.save (a state dict)"),
        (zipped("a/data.pkl", "a/constants.pkl"), "a TorchScript file"),
        (zipped("a/archive_format", "a/data.pkl"), "a torch.export program"),
        (zipped("schema.json", "1.npy"), "a skops file"),
        (zipped("readme.txt"), "a zip archive"),
        (zipped("readme.txt")[:-30], "a damaged or cut-off zip archive"),
        ((2).to_bytes(8, "little") + b"{}", "a safetensors file"),
        (b"\x08\x08\x12\x07tf2onnx", "an ONNX model"),
        (b"\x89HDF\r\n", "an HDF5 file (older Keras)"),
        (b"GGUF\x03\x00", "a GGUF model (llama.cpp)"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer instead of the file (run: git lfs pull)"),
        (b"<!DOCTYPE html><html>", "a web page (a failed download?)"),
        (b'{"a": 1}', "a JSON file"),
        ("id,näme\n1,ü\n".encode(), "a text file"),
        (b"\x01\x02\xff\xfe", "a binary file of an unknown kind"),
        (b"abc\x00def", "a binary file of an unknown kind"),
    ],
)
def test_format_of(content: bytes, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert format_of(path) == kind


def test_format_of_text_that_is_cut_inside_a_letter(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("a" + "ü" * 2000, encoding="utf-8")
    assert os.path.getsize(path) > 512
    assert format_of(path) == "a text file"


def test_remote_folders_are_fetched_once_a_version(store: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    store.pipe({"/models/m/config.json": b"{}", "/models/m/deep/weights": b"one"})
    first = local_folder("memory://models/m/", tmp_path)
    assert first.name == "m"
    assert (first / "deep" / "weights").read_bytes() == b"one"
    inode = first.stat().st_ino
    assert local_folder("memory://models/m", tmp_path).stat().st_ino == inode, "fetched again"
    store.pipe("/models/m/deep/weights", b"newer")
    assert (local_folder("memory://models/m", tmp_path) / "deep" / "weights").read_bytes() == b"newer"
    with pytest.raises(ModelLoadError, match="there is no model folder memory://models/none; check the URL"):
        local_folder("memory://models/none", tmp_path)
    assert local_folder(f"file://{tmp_path}") == tmp_path
