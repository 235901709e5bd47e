"""From a pipeline file to a checked pipeline: every fault in it, in one go, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from headrace.errors import SpecError
from headrace.spec.document import Document, parse, show_path
from headrace.spec.model import PipelineSpec
from headrace.spec.overrides import override
from headrace.spec.problems import add_problems, show
from headrace.spec.side_inputs import unknown_side_inputs

if TYPE_CHECKING:
    from collections.abc import Sequence


def load_spec(file: str, *, settings: Sequence[str] = ()) -> PipelineSpec:
    """Read and check a pipeline file; `settings` are values such as "sink.path=out" that replace the file's.

    The user's modules are imported and handlers made, so that wrong names are found; no model is loaded, no data read
    and nothing written. Raises SpecError with all faults that were found.
    """
    document = parse(_read(file))
    if not document.problems:
        override(document, settings)
    spec = _check(document)
    if spec is None or document.problems:
        raise SpecError(file, document.problems)
    return spec


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise SpecError(file, ["there is no such file"]) from error
    except IsADirectoryError as error:
        raise SpecError(file, ["this is a folder; name the pipeline's file in it"]) from error
    except UnicodeDecodeError as error:
        raise SpecError(file, [f"byte {error.start} is no UTF-8; save the file as UTF-8 text"]) from error
    except OSError as error:
        raise SpecError(file, [f"cannot be read: {error.strerror}"]) from error


def _check(document: Document) -> PipelineSpec | None:
    if document.data is None and not document.problems:
        document.complain((), "the file is empty; a pipeline has the keys source, steps and sink")
    elif not isinstance(document.data, dict) and document.data is not None:
        document.complain(
            (), f"a pipeline is a mapping with the keys source, steps and sink, not {show(document.data)}"
        )
    elif document.data is not None:
        # Looked at here, since the schema compares keys only when all of them are right.
        if (document.data.get("sink") is None) == (document.data.get("sinks") is None):
            document.complain((), "give either sink or sinks: where the rows go")
        try:
            spec = PipelineSpec.model_validate(document.data)
        except ValidationError as error:
            add_problems(document, error)
        else:
            for path, message in unknown_side_inputs(spec):
                document.complain(path, f"{show_path(path)}: {message}")
            return spec
    return None
