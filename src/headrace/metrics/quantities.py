"""Numbers as people read them."""

from __future__ import annotations

import re


def amount(nbytes: float) -> str:
    """Write a number of bytes as people read it.

    >>> amount(999), amount(1_500_000), amount(2.5e13)
    ('999 B', '1.5 MB', '25.0 TB')
    """
    if nbytes < 1000:
        return f"{nbytes:.0f} B"
    for unit in ("kB", "MB", "GB"):
        nbytes /= 1000
        if nbytes < 1000:
            return f"{nbytes:.1f} {unit}"
    return f"{nbytes / 1000:.1f} TB"


def duration(secs: float) -> str:
    """Write a duration as people read it.

    >>> duration(2.04), duration(75), duration(7384)
    ('2.0 s', '1 min 15 s', '2 h 3 min')
    """
    if secs < 60:
        return f"{secs:.1f} s"
    minutes, rest = divmod(round(secs), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Write a number and its noun.

    >>> count(1, "part"), count(2_000, "row"), count(2, "batch", "batches")
    ('1 part', '2,000 rows', '2 batches')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def percent(share: float) -> str:
    """Write a share.

    >>> percent(0.974)
    '97 %'
    """
    return f"{100 * share:.0f} %"


def nbytes_of(text: str | int) -> int:
    """Read a number of bytes as people write it; kB, MB, GB are powers of 1000, KiB, MiB, GiB of 1024.

    >>> nbytes_of("1GB"), nbytes_of("1.5 GiB"), nbytes_of("512m"), nbytes_of(4096)
    (1000000000, 1610612736, 512000000, 4096)

    Raises:
        ValueError: it is no number of bytes, or not above 0.
    """
    found = re.fullmatch(r"\s*([\d.]+)\s*([kmgt]?)(i?)b?\s*", str(text), re.IGNORECASE)
    try:
        number = float(found[1]) if found else 0.0
    except ValueError:
        number = 0.0
    if not found or number <= 0 or isinstance(text, bool):
        raise ValueError(f"{text!r} is no number of bytes; write it like '512MB', '1.5GB' or '2GiB'")
    return int(number * (1024 if found[3] else 1000) ** " kmgt".index(found[2].lower() or " "))
