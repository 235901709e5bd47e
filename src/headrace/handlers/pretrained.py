"""What Transformers loads from a model's folder: its settings, its weights and the class for them."""

from __future__ import annotations

import json
import logging
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError, ModelLoadError, PlanError, suggestion
from headrace.handlers.importing import TORCHVISION
from headrace.handlers.packages import require
from headrace.handlers.torch_devices import dtype_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
"""Files that weights of PyTorch lie in."""


def require_transformers(handler_name: str) -> None:
    """Raise MissingDependencyError where Transformers or PyTorch is not installed."""
    require("transformers", package="transformers", extra="huggingface", needed_by=handler_name)
    require("torch", package="torch", extra="huggingface", needed_by=handler_name)


def read_settings(folder: Path, name: str = "config.json") -> dict[str, Any]:
    """Return one of the JSON files of a model's folder; {} where it is not there.

    Raises:
        ModelLoadError: it is no JSON, or no mapping.
    """
    path = folder / name
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ModelLoadError(f"{path} holds a {type(found).__name__}, not the settings of a model")
    return found


def only_reads(folder: Path | None, auto_class: str | None, *, writers: tuple[str, ...]) -> bool:
    """Say whether a model is known to change nothing in itself as it answers, by its class and its settings.

    `writers` are the ends of the names of classes that write texts, and keep caches for that.
    """
    settings = {} if folder is None else read_settings(folder)
    classes = [auto_class or "", *(settings.get("architectures") or ())]
    positions = f"{settings.get('rope_scaling')} {settings.get('rope_parameters')}"
    grows = "dynamic" in positions or "longrope" in positions  # tables of positions, made anew for longer texts
    return any(classes) and not grows and not any(str(name).endswith(writers) for name in classes)


def check_at_least_one(value: int | None, setting: str, *, handler_name: str) -> None:
    """Raise PlanError for a length of nothing: the frameworks take it for none, or count from the end."""
    if value is not None and value < 1:
        raise PlanError(f"{handler_name}: {setting} is {value}; it is at least 1, or None for the model's own")


def quieten() -> None:
    """Keep Transformers' warnings and progress bars out of our output, unless the user asked for a verbosity of theirs.

    What they warn of and matters (weights that are missing, texts that are too long) is told by the handlers.
    """
    import transformers

    logger = logging.getLogger("transformers")
    if logger.level in (logging.NOTSET, logging.WARNING):  # as it is without TRANSFORMERS_VERBOSITY
        transformers.logging.set_verbosity_error()
        warnings.filterwarnings("ignore", category=UserWarning, module="transformers")
    transformers.logging.disable_progress_bar()


@contextmanager
def loading(what: str, *, handler_name: str) -> Iterator[None]:
    """Turn what Transformers raises while it loads `what` into an error that says what to do.

    Raises:
        ModelLoadError: names the cause in a line or two.
    """
    try:
        yield
    except (HeadraceError, MemoryError):
        raise
    except Exception as error:
        text = str(error)
        if "trust_remote_code" in text:
            told = (
                "it brings code of whoever wrote it, which would run on this machine; read it, and if you trust it "
                "pass trust_remote_code=True"
            )
        elif "Weights only load failed" in text or "weights_only" in text:
            told = (
                "its weights are a pickle that holds more than tensors, and loading it could run code of whoever wrote "
                "it; save them as safetensors: model.save_pretrained(folder)"
            )
        else:
            told = _line(error) if error.__cause__ is None else f"{_line(error)} ({_line(error.__cause__)})"
            if "torchvision" in told:
                told += f"; {TORCHVISION}"
        raise ModelLoadError(f"{handler_name}: cannot load {what}: {told}") from error


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:500]}" if text else type(error).__name__


def check_weights(folder: Path, *, handler_name: str) -> None:
    """Raise ModelLoadError where a folder has no weights that PyTorch could load."""
    if not any(next(folder.glob(pattern), None) for pattern in WEIGHTS):
        others = [path.name for kind in ("h5", "msgpack", "onnx", "gguf") for path in folder.glob(f"*.{kind}")]
        found = f"; {', '.join(others[:3])} is for another framework" if others else ""
        raise ModelLoadError(f"{handler_name}: folder {folder} holds no weights ({' or '.join(WEIGHTS)}){found}")


def model_class(folder: Path, *, auto_class: str | None = None, choices: Sequence[Any] = ()) -> Any:
    """Return the class that loads a model: the one asked for, the first choice that knows it, or its own.

    Raises:
        PlanError: Transformers has no class of that name.
    """
    import transformers

    if auto_class is not None:
        if not hasattr(transformers, auto_class):
            known = [name for name in dir(transformers) if name.startswith("AutoModel")]
            raise PlanError(
                f"Transformers has no class {auto_class!r};{suggestion(auto_class, known) or ' it is one like'} "
                f"{', '.join(known[:4])}"
            )
        return getattr(transformers, auto_class)
    settings = read_settings(folder)
    kind = settings.get("model_type")
    if isinstance(kind, str) and choices:
        config_class = type(transformers.AutoConfig.for_model(kind)) if kind in transformers.CONFIG_MAPPING else None
        for choice in choices:
            if config_class in getattr(choice, "_model_mapping", {}):
                return choice
    own = next((getattr(transformers, name, None) for name in settings.get("architectures") or ()), None)
    return own or (choices[0] if choices else transformers.AutoModel)


def load_tokenizer(folder: Path, *, handler_name: str, **options: Any) -> Any:
    """Load a model's tokenizer.

    Raises:
        ModelLoadError: it cannot be loaded, or knows no word: Transformers makes an empty one where its files are gone.
    """
    import transformers

    with loading(f"the tokenizer of {folder} (if it is elsewhere, pass tokenizer=)", handler_name=handler_name):
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), **options)
    if len(tokenizer) <= len(set(tokenizer.all_special_ids)):
        raise ModelLoadError(
            f"{handler_name}: folder {folder} holds no tokenizer; if it is elsewhere, pass tokenizer=, a folder or an "
            "id of the Hub"
        )
    return tokenizer


def load_module(
    class_: Any,
    folder: Path,
    *,
    name: str,
    handler_name: str,
    dtype: str | None,
    options: Mapping[str, Any],
    trust_remote_code: bool,
    spare: Sequence[str] = (),
) -> Any:
    """Load a model's weights, as data: safetensors, or pickles of tensors alone.

    Raises:
        ModelLoadError: they cannot be loaded, or some are missing that are not under `spare`: Transformers would fill
            them with random numbers.
    """
    given = dict(options)
    if dtype is not None:
        given["dtype"] = dtype_of(dtype, needed_by=handler_name)
    if trust_remote_code:
        given["trust_remote_code"] = True
    elif class_.__name__.startswith("AutoModel"):  # the classes for one architecture know no such option
        given["trust_remote_code"] = False
    with loading(name, handler_name=handler_name):
        module, told = class_.from_pretrained(str(folder), output_loading_info=True, **given)
    missing = [key for key in sorted(told["missing_keys"]) if not any(part in key.split(".") for part in spare)]
    misfits = [str(key[0] if isinstance(key, tuple) else key) for key in told.get("mismatched_keys") or ()]
    if missing or misfits:
        lacking = ", ".join((missing or misfits)[:3])
        architectures = ", ".join(read_settings(folder).get("architectures") or ()) or "unknown"
        raise ModelLoadError(
            f"{handler_name}: {name} has no weights for {lacking}{', …' if len(missing or misfits) > 3 else ''} of "
            f"{type(module).__name__}, and answers of random weights mean nothing. Its weights are for {architectures}"
        )
    return module.eval()
