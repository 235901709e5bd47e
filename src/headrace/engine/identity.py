"""What makes two runs the same job: the content of steps, models and settings that change the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.engine.commit.identity import JobIdentity
from headrace.plan.fingerprint import Unfingerprintable, file_digest, fingerprint
from headrace.plan.nodes import Limit, MapBatches, Read, RunInference, Shuffle, Union, upstreams

if TYPE_CHECKING:
    from headrace.plan.graph import AnyNode, Plan
    from headrace.plan.nodes import Write


def identity_of(plan: Plan, output: Write) -> JobIdentity:
    """Fingerprint every node behind an output; what cannot be fingerprinted is listed with its reason.

    Batch size (where it cannot change the result), concurrency, isolation and on_error do not count. The content of the
    input is compared split by split elsewhere, so that a change can be named.
    """
    components: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for node in _behind(plan, output):
        label, content = _content(plan, node)
        try:
            components[label] = fingerprint(content)
        except Unfingerprintable as reason:
            unknown[label] = str(reason)
    return JobIdentity(components=components, unknown=unknown)


def _behind(plan: Plan, output: Write) -> list[AnyNode]:
    wanted: set[int] = set()
    stack: list[Any] = [output.upstream]
    while stack:
        node = stack.pop()
        if id(node) not in wanted:
            wanted.add(id(node))
            stack.extend(upstreams(node))
    return [node for node in plan.nodes if id(node) in wanted]


def _content(plan: Plan, node: AnyNode) -> tuple[str, Any]:
    name = plan.name_of(node)
    if isinstance(node, Read):
        return f"source {name}", (node.columns, node.shuffle_seed, _settings(node.source))
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
        if handler is None:
            handler = (spec.handler, [file_digest(path) for path in spec.handler.model_files()])
        return f"model {name}", (handler, spec.inputs, spec.output, spec.model_id_column, dict(spec.inference_args))
    if isinstance(node, Limit):
        return f"step {name}", ("limit", node.rows)
    if isinstance(node, Shuffle):
        return f"step {name}", ("shuffle", node.seed, node.buffer_rows)
    return f"step {name}", ("union", len(node.upstreams)) if isinstance(node, Union) else "reshuffle"


def _settings(source: Any) -> Any:
    """A source's settings that change rows; its files are compared by content."""
    settings = getattr(source, "settings", None)
    return settings() if callable(settings) else source
