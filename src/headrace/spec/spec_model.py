"""What all mappings of pipeline.yaml have in common."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class SpecModel(BaseModel):
    """A mapping of the file: unknown keys and values of another kind are errors, never silently mended."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())

    null_means: ClassVar[frozenset[str]] = frozenset({"model_id_column", "partitioning", "buffer_rows"})
    """Keys for which null says something; elsewhere it is as if the key were left out."""

    def options(self, *without: str) -> dict[str, Any]:
        """Return the values that the file gives, as keyword arguments; what it leaves out keeps its default."""
        given = {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}
        return {
            name: value
            for name, value in given.items()
            if name not in without and (value is not None or name in self.null_means)
        }
