"""Model files: a local copy of any URL, cached; and what a file seems to be, from its first bytes."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import MissingDependencyError, ModelLoadError, suggestion
from headrace.sources.storage import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERSION_KEYS = (
    *("ETag", "etag", "generation", "VersionId", "version_id", "blob_id", "sha"),
    *("LastModified", "last_modified", "updated", "mtime", "created"),
)
"""What stores call a file's version or time in fsspec's `info`."""


_STARTS = (
    (b"\x80\x02", "a pickle"),
    (b"\x80\x03", "a pickle"),
    (b"\x80\x04", "a pickle"),
    (b"\x80\x05", "a pickle"),
    (b"\x89HDF", "an HDF5 file (older Keras)"),
    (b"GGUF", "a GGUF model (llama.cpp)"),
    (b"\x78\x01", "a compressed joblib file"),
    (b"\x78\x5e", "a compressed joblib file"),
    (b"\x78\x9c", "a compressed joblib file"),
    (b"\x78\xda", "a compressed joblib file"),
    (b"\x1f\x8b", "a gzip file"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ", "an xz file"),
    (b"\x28\xb5\x2f\xfd", "a zstandard file"),
    (b"version https://git-lfs", "a Git LFS pointer instead of the file (run: git lfs pull)"),
    (b"PAR1", "a Parquet file"),
)

_ZIP_MEMBERS = (
    ("schema.json", "a skops file"),
    ("constants.pkl", "a TorchScript file"),
    ("archive_format", "a torch.export program"),
    ("serialized_exported_program.json", "a torch.export program"),
    ("data.pkl", "a file of torch.save (a state dict)"),
    ("model.weights.h5", "a Keras model"),
)


def is_local(url: str | os.PathLike[str]) -> bool:
    """Say whether a path or URL lies on this machine's file system.

    >>> is_local("models/m.pkl"), is_local("file:///m.pkl"), is_local("s3://bucket/m.pkl")
    (True, True, False)
    """
    text = os.fspath(url)
    return "://" not in text or text.startswith(("file://", "local://"))


def local_path(url: str | os.PathLike[str]) -> Path:
    """Return the path of a local URL, with `~` expanded."""
    return Path(os.fspath(url).removeprefix("file://").removeprefix("local://")).expanduser()


def file_name(url: str | os.PathLike[str]) -> str:
    """Return the last part of a path or URL.

    >>> file_name("s3://bucket/net.pt")
    'net.pt'
    """
    return os.fspath(url).rstrip("/").rpartition("/")[2]


def check_file(url: str | os.PathLike[str], *, handler_name: str) -> None:
    """Raise if a local file is not there or is no file; URLs are seen only when they are loaded.

    Raises:
        ModelLoadError: names the file and its neighbour with the nearest name.
    """
    if not is_local(url):
        return
    path = local_path(url)
    if path.is_dir():
        raise ModelLoadError(f"{handler_name}: {path} is a folder; name the model file in it")
    if not path.exists():
        near = suggestion(path.name, (p.name for p in path.parent.iterdir())) if path.parent.is_dir() else ""
        raise ModelLoadError(f"{handler_name}: there is no model file {path};{near or ' check the path'}")


def local_copy(url: str | os.PathLike[str], cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return a local path with the content of any fsspec URL, file or folder; local ones are returned as they are.

    Remote files are downloaded once: the copy is found again by URL, version (etag, modification time) and size, under
    `cache_dir`, `$HEADRACE_CACHE` or `~/.cache/headrace`. It appears under its name only when it is whole.

    Raises:
        ModelLoadError: the file is not there or cannot be read.
        MissingDependencyError: the package for that kind of URL is not installed.
    """
    if is_local(url):
        return local_path(url)
    text = os.fspath(url)
    file_system, path = _file_system(text)
    try:
        info = file_system.info(path)
        if info.get("type") == "directory":
            return local_folder(url, cache_dir)
        versions = versions_of(info)
        folder = _cache_folder(cache_dir) / _digest(text, *versions, str(info.get("size")))
        copy = folder / file_name(path)
        if not (versions and copy.exists()):
            _download(file_system, path, copy)
    except FileNotFoundError as error:
        raise ModelLoadError(f"there is no model file {text}; check the URL") from error
    except ModelLoadError:
        raise
    except Exception as error:
        raise ModelLoadError(_not_fetched(text, error)) from error
    return copy


def local_folder(url: str | os.PathLike[str], cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return a local folder with all files below any fsspec URL; local folders are returned as they are.

    Remote ones are downloaded once, as `local_copy` does it with files.

    Raises:
        ModelLoadError: nothing is there, or it cannot be read.
        MissingDependencyError: the package for that kind of URL is not installed.
    """
    if is_local(url):
        return local_path(url)
    text = os.fspath(url).rstrip("/")
    file_system, root = _file_system(text)
    try:
        found = file_system.find(root, detail=True)
        if not found:
            raise FileNotFoundError(text)
        versions = [versions_of(info) for info in found.values()]
        parts = [f"{name} {info.get('size')} {has}" for (name, info), has in zip(found.items(), versions, strict=True)]
        copy = _cache_folder(cache_dir) / _digest(text, *parts) / file_name(root)
        if not all(versions):
            shutil.rmtree(copy, ignore_errors=True)  # it may be old
        if not copy.exists():
            _download_folder(file_system, root, list(found), copy)
    except FileNotFoundError as error:
        raise ModelLoadError(f"there is no model folder {text}; check the URL") from error
    except Exception as error:
        raise ModelLoadError(_not_fetched(text, error)) from error
    return copy


def format_of(path: str | os.PathLike[str]) -> str:
    """Say what a file seems to be, judged by its content.

    >>> import tempfile, pickle
    >>> with tempfile.NamedTemporaryFile() as f:
    ...     _ = f.write(pickle.dumps({})); f.flush()
    ...     format_of(f.name)
    'a pickle'
    """
    with open(path, "rb") as file:
        start = file.read(512)
    if not start:
        return "an empty file"
    for prefix, kind in _STARTS:
        if start.startswith(prefix):
            return kind
    if start.startswith(b"PK"):
        return _format_of_zip(path)
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= os.path.getsize(path):
        return "a safetensors file"
    # Protobuf: field 1 (ir_version), a small number, then the producer's name, the graph or the imported operators.
    if start[0] == 0x08 and start[1] < 0x40 and start[2:3] in (b"\x12", b"\x1a", b"\x3a", b"\x42"):
        return "an ONNX model"
    return _format_of_text(start)


def _format_of_zip(path: str | os.PathLike[str]) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name.rpartition("/")[2] for name in archive.namelist()}
    except zipfile.BadZipFile:
        return "a damaged or cut-off zip archive"
    return next((kind for member, kind in _ZIP_MEMBERS if member in members), "a zip archive")


def _format_of_text(start: bytes) -> str:
    try:
        text = start.decode("utf-8", errors="strict" if len(start) < 512 else "ignore").lstrip().lower()
    except UnicodeDecodeError:
        return "a binary file of an unknown kind"
    if any(ord(letter) < 32 and not letter.isspace() for letter in text):
        return "a binary file of an unknown kind"
    if text.startswith(("<!doctype", "<html")):
        return "a web page (a failed download?)"
    return "a JSON file" if text.startswith(("{", "[")) else "a text file"


def _file_system(url: str) -> tuple[Any, str]:
    import fsspec

    protocol = url.partition("://")[0]
    try:
        file_system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        package, extra = PACKAGES.get(protocol, (f"for {protocol}:// ({error})", "all"))
        raise MissingDependencyError(package, extra=extra, needed_by=f"a model file at {protocol}://") from error
    except ValueError as error:
        raise ModelLoadError(f"cannot fetch the model file {url}: {error}") from error
    return file_system, path


def _cache_folder(cache_dir: str | os.PathLike[str] | None) -> Path:
    if cache_dir is not None:
        return Path(cache_dir)
    if chosen := os.environ.get("HEADRACE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "headrace"


def _download(file_system: Any, path: str, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    descriptor, unfinished = tempfile.mkstemp(dir=copy.parent, prefix=".")
    try:
        with os.fdopen(descriptor, "wb") as target, file_system.open(path, "rb") as source:
            shutil.copyfileobj(source, target, 1 << 20)
        os.replace(unfinished, copy)
    except BaseException:
        os.unlink(unfinished)
        raise


def _download_folder(file_system: Any, root: str, paths: list[str], copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    unfinished = tempfile.mkdtemp(dir=copy.parent, prefix=".")
    try:
        for path in paths:
            _download(file_system, path, Path(unfinished, path.removeprefix(root).lstrip("/")))
        try:
            os.replace(unfinished, copy)
        except OSError:
            if not copy.exists():  # which another process has made meanwhile
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def versions_of(info: Mapping[str, Any]) -> list[str]:
    """Return what a store says of a file's version and time in fsspec's `info`."""
    return [str(info[key]) for key in _VERSION_KEYS if info.get(key) is not None]


def _not_fetched(url: str, error: Exception) -> str:
    return (
        f"cannot fetch the model file {url}: {type(error).__name__}: {error}; check the URL, the network and your "
        "credentials for it"
    )


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
