"""Headrace measured beside its peers: `python -m benchmarks --list` from the root of the repository."""
