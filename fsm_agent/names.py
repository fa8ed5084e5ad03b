"""Enumerations that names can be added to while a program runs, one object for each name."""

from __future__ import annotations

import threading
from enum import StrEnum
from typing import Any, Final, Self
from weakref import WeakValueDictionary

__all__ = ["OpenNames"]

_OWN: Final[WeakValueDictionary[tuple[type, str], Any]] = WeakValueDictionary()
_LOCK: Final = threading.Lock()


class OpenNames(StrEnum):
    """An enumeration that names can be added to while a program runs."""

    @classmethod
    def named(cls, name: str) -> Self:
        """The member of that value: one of this package's, else one's own. Any text is taken; `fsm_agent.checks` judges names."""
        if name in cls._value2member_map_:
            return cls(name)
        with _LOCK:
            found: Self | None = _OWN.get((cls, name))
            if found is None:
                found = _OWN[cls, name] = str.__new__(cls, name)
                found._name_ = found._value_ = str(name)
        return found

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return _OWN.get((cls, value)) if isinstance(value, str) else None

    @property
    def is_own(self) -> bool:
        """True for a name that is not of this package."""
        return self._value_ not in type(self)._value2member_map_

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return type(self).named, (self._value_,)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self
