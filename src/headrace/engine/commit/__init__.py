"""Commit: rows in any order become parts in the order of the input, once each, whatever dies when."""
