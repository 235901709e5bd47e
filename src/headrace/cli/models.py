"""MODEL of `headrace infer`: one model, several by name, or a pattern of which a column names each row's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.handler import ModelHandler

NAMED = re.compile(r"([^=:,/]+)=([^:,/]+:.+)", re.DOTALL)
"""NAME=KIND:PATH; a "=" behind the first colon belongs to a path."""
NEXT = re.compile(r",(?=[^=:,/]+=[^:,/]+:)")
"""A comma that another NAME=KIND: follows."""


def models_by_name(model: str) -> dict[str, str]:
    """Return the references of several models by their names; none where MODEL is a single one.

    >>> models_by_name("en=sklearn:en.pkl,fr=onnx:a,b/fr.onnx"), models_by_name("sklearn:year=2024/a.pkl,b.pkl")
    ({'en': 'sklearn:en.pkl', 'fr': 'onnx:a,b/fr.onnx'}, {})

    Raises:
        PlanError: two have the same name.
    """
    parts = [NAMED.fullmatch(part) for part in NEXT.split(model)]
    named = [(part[1].strip(), part[2].strip()) for part in parts if part is not None]
    if len(named) < len(parts):
        return {}
    models = dict(named)
    if len(models) < len(named):
        names = [name for name, _ in named]
        raise PlanError(
            f"MODEL names {next(name for name in names if names.count(name) > 1)!r} twice; keep one of them"
        )
    return models


def make_model(
    model: str, options: Mapping[str, Any], *, key: str | None, mode: str | None, labelled: bool
) -> ModelHandler[Any]:
    """Make the handler of MODEL; `options` are for each model.

    >>> keyed = make_model("sklearn:models/{key}.pkl", {}, key="customer", mode=None, labelled=False)
    >>> keyed.handler_of("acme").model_id
    'acme.pkl'

    Raises:
        PlanError: a name or an option is wrong, or what is given does not go together.
    """
    from headrace.handlers.registry import make_handler
    from headrace.model.keyed import KeyedModelHandler
    from headrace.spec.keyed import handler_of_pattern, is_pattern, key_of

    models = models_by_name(model)
    if models:
        if key is None and mode is None:
            raise PlanError("MODEL names several models; say which column names each row's with --key, or --mode all")
        made = {name: make_handler(reference, **options) for name, reference in models.items()}
        more: dict[str, Any] = {} if mode is None else {"mode": mode}
        return KeyedModelHandler(made, key=key_of(key), labelled=labelled, **more)
    if mode is not None or labelled:
        flag = "--mode" if mode is not None else "--labelled"
        raise PlanError(f"{flag} is for several models; name them, as in old=onnx:old.onnx,new=onnx:new.onnx")
    if is_pattern(model):
        if key is None:
            raise PlanError(f"{model!r} has {{key}} in it; say with --key which column names the model of each row")
        return handler_of_pattern(model, options, key=key_of(key))
    if key is not None:
        raise PlanError(
            f"--key names the model of each row, and MODEL is {model!r}; make it a pattern such as"
            " sklearn:models/{key}.pkl, or name several, as in en=sklearn:en.pkl,fr=sklearn:fr.pkl"
        )
    return make_handler(model, **options)
