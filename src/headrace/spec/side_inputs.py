"""Which side inputs the steps of a pipeline file name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.spec.document import Path
    from headrace.spec.model import PipelineSpec, Step


def unknown_side_inputs(spec: PipelineSpec) -> Iterator[tuple[Path, str]]:
    """Yield the place of each name that is no side input, or none of this kind, with what is wrong with it."""
    before: list[str] = []
    for name, side in spec.side_inputs.items():
        yield from _unknown(side.steps, ("side_inputs", name), before, spec)
        before.append(name)
    yield from _unknown(spec.steps, (), before, spec)


def _unknown(
    steps: Sequence[Step], place: Path, known: Sequence[str], spec: PipelineSpec
) -> Iterator[tuple[Path, str]]:
    indexes = [name for name in known if spec.side_inputs[name].index is not None]
    for position, step in enumerate(steps):
        at = (*place, "steps", position, step.kind)
        for name in (getattr(step.value, "side_inputs", None) or {}).values():
            if name not in known:
                yield (*at, "side_inputs"), _no_side_input(name, known, spec)
        if step.kind == "search" and step.value.index not in indexes:
            name = step.value.index
            wrong = f"{name!r} is no index; it has no index:" if name in known else _no_side_input(name, known, spec)
            yield (*at, "index"), wrong


def _no_side_input(name: str, known: Sequence[str], spec: PipelineSpec) -> str:
    if name in spec.side_inputs:
        return f"{name!r} is made later, or of this; a side input may use those that stand above it"
    hint = suggestion(name, known) or (f" there are {', '.join(known)}" if known else " there are none")
    return f"there is no side input {name!r};{hint}"
