"""Whether two steps ask the same model in the same way, so that they can share it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.plan.fingerprint import Unfingerprintable, fingerprint

if TYPE_CHECKING:
    from headrace.model.handler import ModelHandler
    from headrace.plan.nodes import RunInference


def same_model(one: RunInference, other: RunInference) -> bool:
    """Say whether one copy can answer for both steps: equal handlers, and equal ways in and out.

    Steps with a `retry` count the attempts of their own rows, so that they share with nobody.
    """
    if one.spec.retry is not None or _way(one) != _way(other):
        return False
    return _same_handler(one.spec.handler, other.spec.handler)


def _way(node: RunInference) -> tuple[Any, ...]:
    spec = node.spec
    return (
        *(node.isolation, node.copies, node.idle_timeout_secs),
        *(spec.inputs, spec.output, spec.prepared, spec.model_id_column, spec.model_id, dict(spec.inference_args)),
        *(spec.retry, spec.timeout_secs),
    )


def _same_handler(one: ModelHandler[Any], other: ModelHandler[Any]) -> bool:
    if one is other:
        return True
    try:
        return fingerprint(one) == fingerprint(other)
    except Unfingerprintable:
        return False
