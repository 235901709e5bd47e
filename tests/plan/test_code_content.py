import os.path

from headrace.plan.code_content import instructions, uses


def test_globals_are_found_with_the_attributes_that_are_read():
    def function(row):
        return [os.path.join(x, os.sep) for x in row], UNKNOWN, len  # noqa: F821

    found = uses(function.__code__).globals
    assert found == {"os": frozenset({"path", "sep"}), "UNKNOWN": None, "len": None}


def test_a_module_that_is_passed_on_is_used_as_a_whole():
    def function(row):
        return os.sep, id(os)

    assert uses(function.__code__).globals["os"] is None


def test_imports_are_found_in_inner_functions_too():
    def function(row):
        import json.decoder

        def inner():
            from ..c import d
            from . import a, b

            return a, b, d

        return json.decoder, inner

    assert uses(function.__code__).imports == {("json.decoder", ()), (".", ("a", "b")), ("..c", ("d",))}


def test_docstrings_of_inner_classes_and_functions_are_left_out():
    def function():
        class Inner:
            """Docstring."""

            def run(self):
                """Another."""

        return Inner

    def constants(code):
        for _, operand in instructions(code):
            if hasattr(operand, "co_code"):
                yield from constants(operand)
            elif isinstance(operand, str):
                yield operand

    assert not {"Docstring.", "Another."} & set(constants(function.__code__))
