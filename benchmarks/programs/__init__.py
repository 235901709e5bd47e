"""The work done with Headrace. Each file is a program of its own."""
