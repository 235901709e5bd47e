"""What the user wrote into a class, apart from what Python and class decorators put there for themselves."""

from __future__ import annotations

import enum
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_OF_EVERY_CLASS = frozenset(
    {
        "__abstractmethods__",
        "__annotate__",
        "__annotate_func__",
        "__annotations__",
        "__annotations_cache__",
        "__dict__",
        "__doc__",
        "__firstlineno__",
        "__module__",
        "__orig_bases__",
        "__parameters__",
        "__qualname__",
        "__slotnames__",
        "__static_attributes__",
        "__weakref__",
        "_abc_impl",
    }
)
_OF_EVERY_ENUM = frozenset(
    {
        "__new__",
        "_generate_next_value_",
        "_hashable_values_",
        "_member_map_",
        "_member_names_",
        "_member_type_",
        "_missing_",
        "_new_member_",
        "_unhashable_values_",
        "_unhashable_values_map_",
        "_use_args_",
        "_value2member_map_",
        "_value_repr_",
    }
)


def attributes_of(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a class itself (not of its bases), in order of name; an enum's members as values.

    >>> class Net:
    ...     "Docstring."
    ...     layers = 3
    >>> list(attributes_of(Net))
    [('layers', 3)]
    """
    members: dict[str, Any] = dict(cls.__members__) if isinstance(cls, enum.EnumMeta) else {}
    for name, value in sorted(vars(cls).items()):
        if name in _OF_EVERY_CLASS or (name.startswith("__pydantic_") and name != "__pydantic_fields__"):
            continue
        if isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType)):
            continue  # slots, which are listed under __slots__
        if isinstance(cls, enum.EnumMeta) and (name in _OF_EVERY_ENUM or name in members):
            continue
        yield name, value
    yield from ((f"member {name}", member.value) for name, member in members.items())
