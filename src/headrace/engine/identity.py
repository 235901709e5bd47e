"""What makes two runs the same job: the content of steps, models and settings that change the result."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from typing import TYPE_CHECKING, Any

from headrace.engine.commit.identity import SOURCE, JobIdentity
from headrace.errors import ModelLoadError, PlanError
from headrace.model.files import local_copy
from headrace.model.keyed import KeyedModelHandler
from headrace.plan.data_content import file_digest
from headrace.plan.fingerprint import Unfingerprintable, fingerprint
from headrace.plan.graph import nodes_behind
from headrace.plan.nodes import Limit, MapBatches, Read, RunInference, Shuffle, Union
from headrace.plan.rules import optimised
from headrace.plan.side_inputs import plan_of, side_inputs_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.model.handler import ModelHandler
    from headrace.plan.graph import Plan
    from headrace.plan.nodes import AnyNode, Broadcast, InferenceSpec, Output
    from headrace.sources.source import Source, Split


def identity_of(plan: Plan, output: Output) -> JobIdentity:
    """Fingerprint every node behind an output; what cannot be fingerprinted is listed with its reason.

    Batch size (where it cannot change the result), concurrency, isolation and on_error do not count. The content of the
    input is compared split by split elsewhere, so that a change can be named.
    """
    components: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for node in nodes_behind(plan, output):
        for label, content in _contents(plan, node):
            try:
                components[label] = fingerprint(content)
            except Unfingerprintable as reason:
                unknown[label] = str(reason)
    return JobIdentity(components=components, unknown=unknown)


def _contents(plan: Plan, node: AnyNode) -> list[tuple[str, Any]]:
    if isinstance(node, MapBatches) and node.step.advisory:
        return []
    if not isinstance(node, Read):
        name = plan.name_of(node)
        side = [(f"side input {argument} of {name}", SideContent(b)) for argument, b in side_inputs_of(node)]
        return [_content(plan, node), *side]
    # Apart, since another function may want other columns of the same rows.
    name = plan.name_of(node)
    return [(f"{SOURCE}{name}", (node.shuffle_seed, _settings(node.source))), (f"columns of {name}", node.columns)]


def answers_identity(spec: InferenceSpec, name: str, *, changing: bool = False) -> str:
    """Return a digest of all that decides a model's answer to an input: equal in all jobs that use the model alike.

    Of a model that is `changing` while the job runs its content is left out: answers are kept by version.

    Raises:
        PlanError: the handler cannot be compared with that of another run.
    """
    handler = type(spec.handler)
    content: Any = (handler.__qualname__, spec.version)
    if spec.version is None:
        content = _changing_model(spec.handler) if changing else _model(spec.handler)
    inputs = "column" if isinstance(spec.inputs, str) else spec.inputs
    outputs = None if isinstance(spec.output, str) else tuple(spec.output)
    model_id = None if spec.model_id_column is None or changing else spec.handler.model_id
    settings: Any = (content, inputs, outputs, model_id, dict(spec.inference_args))
    if spec.side_inputs:
        settings = (*settings, [(argument, SideContent(broadcast)) for argument, broadcast in spec.side_inputs])
    try:
        return fingerprint(settings)
    except Unfingerprintable as reason:
        raise PlanError(
            f"step {name!r} cannot keep answers, because whether a later run has the same model cannot be known:"
            f" {reason}; pass version= to the step, or leave cache= and durability= out"
        ) from reason


def _content(plan: Plan, node: AnyNode) -> tuple[str, Any]:
    name = plan.name_of(node)
    if isinstance(node, MapBatches):
        step = node.step
        if step.version is not None:
            return f"step {name}", (step.kind, step.version)
        free = step.kind != "map_batches" or step.row_wise
        size = None if free else step.batch_size
        return f"step {name}", (step.kind, step.function, step.args, step.kwargs, step.batch_format, size)
    if isinstance(node, RunInference):
        spec = node.spec
        handler: Any = spec.version
        if node.updates is not None:
            handler = (handler or _changing_model(spec.handler), getattr(node.updates, "pattern", "announced"))
        elif handler is None:
            handler = _model(spec.handler)
        settings = (handler, spec.inputs, spec.output, spec.model_id_column, dict(spec.inference_args))
        return f"model {name}", settings if spec.key_column is None else (*settings, spec.key_column)
    if isinstance(node, Limit):
        return f"step {name}", ("limit", node.rows)
    if isinstance(node, Shuffle):
        return f"step {name}", ("shuffle", node.seed, node.buffer_rows)
    return f"step {name}", ("union", len(node.upstreams)) if isinstance(node, Union) else "reshuffle"


class SideContent:
    """What decides a side input: its rows, how they are made, and what is built of them."""

    def __init__(self, broadcast: Broadcast) -> None:
        self._broadcast = broadcast

    def __headrace_fingerprint__(self) -> Any:
        """Return the digests of all that.

        Raises:
            Unfingerprintable: something of it has no content.
        """
        broadcast = self._broadcast
        plan = optimised(plan_of(broadcast), on_error="fail")
        identity = identity_of(plan, plan.outputs[0])
        if identity.unknown:
            raise Unfingerprintable("; ".join(f"{name}: {reason}" for name, reason in identity.unknown.items()))
        rows = [_rows_digest(read.source, split) for read in plan.reads() for split in read.source.splits()]
        return identity.components, rows, broadcast.build if broadcast.version is None else broadcast.version


def _rows_digest(source: Source, split: Split) -> str:
    """Return the digest of a split's content; one that is as it was is not read again by this process."""
    key = (type(source), split.label, source.version(split))
    if key not in _digests:
        _digests[key] = source.fingerprint(split)
    return _digests[key]


_digests: dict[tuple[type, str, str], str] = {}


def _settings(source: Any) -> Any:
    """A source as it was asked for: what it has learnt of its files since is compared by their content, keys expire."""
    if not dataclasses.is_dataclass(source) or isinstance(source, type):
        return source
    fields = {
        field.name: _settings(getattr(source, field.name))
        for field in dataclasses.fields(source)
        if field.compare and "compared" not in field.metadata  # files are compared one by one, whatever names them
    }
    return type(source), fields


def _model(handler: ModelHandler[Any]) -> Any:
    """A handler's settings and the content of its model's files, wherever those lie."""
    if isinstance(handler, KeyedModelHandler) and handler.pattern is None:
        return type(handler), {name: _model(one) for name, one in handler.models.items()}
    files = list(handler.model_files())
    try:
        digests = [_digest_of(str(local_copy(path))) for path in files]
    except OSError as error:
        raise ModelLoadError(f"{type(handler).__name__} cannot read its model: {error}; check the path") from error
    settings = {key: value for key, value in getattr(handler, "__dict__", {}).items() if str(value) not in files}
    if isinstance(handler, KeyedModelHandler):
        settings.pop("key")  # a step of its own where it is a function
    return type(handler), settings if files else handler, digests


def _changing_model(handler: ModelHandler[Any]) -> Any:
    """A handler's settings alone, where its model is whatever is newest: it runs on with another one."""
    return type(handler), handler.with_model("")


def content_digest(files: Sequence[str], handler: ModelHandler[Any]) -> str:
    """Return a digest of a handler's model files, wherever they lie; "" where there are none.

    Raises:
        ModelLoadError: they cannot be read.
    """
    try:
        digests = [_digest_of(str(local_copy(path, getattr(handler, "cache_dir", None)))) for path in files]
    except OSError as error:
        raise ModelLoadError(f"{type(handler).__name__} cannot read its model: {error}; check the path") from error
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest() if digests else ""


def _digest_of(path: str) -> str:
    """Return the digest of a model's file or folder; a file that is as it was is not read again by this process."""
    if os.path.isdir(path):
        return file_digest(path)
    found = os.stat(path)
    return _digest_once(path, found.st_size, found.st_mtime_ns, found.st_ino)


@functools.lru_cache(maxsize=64)
def _digest_once(path: str, *_version: int) -> str:
    return file_digest(path)
