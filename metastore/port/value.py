"""Declare the values of a commit: the type checker refuses to change them, and they are quick to make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Return ``cls`` as a dataclass with slots that is compared, and hashed, by its fields.

    mypy takes it as frozen; Python does not check that. A ``frozen`` dataclass sets each field by a call: one with 17
    fields takes 2.2 µs to make, and this one 0.3 µs. Each commit makes about ten such values.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
