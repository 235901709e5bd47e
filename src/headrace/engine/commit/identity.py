"""What makes two runs the same job, and how to say that they are not."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.errors import ResumeError

SOURCE = "source "
"""Begins the names of what says how the input is read."""
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


def check_same_sources(folder: str, *, then: JobIdentity, now: JobIdentity) -> None:
    """Return if rows of an output begun as `then` are found again by `now`, whatever is done to them.

    Raises:
        ResumeError: the input is read in another way.
    """
    before, after = (
        {name: digest for name, digest in identity.components.items() if name.startswith(SOURCE)}
        for identity in (then, now)
    )
    if found := differences(before, after):
        raise ResumeError(
            f"{folder}: its failed rows cannot be found again, since the input is read in another way than it was:"
            f" {'; '.join(found)}. Read it as it was; functions and models may change"
        )
