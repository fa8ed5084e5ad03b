"""Base classes of the argument models that are derived here, from a function or from a JSON schema."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

__all__ = ["FunctionArguments", "JsonArguments", "field_name"]


class FunctionArguments(BaseModel):
    """Arguments of a Python function: one field a parameter."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())
    __parameters__: ClassVar[dict[str, str]] = {}
    """Field name -> parameter name, for the fields that could not bear the name of their parameter."""


class JsonArguments(BaseModel):
    """Arguments described by a JSON schema: the tool is called with JSON values, absent optional ones stay absent."""

    model_config = ConfigDict(protected_namespaces=())
    __schema__: ClassVar[dict[str, Any]] = {}
    __defaults__: ClassVar[dict[str, Any]] = {}
    __typed__: ClassVar[bool] = False


def field_name(name: str, position: int) -> str:
    """A name that pydantic accepts for the field of parameter `name`: its own, or `argument_<position>`.

    Not usable: a leading underscore, what is no identifier, and names of `BaseModel` itself (`schema`, `copy`, ...).
    """
    usable = name.isidentifier() and not name.startswith("_") and not hasattr(BaseModel, name)
    return name if usable else f"argument_{position}"
