"""Programs that show how Headrace is used; each runs on its own with `python -m examples.NAME`."""
