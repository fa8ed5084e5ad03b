"""What a tool is: its description for the model, its checks, and how it may be executed."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeGuard, Unpack, overload

from pydantic import BaseModel

from fsm_agent.errors import ToolDefinitionError
from fsm_agent.tools.docstring import split_docstring
from fsm_agent.tools.function import function_arguments, refuse_generators
from fsm_agent.tools.injection import bind, bind_async, is_async
from fsm_agent.tools.models import JsonArguments
from fsm_agent.tools.problems import Problem
from fsm_agent.tools.schema import model_schema, tidy
from fsm_agent.tools.validation import Invalid, Valid, Validator

if TYPE_CHECKING:  # its import takes a second, which a tool made from a function never pays
    from langchain_core.tools import BaseTool

__all__ = ["Invalid", "Problem", "Tool", "ToolOptions", "Valid", "as_tool", "tool"]

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NAMES: Final = (frozenset, set, list, tuple)
_WHOLE: Final = (int, NoneType)
_KINDS: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "description": ((str,), "a text"),
    "not_for": ((str,), "a text"),
    "default": ((str, NoneType), "the text that stands in for a result"),
    "retry": (_WHOLE, "a whole number"),
    "timeout": ((float, *_WHOLE), "a number of seconds"),
    "max_result_chars": (_WHOLE, "a whole number"),
    "volatile": (_NAMES, 'a set of names, as in {"request_id"}'),
    "ignore_extra": ((bool, *_NAMES), 'True or a set of names, as in {"trace"}'),
    **dict.fromkeys(("idempotent", "repeatable", "once", "lax", "exclusive"), ((bool,), "True or False")),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Tool:
    """One tool. Made by `tool` or `as_tool`, or written out; `dataclasses.replace` changes a copy.

    Attributes:
        name: What the model calls it by.
        description: What the model reads.
        args_model: A pydantic 2 model of the arguments.
        func: Gets the validated arguments as keywords. It or `afunc` will do; where there are both, sync runs call it.
        afunc: The same, async.
        fallback: Tried when this tool keeps failing: a registered name, or a tool (shown only if it is registered itself).
        map_fallback: The arguments of the failed call -> those of the fallback. None passes those that the fallback knows.
        default: What stands in for a result when this tool keeps failing and no fallback is left; the model is told that it is a default.
        idempotent: Doing it twice is the same as once: only then is a call with an unknown outcome made again.
        repeatable: The same call with the same result is no loop (a poll).
        once: The same call takes effect once a run at most. When it has succeeded, or a person has said what it gave, a repeat is told that
            and is not executed; nor is it when its outcome is unknown (a time-out, a crash), unless the tool is idempotent. How often a
            tool is called, whatever the arguments, is bounded by `fsm_agent.policy.AtMost`.
        retry: Tries after one that failed, a bug excepted; None = the run's `max_retries`, but none for a wrong value (`ValueError`,
            `LookupError`, `ArithmeticError`).
        timeout: Seconds; None = the run's `tool_timeout`.
        requires_approval: A person must approve the call; or a function of its arguments, as one dict, that says whether. One that
            raises, or returns anything but False (None, say), asks the person.
        max_result_chars: Characters of the result that the model sees; None = the run's `max_result_chars`.
        not_for: When not to use it, as the model reads it: `"sums; use calculator"`.
        volatile: Arguments (names, or dotted paths) that do not make a call a different one.
        lax: Let pydantic coerce (`"5"` for an int); every coercion is reported.
        ignore_extra: Unknown fields to drop (and report) instead of refusing the call; True = all of them.
        exclusive: Never run beside another call of the same reply.
        hidden: Fields of `args_model` that the engine fills, with a stand-in for the check (see `Validator`).
        source: The LangChain tool that this one was made from.

    Raises:
        ToolDefinitionError: The name is not `[a-zA-Z0-9_-]{1,64}`, there is no function, a number is out of range, or
            the arguments cannot be described as JSON.
    """

    name: str
    description: str
    args_model: type[BaseModel]
    func: Callable[..., Any] | None = None
    afunc: Callable[..., Awaitable[Any]] | None = None
    fallback: Tool | str | None = None
    map_fallback: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    default: str | None = None
    idempotent: bool = False
    repeatable: bool = False
    once: bool = False
    retry: int | None = None
    timeout: float | None = None
    requires_approval: bool | Callable[[dict[str, Any]], bool] = False
    max_result_chars: int | None = None
    not_for: str = ""
    volatile: frozenset[str] = frozenset()
    lax: bool = False
    ignore_extra: frozenset[str] | Literal[True] = frozenset()
    exclusive: bool = False
    hidden: Mapping[str, Any] = field(default_factory=dict)
    source: BaseTool | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(str(self.name)):
            raise self._wrong("a tool name is 1 to 64 letters, digits, _ or -; give it one with name=")
        if self.func is None and self.afunc is None:
            raise self._wrong("has neither func nor afunc")
        self._check_kinds()
        if self.once and self.repeatable:
            raise self._wrong("once and repeatable exclude each other: a poll is executed again, an effect is not")
        if self.retry is not None and self.retry < 0:
            raise self._wrong(f"retry must be 0 or more, not {self.retry}")
        if self.timeout is not None and not self.timeout > 0:
            raise self._wrong(f"timeout must be more than 0 seconds, not {self.timeout}")
        if self.max_result_chars is not None and self.max_result_chars < 1:
            raise self._wrong(f"max_result_chars must be 1 or more, not {self.max_result_chars}")
        if self.fallback is not None and not isinstance(self.fallback, str | Tool):
            raise self._wrong(
                f"fallback is a Tool or the name of one, not {self.fallback!r}; make one of it with @tool"
            )
        self._check_functions()
        if not _is_model(self.args_model):
            raise self._wrong(f"args_model must be a pydantic 2 model class, not {self.args_model!r}")
        try:
            self.args_model.model_rebuild()
            self._validator  # noqa: B018 - built now, so that a wrong definition is seen where it is written
        except ToolDefinitionError:
            raise
        except Exception as error:
            raise self._wrong(f"its arguments cannot be described: {error}") from error

    def _check_functions(self) -> None:
        check: Any = self.requires_approval
        if not (isinstance(check, bool) or (callable(check) and _takes_one(check))):
            raise self._wrong(
                "requires_approval is True, False, or a function of all arguments as one dict, "
                'as in requires_approval=lambda given: given["amount"] > 50'
            )
        mapping: Any = self.map_fallback
        if not (mapping is None or callable(mapping)):
            raise self._wrong(
                f"map_fallback is a function from the arguments to those of the fallback, not {self.map_fallback!r}"
            )

    def _check_kinds(self) -> None:
        for option, (kinds, meant) in _KINDS.items():
            if not isinstance(given := getattr(self, option), kinds):
                raise self._wrong(f"{option} is {meant}, not {given!r}")

    def _wrong(self, message: str) -> ToolDefinitionError:
        return ToolDefinitionError(f"tool {self.name!r}: {message}", tool=str(self.name))

    @cached_property
    def _parameters(self) -> dict[str, Any]:
        if issubclass(self.args_model, JsonArguments):
            return tidy(self.args_model.__schema__)
        return model_schema(self.args_model, frozenset(self.hidden))

    @cached_property
    def _validator(self) -> Validator:
        return Validator(
            self.args_model, self.parameters, lax=self.lax, ignore_extra=self.ignore_extra, hidden=self.hidden
        )

    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the arguments as the model sees it. The same object every time: do not change it."""
        return self._parameters

    @property
    def full_description(self) -> str:
        """The description for the model, with the sentence that says when not to use the tool."""
        if not self.not_for:
            return self.description
        said = self.not_for.strip().rstrip(".。")
        chinese = any("\u4e00" <= char <= "\u9fff" for char in said)
        return f"{self.description} {f'不适用于：{said}。' if chinese else f'Do not use it for: {said}.'}".strip()

    def validate(self, args: Mapping[str, Any]) -> Valid | Invalid:
        """Check the arguments of a call (see `validation` for what each type accepts). Never raises."""
        return self._validator(args)

    def accepted(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """The Python values of `arguments` if they are the very object that `validate` has just accepted, else None.

        Given out once: a second call with the same object gets None, and validates again.
        """
        return self._validator.take(arguments)

    def needs_approval(self, arguments: Mapping[str, Any]) -> bool:
        """Must a person approve this call? `arguments` are validated ones. A check that fails asks the person."""
        if not callable(self.requires_approval):
            return self.requires_approval
        try:
            said: object = self.requires_approval(deepcopy(dict(arguments)))  # it may change what it is given
            return bool(said != False)  # noqa: E712 - numpy has a False of its own, and a `return` that was forgotten is none
        except Exception:  # noqa: BLE001 - a check that cannot say no must not let the call pass
            return True


class ToolOptions(TypedDict, total=False):
    """The keywords of `tool` and `as_tool`: the fields of `Tool` of the same names."""

    name: str
    description: str
    args_model: type[BaseModel]
    fallback: Tool | str | None
    map_fallback: Callable[[dict[str, Any]], dict[str, Any]] | None
    default: str | None
    idempotent: bool
    repeatable: bool
    once: bool
    retry: int | None
    timeout: float | None
    requires_approval: bool | Callable[[dict[str, Any]], bool]
    max_result_chars: int | None
    not_for: str
    volatile: frozenset[str]
    lax: bool
    ignore_extra: frozenset[str] | Literal[True]
    exclusive: bool


@overload
def tool(obj: Tool | BaseTool | Callable[..., Any], /, **options: Unpack[ToolOptions]) -> Tool: ...
@overload
def tool(name: str, /, **options: Unpack[ToolOptions]) -> Callable[[Tool | BaseTool | Callable[..., Any]], Tool]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Tool | BaseTool | Callable[..., Any]], Tool]: ...
def tool(first: Any = None, /, **options: Any) -> Any:
    """Make a `Tool` of a typed function, sync or async: `@tool`, `@tool("name")`, `@tool(idempotent=True, ...)`.

    The name is the function's, the description its docstring, and an `Args:` section (Google style) describes the
    parameters, unless `Annotated[..., Field(description=...)]` does. A parameter of type `CallInfo` or `RunnableConfig`
    is filled by the engine. With `args_model` the function is called with the fields of that model. The other options are the fields of
    `Tool` of the same names, which say what they do and what their defaults are. A LangChain tool, or a `Tool`, gets options as a
    function does: `tool(theirs, requires_approval=True)`.

    Raises:
        ToolDefinitionError: See `Tool` and `function_arguments`.
    """
    local_names = sys._getframe(1).f_locals  # types of the enclosing function, which annotations may name
    if first is not None and not isinstance(first, str):
        return _made(first, local_names, options)
    if first is not None:
        options = {"name": first, **options}
    return lambda obj: _made(obj, local_names, options)


def as_tool(obj: Tool | BaseTool | Callable[..., Any], **options: Unpack[ToolOptions]) -> Tool:
    """A `Tool` from a `Tool`, a LangChain tool or a typed function; `options` override what it says itself.

    Raises:
        ToolDefinitionError: `obj` is none of these, or cannot be described.
    """
    return _made(obj, {}, options)


def _made(obj: Any, local_names: Mapping[str, Any], options: Mapping[str, Any]) -> Tool:
    if isinstance(obj, Tool):
        return replace(obj, **options) if options else obj
    if _is_langchain_tool(obj):
        # Here, because it imports LangChain's tools; whoever holds such a tool has paid for that already.
        from fsm_agent.tools.adapt import from_langchain  # noqa: PLC0415

        return from_langchain(obj, **options)
    if isinstance(obj, type) or not callable(obj):
        raise ToolDefinitionError(
            f"a tool is a Tool, a LangChain tool or a typed function, not {obj!r:.200}{_instead(obj)}"
        )
    return _from_function(obj, local_names, dict(options))


def _instead(obj: Any) -> str:
    """What to make a tool of, for what other libraries take as one."""
    if hasattr(obj, "as_tool"):
        return '; make one of it with its as_tool(name="...", description="...", arg_types={"task": str})'
    if _is_model(obj):
        return f"; it describes arguments, so put @tool(args_model={obj.__name__}) above the function that takes them"
    if isinstance(obj, Mapping) and obj.get("type", "function") != "function":
        return "; bind what the provider itself runs to the model: model.bind_tools([...])"
    if isinstance(obj, Mapping):
        return "; a schema runs nothing: give the function, or StructuredTool.from_function(func, args_schema=SCHEMA) of LangChain"
    return ""


def _takes_one(check: Callable[..., Any]) -> bool:
    """False for what wants the arguments by their names, or awaits: it would fail at each call, and a person be asked about all."""
    try:
        wants = inspect.signature(check)
        wants.bind({})
    except TypeError:
        return False
    except ValueError:  # a builtin that does not say
        return True
    kinds = {one.kind for one in wants.parameters.values()}
    by_name = inspect.Parameter.VAR_KEYWORD in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds
    return not by_name and not is_async(check)


def _is_model(kind: object) -> bool:
    return inspect.isclass(kind) and issubclass(kind, BaseModel)


def _is_langchain_tool(obj: object) -> TypeGuard[BaseTool]:
    return any(
        base.__name__ == "BaseTool" and base.__module__ == "langchain_core.tools.base" for base in type(obj).__mro__
    )


def _from_function(func: Callable[..., Any], local_names: Mapping[str, Any], options: dict[str, Any]) -> Tool:
    name = options.pop("name", None) or _name_of(func)
    refuse_generators(name, func)
    description, meanings = split_docstring(inspect.getdoc(func) if not isinstance(func, functools.partial) else None)
    injected: dict[str, Any] = {}
    model = options.pop("args_model", None)
    if model is None:
        model, injected = function_arguments(func, name, meanings, local_names)
    options.setdefault("description", description or name.replace("_", " "))
    if is_async(func):
        return Tool(name=name, args_model=model, afunc=bind_async(func, injected), **options)
    return Tool(name=name, args_model=model, func=bind(func, injected), **options)


def _name_of(func: Callable[..., Any]) -> str:
    target: Any = func.func if isinstance(func, functools.partial) else func
    return str(getattr(target, "__name__", type(target).__name__))
