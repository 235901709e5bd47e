from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def rows(folder: str) -> list[dict[str, Any]]:
    """Read back what was written as JSON Lines."""
    return [json.loads(line) for part in sorted(Path(folder).glob("*.jsonl")) for line in part.read_text().splitlines()]
