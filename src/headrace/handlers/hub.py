"""Models that are folders of files: on this machine, behind a URL, or on the Hugging Face Hub by their id."""

from __future__ import annotations

import functools
import os
import re
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import ModelLoadError, first_line, suggestion
from headrace.handlers.packages import require
from headrace.model.files import file_name, is_local, local_folder, local_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")

_ONE_AT_A_TIME = threading.Lock()
"""The step that prepares inputs and the model ask for the same model at the same moment."""

_TIMEOUT_SECS = 5.0
"""How long the Hub may take to answer whether it has a model; its own client tries for half a minute."""

_OTHER_FRAMEWORKS = (
    *("*.h5", "*.msgpack", "*.ot", "*.tflite", "*.onnx", "*.onnx_data", "*.gguf", "*.mlmodel", "*.nemo"),
    *("onnx/*", "openvino/*", "coreml/*", "tf_model*", "flax_model*", "rust_model*", "original/*", "consolidated*"),
)
"""Files of the Hub that are the same weights for somebody else; they are not fetched."""

_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle")
"""Not fetched either where there are safetensors."""


def is_hub_id(model: str | os.PathLike[str]) -> bool:
    """Say whether a name means a model of the Hub: it looks like an id, and no such folder is here.

    >>> is_hub_id("sentence-transformers/all-MiniLM-L6-v2"), is_hub_id("./model"), is_hub_id("s3://bucket/model")
    (True, False, False)
    """
    name = os.fspath(model)
    return _HUB_ID.fullmatch(name) is not None and not Path(name).exists()


def folder_here(model: str | os.PathLike[str]) -> Path | None:
    """Return a model's folder, if it is on this machine; None for URLs and ids of the Hub.

    >>> folder_here("./models/minilm"), folder_here("org/minilm"), folder_here("s3://bucket/minilm")
    (PosixPath('models/minilm'), None, None)
    """
    return local_path(model) if is_local(model) and not is_hub_id(model) else None


def model_name(model: str | os.PathLike[str], revision: str | None = None) -> str:
    """Return what a model is called: its folder's name, or its id on the Hub with the revision that was asked for.

    >>> model_name("s3://bucket/models/minilm/"), model_name("org/minilm", "v2")
    ('minilm', 'org/minilm@v2')
    """
    if (folder := folder_here(model)) is not None:
        return folder.resolve().name
    if not is_hub_id(model):
        return file_name(model)
    return os.fspath(model) if revision is None else f"{os.fspath(model)}@{revision}"


def check_model(
    model: str | os.PathLike[str],
    *,
    handler_name: str,
    revision: str | None = None,
    holds: Sequence[str] = ("config.json",),
) -> None:
    """Raise if a model is clearly not there; loads and downloads nothing, and URLs are seen only when they are loaded.

    A folder has to hold one of the files `holds`; an id has to be in the cache of the Hub, or on the Hub.

    Raises:
        ModelLoadError: it is not there; says where it was looked for.
        MissingDependencyError: an id is given, and the Hub's client is not installed.
    """
    if is_hub_id(model):
        _check_id(os.fspath(model), revision, holds, handler_name)
    elif (folder := folder_here(model)) is not None:
        check_folder(folder, holds, handler_name)


def check_folder(folder: Path, holds: Sequence[str], handler_name: str) -> None:
    """Raise ModelLoadError if a local folder is not there, or has none of the files that make it a model."""
    if folder.is_file():
        raise ModelLoadError(f"{handler_name}: {folder} is a file; name the folder that it is in")
    if not folder.exists():
        near = suggestion(folder.name, (p.name for p in folder.parent.iterdir())) if folder.parent.is_dir() else ""
        raise ModelLoadError(f"{handler_name}: there is no model folder {folder};{near or ' check the path'}")
    if not any((folder / name).exists() for name in holds):
        inside = [path.name for path in sorted(folder.iterdir())]
        deeper = [path.parent.name for name in holds for path in sorted(folder.glob(f"*/{name}"))]
        advice = f"; did you mean {folder / deeper[0]}?" if deeper else ""
        raise ModelLoadError(
            f"{handler_name}: folder {folder} holds no model, for it has no {' or '.join(holds)}{advice} "
            f"In it: {', '.join(inside[:10]) or 'nothing'}{', …' if len(inside) > 10 else ''}"
        )


def model_folder(
    model: str | os.PathLike[str],
    *,
    handler_name: str,
    revision: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> Path:
    """Return a local folder with a model's files, downloaded where they are not here yet.

    Folders behind URLs are kept under `cache_dir` (as `headrace.model.files.local_folder` says), models of the Hub in
    its own cache. A branch of the Hub stands for the same commit as long as the process lives.

    Raises:
        ModelLoadError: the model cannot be had.
        MissingDependencyError: the package for that kind of URL, or the Hub's client, is not installed.
    """
    if is_hub_id(model):
        with _ONE_AT_A_TIME:
            return _snapshot(os.fspath(model), revision, handler_name)
    return local_folder(model, cache_dir)


def model_files(
    model: str | os.PathLike[str],
    *,
    handler_name: str,
    revision: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> tuple[str, ...]:
    """Return a model's folder, as `ModelHandler.model_files` has to: its content is the model's identity.

    Raises:
        ModelLoadError: the model cannot be had.
    """
    if folder_here(model) is not None:
        return (os.fspath(model),)  # as the user wrote it: where a model lies does not count
    return (str(model_folder(model, handler_name=handler_name, revision=revision, cache_dir=cache_dir)),)


@contextmanager
def reaching_hub(model: str, *, handler_name: str) -> Iterator[None]:
    """Turn what the Hub's client raises inside the block into one error that says what to do.

    Raises:
        ModelLoadError: the Hub cannot be reached, has no such model, or keeps it from us.
    """
    try:
        yield
    except Exception as error:
        told = _told(error)
        if told is None:
            raise
        raise ModelLoadError(f"{handler_name}: cannot get {model!r} from the Hugging Face Hub: {told}") from error


def _check_id(model: str, revision: str | None, holds: Sequence[str], handler_name: str) -> None:
    _require_client(handler_name)
    from huggingface_hub import try_to_load_from_cache

    if any(isinstance(try_to_load_from_cache(model, name, revision=revision), str) for name in holds):
        return
    with _finding(model, revision, handler_name):
        _info(model, revision)


@functools.lru_cache(maxsize=64)
def _snapshot(model: str, revision: str | None, handler_name: str) -> Path:
    _require_client(handler_name)
    from huggingface_hub import snapshot_download

    with _without_bars(), _finding(model, revision, handler_name):
        try:
            info = _info(model, revision)
        except Exception:
            if (cached := _cached(model, revision)) is not None:
                return cached
            raise
        safe = any(file.rfilename.endswith(".safetensors") for file in info.siblings or ())
        unwanted = [*_OTHER_FRAMEWORKS, *(_PICKLED if safe else ())]
        return Path(snapshot_download(model, revision=revision, ignore_patterns=unwanted))


def _cached(model: str, revision: str | None) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    # What was left out when it was downloaded is not missed now; which weights there were, nobody knows here.
    unwanted = [*_OTHER_FRAMEWORKS, *_PICKLED]
    try:
        return Path(snapshot_download(model, revision=revision, ignore_patterns=unwanted, local_files_only=True))
    except LocalEntryNotFoundError:
        return None


@contextmanager
def _without_bars() -> Iterator[None]:
    """Keep the progress bars of the Hub's client from being drawn over our own."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def _require_client(handler_name: str) -> None:
    require("huggingface_hub", package="huggingface_hub", extra="huggingface", needed_by=handler_name)


def _info(model: str, revision: str | None) -> Any:
    from huggingface_hub import HfApi

    return HfApi().model_info(model, revision=revision, timeout=_TIMEOUT_SECS)


@contextmanager
def _finding(model: str, revision: str | None, handler_name: str) -> Iterator[None]:
    """Turn the failures of looking for a model by its id into an error that says where it was looked for."""
    try:
        yield
    except Exception as error:
        told = _told(error)
        if told is None:
            raise
        from huggingface_hub import constants

        at = "" if revision is None else f" (revision {revision!r})"
        raise ModelLoadError(
            f"{handler_name}: {model!r}{at} is no folder here, it is not in the cache of the Hugging Face Hub "
            f"({constants.HF_HUB_CACHE}), and it cannot be got from the Hub: {told}"
        ) from error


def _told(error: Exception) -> str | None:
    """Say in plain words what the Hub's client met, and what to do about it; None: the error is about something else.

    Its classes are told by their names, since they come from modules that differ from version to version.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "OfflineModeIsEnabled" in kinds:
        return "HF_HUB_OFFLINE is set; unset it, or download the model where there is a network and name its folder"
    if "HFValidationError" in kinds:
        return first_line(error)
    if "GatedRepoError" in kinds:
        return "its owner gives it only to those who asked; ask on its page, and set HF_TOKEN"
    if "RepositoryNotFoundError" in kinds:
        return "there is none of that name, or it is private; check the name, or set HF_TOKEN"
    if "RevisionNotFoundError" in kinds:
        return "it has no such revision; check revision="
    if kinds & {"EntryNotFoundError", "HfHubHTTPError", "HTTPStatusError"} and "LocalEntryNotFoundError" not in kinds:
        return f"the Hub answered: {first_line(error)}"
    if kinds & {"TransportError", "LocalEntryNotFoundError", "ConnectionError", "Timeout", "TimeoutError"}:
        return (
            f"it cannot be reached ({first_line(error)}); check the network, or download the model elsewhere and name "
            "its folder"
        )
    return None
