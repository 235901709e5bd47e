"""What makes two runs the same job, and how to say that they are not."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.errors import ResumeError

AFRESH = 'to start afresh pass if_exists="overwrite" (--overwrite), or choose another output'


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """A digest for everything the result depends on, each under the name a person knows it by."""

    components: dict[str, str] = field(default_factory=dict)
    """Digest by name, such as "input", "step map_1", "model run_inference_1"."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Why a component cannot be fingerprinted, by name."""


def differences(then: dict[str, str], now: dict[str, str]) -> list[str]:
    """Say in words which components differ.

    >>> differences({"input": "a", "step map_1": "b"}, {"input": "c", "step map_2": "d"})
    ['input has changed', 'step map_1 is gone', 'step map_2 is new']
    """
    changed = [f"{name} has changed" for name in then if name in now and then[name] != now[name]]
    gone = [f"{name} is gone" for name in then if name not in now]
    new = [f"{name} is new" for name in now if name not in then]
    return changed + gone + new


def check_same_job(folder: str, *, then: JobIdentity, now: JobIdentity, rows: int) -> None:
    """Return if an output begun as `then` may be gone on with as `now`.

    Raises:
        ResumeError: names what has changed or cannot be known, and what to do.
    """
    found = differences(then.components, now.components)
    if found:
        raise ResumeError(
            f"{folder} was begun by another job: {'; '.join(found)}. It holds {rows:,} finished rows; {AFRESH}"
        )
    unknown = {**then.unknown, **now.unknown}
    if unknown:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in unknown.items())
        raise ResumeError(
            f"{folder} holds {rows:,} finished rows, but whether this is the same job cannot be known ({reasons});"
            f" pass version= there, so that later runs can go on; {AFRESH}"
        )
