"""Many models behind one step: each row names the one that answers it."""

from __future__ import annotations

import glob
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headrace.errors import PlanError, UnknownKeyError, suggestion
from headrace.model.handler import ModelHandler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SHOWN_NAMES, SHOWN_CHARS = 10, 80
"""How many names of models a message lists, and how much of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """How much memory the models of a step may take together; those that do not fit take turns.

    `cpu` is bytes, or text such as "2GB"; None is half of the run's memory limit. Each model then runs in a process of
    its own, which gives its memory back when it leaves, and is measured with its interpreter: a few tens of megabytes.

    `gpu` is the same for each GPU, or a mapping from GPUs, by index or UUID, to bytes; "auto" is nine tenths of each
    that models make use of. Then each model belongs to one GPU, and keeps to both bounds. None: GPUs are not bounded.

    >>> MemoryBudget(cpu="2GB").cpu
    '2GB'
    >>> MemoryBudget(gpu={0: "20GB", 1: "8GB"}).gpu
    {0: '20GB', 1: '8GB'}
    """

    cpu: int | str | None = None
    gpu: int | str | Mapping[int | str, int | str] | None = None


class KeyedModelHandler(ModelHandler[Any]):
    """Routes each row to the model that its key names, or every row to every model. It is data: see `run_inference`.

    >>> import headrace as hr
    >>> from headrace.handlers.function import FunctionModelHandler
    >>> models = {
    ...     "en": FunctionModelHandler(lambda texts: [text.upper() for text in texts]),
    ...     "fr": FunctionModelHandler(lambda texts: [text.title() for text in texts]),
    ... }
    >>> rows = hr.from_items([{"lang": "fr", "text": "oui"}, {"lang": "en", "text": "yes"}])
    >>> rows.run_inference(hr.KeyedModelHandler(models, key="lang"), inputs="text").drop("text").take(2)
    [{'lang': 'fr', 'prediction': 'Oui', 'model_id': 'fr'}, {'lang': 'en', 'prediction': 'YES', 'model_id': 'en'}]

    A row whose key names no model fails, as one that its model cannot answer does; so do the rows of a model that
    cannot be loaded. Models may be of different kinds. The column `model_id` has their names.
    """

    def __init__(
        self,
        models: Mapping[str, ModelHandler[Any]],
        *,
        key: str | Callable[[dict[str, Any]], Any] | None = None,
        mode: Literal["route", "all"] = "route",
        labelled: bool = False,
    ) -> None:
        """Name the models.

        Args:
            models: handlers by name.
            key: column with the name of each row's model, or a function from a row to it; numbers count as text.
            mode: "route" asks the model that the key names; "all" asks all of them, so that they can be compared: the
                answer is a struct with a field for each name, or goes to the columns that `output={name: column}` says.
                The report tells on how many rows they agree.
            labelled: with mode="all" the answer is a list of text instead, `name:label` of each model.
        """
        self.models: dict[str, ModelHandler[Any]] = {str(name): handler for name, handler in dict(models).items()}
        self.key, self.mode, self.labelled = key, mode, labelled
        self.pattern: str | None = None
        self.make: Callable[[str], ModelHandler[Any]] | None = None
        _check(self)

    @classmethod
    def from_pattern(
        cls,
        pattern: str,
        *,
        make: Callable[[str], ModelHandler[Any]],
        key: str | Callable[[dict[str, Any]], Any],
    ) -> KeyedModelHandler:
        """Find each model where a pattern says, when its first row comes: for thousands of them.

        >>> from headrace.handlers.onnx import OnnxModelHandler
        >>> keyed = KeyedModelHandler.from_pattern("models/{key}/model.onnx", make=OnnxModelHandler, key="customer")
        >>> keyed.handler_of("acme").model_files()
        ('models/acme/model.onnx',)

        Args:
            pattern: a path or URL with `{key}` in it. A key that would lead elsewhere (with a slash in it, "..", in
                URLs also with ?, # or %) names no model.
            make: makes the handler of a path, such as a handler's class.
            key: as in the constructor.
        """
        made = cls.__new__(cls)
        made.models, made.key, made.mode, made.labelled = {}, key, "route", False
        made.pattern, made.make = pattern, make
        _check(made)
        return made

    def handler_of(self, name: str | None) -> ModelHandler[Any]:
        """Return the handler of one model.

        Raises:
            UnknownKeyError: there is none of that name.
        """
        if name is not None and name in self.models:
            return self.models[name]
        if self.pattern is not None and self.make is not None:
            if name is None or not _is_part(name, of=self.pattern):
                what = "is null" if name is None else f"{shown(name)} names no model"
                raise UnknownKeyError(f"the key {what}; it becomes a part of {self.pattern}")
            return self.make(self.pattern.replace("{key}", name))
        what = "the key is null" if name is None else f"there is no model {shown(name)}"
        hint = "" if name is None else suggestion(name, self.models)
        more = ", …" if len(self.models) > SHOWN_NAMES else ""
        raise UnknownKeyError(f"{what};{hint} Models: {', '.join(list(self.models)[:SHOWN_NAMES])}{more}")

    def sizes(self) -> dict[str, int]:
        """Return how much memory models take, as far as their handlers say."""
        return {name: one.model_bytes for name, one in self.models.items() if one.model_bytes is not None}

    def model_files(self) -> Sequence[str]:
        """List the files of all models; of a pattern those that are there now."""
        from headrace.model.files import (
            is_local,
            local_path,
        )  # with all that copies files, which most programs need not

        if self.pattern is not None:
            if not is_local(self.pattern):
                return []
            parts = str(local_path(self.pattern)).split("{key}")
            return sorted(glob.glob("*".join(map(glob.escape, parts))))
        return [file for handler in self.models.values() for file in handler.model_files()]

    def check(self) -> None:
        """Check all handlers; those of a pattern when they are met."""
        for handler in self.models.values():
            handler.check()

    def preload(self) -> None:
        """Import what the handlers will need, once for each kind of them."""
        for handler in {type(handler): handler for handler in self.models.values()}.values():
            handler.preload()

    def load_model(self) -> Any:
        """Refuse: each of the models is loaded by its own handler."""
        raise PlanError("KeyedModelHandler is no model itself; pass it to Dataset.run_inference")

    def run_inference(self, batch: Any, model: Any, inference_args: Mapping[str, Any] | None = None) -> Any:
        """Refuse, likewise."""
        raise PlanError("KeyedModelHandler is no model itself; pass it to Dataset.run_inference")


def shown(name: str) -> str:
    """Write a key for messages, which come once a row: a long one is cut.

    >>> shown("a" * 1000)[-6:], shown("fi")
    ("aaaa…'", "'fi'")
    """
    return repr(name if len(name) <= SHOWN_CHARS else name[:SHOWN_CHARS] + "…")


def _is_part(name: str, *, of: str) -> bool:
    """Say whether a key stays within the place where a pattern has it.

    >>> [_is_part(name, of="m/{key}.pkl") for name in ("acme", "a:b", "../x", "..")]
    [True, True, False, False]
    >>> [_is_part(name, of="s3://m/{key}/a") for name in ("acme", "a?b", "%2e%2e", "x::http:")]
    [True, False, False, False]
    """
    if name in ("", ".", "..") or any(letter in "/\\" or ord(letter) < ord(" ") for letter in name):
        return False
    before = of.partition("{key}")[0]
    if "/" not in before and (name.startswith("~") or ":" in name):  # a home, or another kind of URL
        return False
    return "://" not in of or not any(part in name for part in ("?", "#", "%", "*", "[", "::"))


def _check(keyed: KeyedModelHandler) -> None:
    if keyed.mode not in ("route", "all"):
        raise PlanError(f"mode is {keyed.mode!r}; 'route' asks the model that the key names, 'all' asks every model")
    if keyed.mode == "route" and not (callable(keyed.key) or (isinstance(keyed.key, str) and keyed.key)):
        raise PlanError(f"key is {keyed.key!r}; pass the column that names each row's model, or a function of the row")
    if keyed.mode == "all" and keyed.key is not None:
        raise PlanError("mode='all' asks every model about every row; leave key= out, or use mode='route'")
    if keyed.labelled and keyed.mode != "all":
        raise PlanError("labelled=True is for mode='all'; where a key names the model, model_id says which it was")
    if keyed.pattern is not None:
        if "{key}" not in keyed.pattern:
            raise PlanError(f"{keyed.pattern!r} has no {{key}} in it, so that all keys would name the same model")
        return
    if not keyed.models:
        raise PlanError("KeyedModelHandler has no models; pass a mapping from names to handlers")
    for name, handler in keyed.models.items():
        if not isinstance(handler, ModelHandler) or isinstance(handler, KeyedModelHandler):
            raise PlanError(f"model {name!r} is {handler!r}; pass a ModelHandler for one model")
