"""The kinds of model that have a short name: `kind:path` on the command line and in pipeline files."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError, PlanError, suggestion
from headrace.handlers.packages import is_installed
from headrace.model.handler import ModelHandler

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How models of one kind are named and what runs them."""

    module: str
    """Module of the handler class."""
    class_name: str
    path_argument: str
    """Keyword that takes the path."""
    package: str | None
    """The framework's package; None where Headrace alone will do."""
    import_name: str | None
    extra: str | None
    usage: str
    """An example of the name."""
    suffixes: tuple[str, ...] = ()
    first_argument: str | None = None
    """Keyword that takes what stands in front of the path, in names of two parts."""


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "sklearn": Kind(
            module="headrace.handlers.sklearn",
            class_name="SklearnModelHandler",
            path_argument="path",
            package="scikit-learn",
            import_name="sklearn",
            extra="sklearn",
            usage="sklearn:model.pkl (pickle, joblib or skops)",
            suffixes=(".pkl", ".pickle", ".joblib", ".skops"),
        ),
        "onnx": Kind(
            module="headrace.handlers.onnx",
            class_name="OnnxModelHandler",
            path_argument="path",
            package="onnxruntime",
            import_name="onnxruntime",
            extra="onnx",
            usage="onnx:model.onnx",
            suffixes=(".onnx",),
        ),
        "torchscript": Kind(
            module="headrace.handlers.torch",
            class_name="TorchModelHandler",
            path_argument="torchscript_path",
            package="torch",
            import_name="torch",
            extra="torch",
            usage="torchscript:model.pt",
            suffixes=(".pt", ".pth"),
        ),
        "torch-export": Kind(
            module="headrace.handlers.torch",
            class_name="TorchModelHandler",
            path_argument="exported_path",
            package="torch",
            import_name="torch",
            extra="torch",
            usage="torch-export:model.pt2",
            suffixes=(".pt2",),
        ),
        "xgboost": Kind(
            module="headrace.handlers.xgboost",
            class_name="XGBoostModelHandler",
            path_argument="path",
            package="xgboost",
            import_name="xgboost",
            extra="xgboost",
            usage="xgboost:model.ubj (or .json)",
            suffixes=(".ubj", ".json"),
        ),
        "lightgbm": Kind(
            module="headrace.handlers.lightgbm",
            class_name="LightGBMModelHandler",
            path_argument="path",
            package="lightgbm",
            import_name="lightgbm",
            extra="lightgbm",
            usage="lightgbm:model.txt",
            suffixes=(".txt",),
        ),
        "catboost": Kind(
            module="headrace.handlers.catboost",
            class_name="CatBoostModelHandler",
            path_argument="path",
            package="catboost",
            import_name="catboost",
            extra="catboost",
            usage="catboost:model.cbm (or .json)",
            suffixes=(".cbm",),
        ),
        "timm": Kind(
            module="headrace.handlers.timm",
            class_name="TimmModelHandler",
            path_argument="model",
            package="timm",
            import_name="timm",
            extra="timm",
            usage="timm:resnet50.a1_in1k, or a folder: timm:./model",
        ),
        "hf": Kind(
            module="headrace.handlers.huggingface",
            class_name="HuggingFaceModelHandler",
            path_argument="model",
            package="transformers",
            import_name="transformers",
            extra="huggingface",
            usage="hf:FOLDER (or its URL, or an id of the Hub)",
        ),
        "hf-pipeline": Kind(
            module="headrace.handlers.huggingface",
            class_name="HuggingFacePipelineModelHandler",
            first_argument="task",
            path_argument="model",
            package="transformers",
            import_name="transformers",
            extra="huggingface",
            usage="hf-pipeline:TASK:FOLDER (text-classification, image-classification, ...)",
        ),
        "sentence-transformers": Kind(
            module="headrace.handlers.sentence_transformers",
            class_name="SentenceTransformerModelHandler",
            path_argument="model",
            package="sentence-transformers",
            import_name="sentence_transformers",
            extra="sentence-transformers",
            usage="sentence-transformers:all-MiniLM-L6-v2 (a folder, or an id on the Hugging Face Hub)",
        ),
        "keras": Kind(
            module="headrace.handlers.keras",
            class_name="KerasModelHandler",
            path_argument="path",
            package="keras",
            import_name="keras",
            extra="keras",
            usage="keras:model.keras (or .h5)",
            suffixes=(".keras", ".h5", ".hdf5"),
        ),
        "keras-hub": Kind(
            module="headrace.handlers.keras_hub",
            class_name="KerasHubModelHandler",
            path_argument="path",
            package="keras-hub",
            import_name="keras_hub",
            extra="keras-hub",
            usage="keras-hub:FOLDER (a preset: Gemma and other language models, text classifiers)",
        ),
        "tensorflow": Kind(
            module="headrace.handlers.tensorflow",
            class_name="TensorFlowModelHandler",
            path_argument="path",
            package="tensorflow",
            import_name="tensorflow",
            extra="tensorflow",
            usage="tensorflow:FOLDER (a SavedModel)",
            suffixes=(".pb",),
        ),
        "python": Kind(
            module="headrace.handlers.function",
            class_name="FunctionModelHandler",
            path_argument="fn",
            package=None,
            import_name=None,
            extra=None,
            usage="python:module:HandlerClass (or a function over a batch; the current folder is searched too)",
        ),
    }
)

_WIDTH = max(map(len, KINDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """Whether one kind of model can be run here."""

    kind: str
    usage: str
    package: str | None
    version: str | None
    """Installed version of the package; None where it is missing, or none is needed."""
    installed: bool
    install: str | None
    """The command that installs it; None where nothing is missing."""

    def __str__(self) -> str:
        state = (
            f"missing; {self.install}" if self.install else f"{self.package or 'built in'} {self.version or ''}".strip()
        )
        return f"{self.kind:<{_WIDTH}} {state}\n{'':<{_WIDTH}} {self.usage}"


def make_handler(model: str, **options: Any) -> ModelHandler[Any]:
    """Make the handler for a model named as `kind:path`; `options` are the handler's further arguments.

    >>> make_handler("sklearn:churn.pkl", method="predict_proba").model_id
    'churn.pkl'
    >>> make_handler("sklaern:churn.pkl")
    Traceback (most recent call last):
    headrace.errors.PlanError: 'sklaern' is no kind of model; did you mean 'sklearn'? Kinds: sklearn, onnx, ...

    Raises:
        PlanError: the kind, the reference or an option is unknown.
    """
    kind, colon, path = model.partition(":")
    if not colon or kind not in KINDS:
        raise PlanError(_unknown_kind(model, kind if colon else ""))
    if not path:
        raise PlanError(f"{model!r} names no model; write it like {KINDS[kind].usage}")
    if kind == "python":
        return _from_reference(path, options)
    entry = KINDS[kind]
    handler_class = getattr(importlib.import_module(entry.module), entry.class_name)
    arguments = {}
    if entry.first_argument is not None:
        first, _, path = path.partition(":")
        if not (first and path):
            raise PlanError(f"{model!r} names one part of two; write it like {entry.usage}")
        arguments[entry.first_argument] = first
    return _made(handler_class, {**arguments, entry.path_argument: path, **options})


def installed() -> list[Installed]:
    """Say for each kind whether its framework is here, without importing it."""
    return [_state(name, kind) for name, kind in KINDS.items()]


def _state(name: str, kind: Kind) -> Installed:
    here = kind.import_name is None or is_installed(kind.import_name)
    return Installed(
        kind=name,
        usage=kind.usage,
        package=kind.package,
        version=_version(kind.package) if here else None,
        installed=here,
        install=None if here else f"pip install 'headrace[{kind.extra}]'",
    )


def _version(package: str | None) -> str | None:
    if package is None:
        return None
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # installed under another name, such as onnxruntime-gpu
        return None


def _unknown_kind(model: str, kind: str) -> str:
    kinds = ", ".join(KINDS)
    if kind and "/" not in kind:
        return f"{kind!r} is no kind of model;{suggestion(kind, KINDS)} Kinds: {kinds}"
    fitting = next((name for name, entry in KINDS.items() if Path(model).suffix in entry.suffixes), "sklearn")
    return (
        f"{model!r} does not say what kind of model it is; write kind:path, such as {fitting}:{model}. Kinds: {kinds}"
    )


def _from_reference(reference: str, options: Mapping[str, Any]) -> ModelHandler[Any]:
    module_name, _, attribute = reference.partition(":")
    if not attribute:
        raise PlanError(f"python:{reference} names no class; write it like {KINDS['python'].usage}")
    found: Any = _imported(module_name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            names = [name for name in vars(found) if not name.startswith("_")] if hasattr(found, "__dict__") else []
            hint = suggestion(part, names) or f" it has {', '.join(names) or 'no public names'}"
            raise PlanError(f"python:{reference}: {module_name} has no {part!r};{hint}")
        found = getattr(found, part)
    if isinstance(found, ModelHandler):
        return found
    if isinstance(found, type) and issubclass(found, ModelHandler):
        return _made(found, options)
    if callable(found):
        from headrace.handlers.function import FunctionModelHandler

        return _made(FunctionModelHandler, {"fn": found, **options})
    raise PlanError(f"python:{reference} is a {type(found).__name__}; a ModelHandler class or a function is needed")


def _imported(module_name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # for good, since workers and later imports of that module need it as well
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise PlanError(f"there is no module {module_name!r} in {here} or among the installed packages") from error
        raise PlanError(f"module {module_name!r} needs {error.name!r}, which is not installed") from error
    except HeadraceError:
        raise
    except Exception as error:
        raise PlanError(f"module {module_name!r} cannot be imported: {type(error).__name__}: {error}") from error


def _made(handler_class: Any, arguments: Mapping[str, Any]) -> ModelHandler[Any]:
    parameters = inspect.signature(handler_class).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in arguments:
        if name not in parameters and not open_ended:
            raise PlanError(
                f"{handler_class.__name__} has no option {name!r};{suggestion(name, parameters)} "
                f"Options: {', '.join(parameters) or 'none'}"
            )
    try:
        handler: ModelHandler[Any] = handler_class(**arguments)
    except HeadraceError:
        raise
    except Exception as error:
        raise PlanError(f"{handler_class.__name__} cannot be made: {type(error).__name__}: {error}") from error
    return handler
