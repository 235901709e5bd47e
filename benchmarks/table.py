"""The table of docs/performance.md, made from the saved results and from nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def table(folder: Path) -> str:
    """Return a Markdown table of all saved results (quick looks left out), with the machine below it."""
    results = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return render([result for result in results if not result["quick"]])


def render(results: list[dict[str, Any]]) -> str:
    """Return results as Markdown.

    >>> print(render([]))
    No results yet: run `python -m benchmarks NAME`.
    """
    if not results:
        return "No results yet: run `python -m benchmarks NAME`."
    lines = ["| benchmark | figure | measured | bar | holds |", "| --- | --- | ---: | ---: | --- |"]
    for result in results:
        name = f"{result['benchmark']}{' --full' * bool(result.get('full'))}"
        for figure, found in result["figures"].items():
            value = f"{found['value']:.4g} {found['unit']}"
            holds = "yes" if found["holds"] else "**no**"
            lines.append(f"| {name} | {figure} | {value} | {found['bar']} {found['unit']} | {holds} |")
    machines = {json.dumps(r["machine"]): r["machine"] for r in results}.values()
    described = sorted(
        {f"{m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB, {m['os']}, Python {m['python']}" for m in machines}
    )
    return "\n".join([*lines, "", f"Measured on: {'; '.join(described)}."])


def replace_in(page: Path, text: str) -> None:
    """Put the table between the two marks of a page.

    Raises:
        ValueError: the page has no marks.
    """
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no lines {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
