"""`Named`: what an agent gets its `from_profile` from, and its answer to who would copy it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Never, Self, SupportsIndex, cast

from fsm_agent.definition import check_keywords, check_types
from fsm_agent.dialects import dialect_for
from fsm_agent.errors import DefinitionError
from fsm_agent.limits import Limits
from fsm_agent.models import capped, with_local_timeout
from fsm_agent.profiles import profile
from fsm_agent.tools.registry import Registry
from fsm_agent.tools.spec import Tool

if TYPE_CHECKING:  # its import takes a second, which an agent without LangChain tools never pays
    from langchain_core.runnables import Runnable
    from langchain_core.tools import BaseTool

__all__ = ["Named"]


class Named:
    """Something that is made of a model, tools and the keywords of an agent."""

    def __new__(cls, *given: Any, **named: Any) -> Self:
        """Refuses a keyword that there is not by what was meant; all else is for `__init__`, whose types are those of the class."""
        check_keywords(named, cls)
        return super().__new__(cls)

    @classmethod
    def from_profile(
        cls,
        name: str,
        /,
        model: str | Runnable[Any, Any],
        tools: Registry | Iterable[Tool | BaseTool | Callable[..., Any]] | None = None,
        *,
        limits: Limits | Mapping[str, Any] | None = None,
        base_url: str | None = None,
        max_tokens: int | None = None,
        **overrides: Any,
    ) -> Self:
        """The agent that a profile describes: "session", "lightweight", "controlled", "breaker" or "native" (see `fsm_agent.profiles`).

        `tools` None are the profile's own. `limits`, a `Limits` or a mapping of single ones, go on top of the profile's, and so do those of
        the environment. `overrides` are further keywords of `Agent`; what is left out, or None, is as the profile says. `max_tokens` caps
        the replies of a model that has no cap of its own (a model that is named to run on this machine has 1,024 without it).

        Raises `DefinitionError` for an unknown profile or keyword, listing those that there are, and whatever `Agent` raises.
        """
        chosen = profile(name)
        check_types(base_url=base_url)
        check_keywords(overrides, cls)
        if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
            raise DefinitionError(f"max_tokens={max_tokens!r} must be a whole number of at least 1")
        options = chosen.options({"limits": limits, **overrides})
        # By the name of the model, which is made an object below.
        options |= {
            "dialect": dialect_for(options["dialect"], model),
            "limits": with_local_timeout(model, options["limits"]),
        }
        asked = capped(model, max_tokens or chosen.max_tokens, base_url=base_url)
        made: Any = cls
        return cast(Self, made(asked, chosen.tools(None) if tools is None else tools, **options))

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> Never:
        """Raises `TypeError`: connections, threads and runs under way cannot be copied."""
        raise TypeError(
            "an agent cannot be pickled or copied; make it by a function, and call that in each process or wherever another is wanted "
            "(one agent may be shared by threads)"
        )
