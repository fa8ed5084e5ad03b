"""`web_search`: the web through a SearxNG server of one's own, or any other function that searches. Nothing is ever made up."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from fsm_agent.errors import ToolDefinitionError
from fsm_agent.tools.call import ToolRefusal
from fsm_agent.tools.results import SHORT_MARKER, cut
from fsm_agent.tools.spec import Tool, tool

__all__ = ["SEARCH_URL", "Engine", "Page", "Search", "searxng", "web_search"]

SEARCH_URL: Final = "FSM_AGENT_SEARCH_URL"
_SECONDS: Final = 15.0
_MAX_BYTES: Final = 2_000_000
_TEXT: Final = 300

Engine = Literal["google", "bing"]


@dataclass(frozen=True, slots=True)
class Page:
    """One result: title, address, and what the page says about the query."""

    title: str
    url: str
    text: str


Search = Callable[[str, Engine, int], Sequence[Page]]
"""Query, engine and the most results -> the results, best first. May raise: the model is told."""


def web_search(search: Search | None = None, *, fallback: Tool | None = None) -> Tool:
    """The tool, over `search`; None takes the SearxNG server that FSM_AGENT_SEARCH_URL names.

    Without either, every call is refused and says what to set; `fallback` is what stands in when it keeps failing.
    Raises `ToolDefinitionError` when the variable holds no address of a server.
    """
    url = os.environ.get(SEARCH_URL, "")
    chosen = search if search is not None else searxng(url) if url else None

    @tool("web_search", idempotent=True, fallback=fallback, not_for="arithmetic; use calculator")
    def look(
        query: Annotated[str, Field(min_length=1, max_length=200)],
        engine: Engine = "google",
        limit: Annotated[int, Field(ge=1, le=10)] = 3,
    ) -> str:
        """Search the web. Gives the title, the address and a passage of each page found.

        Args:
            query: What to look for.
            engine: Whose results.
            limit: Results at most.
        """
        if chosen is None:
            raise ToolRefusal(f"no web search is set up here (set {SEARCH_URL} to a SearxNG server); use another tool")
        found = [f"{_short(one.title)} ({one.url}): {_short(one.text)}" for one in chosen(query, engine, limit)[:limit]]
        return "\n".join(found) or f"{engine} found nothing for this; try other words."

    return look


def _short(text: str) -> str:
    return cut(" ".join(text.split()), _TEXT, SHORT_MARKER)


def searxng(url: str) -> Search:
    """Searches through a SearxNG server (`https://searx.example.org`), whose settings must allow the format json.

    The address is whoever set it up's, never the model's. A reply may have 2 MB and take 15 seconds; results that are no web address are
    left out. Raises `ToolDefinitionError` for what is no address of a server, and for one with a name or a password in it.
    """
    parts = urllib.parse.urlsplit(url)
    if "@" in parts.netloc:  # no request would carry it, and the failure of each call would tell it
        raise ToolDefinitionError(
            f"{SEARCH_URL} has a name or a password in it, which is not sent: give the address without, or web_search a function of "
            "your own that logs in",
            tool="web_search",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ToolDefinitionError(
            f"{SEARCH_URL} {url!r} is no address of a server; give one like http://localhost:8888", tool="web_search"
        )
    base = url.rstrip("/")

    def search(query: str, engine: Engine, limit: int) -> Sequence[Page]:
        asked = urllib.parse.urlencode({"q": query, "engines": engine, "format": "json"})
        try:
            with urllib.request.urlopen(f"{base}/search?{asked}", timeout=_SECONDS) as response:  # noqa: S310 - checked above
                body = response.read(_MAX_BYTES + 1)
        except urllib.error.HTTPError as error:
            raise ConnectionError(f"the search server answered with HTTP status {error.code}") from None
        if len(body) > _MAX_BYTES:
            raise ConnectionError(f"the search server sent more than {_MAX_BYTES:,} bytes")
        return _pages(body)[:limit]

    return search


def _pages(body: bytes) -> list[Page]:
    try:
        results: list[dict[str, Any]] = json.loads(body)["results"]
        pages = [Page(*(str(one.get(name) or "") for name in ("title", "url", "content"))) for one in results]
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ConnectionError("the search server sent something that is no list of results") from None
    return [one for one in pages if one.url.startswith(("http://", "https://"))]
