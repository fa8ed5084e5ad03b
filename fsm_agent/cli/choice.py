"""Which model a command uses, and why: what was named, else what the environment offers, else one on this machine."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from fsm_agent.dialects import is_local
from fsm_agent.errors import ModelError
from fsm_agent.models import key_from

__all__ = ["LOCAL_DEFAULT", "OPENAI_DEFAULT", "Choice", "choose", "with_dialect"]

OPENAI_DEFAULT: Final = "gpt-4o-mini"
LOCAL_DEFAULT: Final = "local:1.5b"
_WITHOUT_TOOLS: Final = "json_action"
_SECONDS: Final = 10.0
_PROPS_SECONDS: Final = 3.0
_LISTED: Final = 8


@dataclass(frozen=True, slots=True)
class Choice:
    """A model by name, the server it is asked at (None: its provider's, or one started here), and why it was chosen.

    `dialect` is the one that the server needs, where it says so.
    """

    model: str
    base_url: str | None
    why: str
    dialect: str | None = None

    @property
    def local(self) -> bool:
        """Whether the model runs on this machine, in a server that is started for it."""
        return is_local(self.model)

    @property
    def place(self) -> str:
        """The base URL for a person to see, without what may be secret in it; "" for none."""
        return _shown(self.base_url) if self.base_url is not None else ""


def choose(model: str | None, base_url: str | None, environ: Mapping[str, str]) -> Choice:
    """The model to use. `model` and `base_url` are what the command line says, `environ` what the environment does.

    In order: the command line, `FSM_AGENT_MODEL`, what the server at the base URL has, `OPENAI_API_KEY`, the local
    default.
    Raises `ModelError` when the choice cannot be made, naming what to give.
    """
    named = model or environ.get("FSM_AGENT_MODEL", "").strip()
    why = "--model" if model else "FSM_AGENT_MODEL"
    url = base_url or environ.get("OPENAI_BASE_URL", "").strip() or None
    if url is not None:
        _check_url(url, "--base-url" if base_url else "OPENAI_BASE_URL")
    if named and is_local(named):
        if base_url:
            raise ModelError(f"{named} runs on this machine, so it takes no --base-url; give one of the two")
        return Choice(named, None, why)
    if named:
        # At a server of one's own a name is only a name, colons included ("qwen2.5:7b").
        literal = named if url is None or named.startswith("openai:") else f"openai:{named}"
        return Choice(literal, url, why)
    key = key_from(environ)
    if url is not None:
        return Choice(f"openai:{_offered(url, key)}", url, f"the server at {_shown(url)}")
    if key:
        return Choice(f"openai:{OPENAI_DEFAULT}", None, "OPENAI_API_KEY is set")
    return Choice(LOCAL_DEFAULT, None, "no --model, no FSM_AGENT_MODEL, no OPENAI_API_KEY")


def with_dialect(choice: Choice, environ: Mapping[str, str]) -> Choice:
    """`choice` with the dialect that its server needs: llama.cpp's drops tools without an error where the chat template has none.

    Its `GET /props` says so. Any other server is taken to know tools.
    """
    if choice.base_url is None:
        return choice
    root = _shown(choice.base_url).rstrip("/").removesuffix("/v1")
    try:
        knows = _fetched(f"{root}/props", key_from(environ), _PROPS_SECONDS)["chat_template_caps"]["supports_tools"]
    except _UNREADABLE:
        return choice
    return replace(choice, dialect=_WITHOUT_TOOLS) if knows is False else choice


def _check_url(url: str, origin: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ModelError(f"{origin} {_shown(url)!r} is no URL of a server; give one like http://localhost:8080/v1")


def _shown(url: str) -> str:
    """The URL without what may be secret in it: name and password, and a query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.rpartition("@")[2].partition("?")[0]
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def _offered(url: str, key: str | None) -> str:
    """The model that the server has: its only one, or OpenAI's default where that is one of several."""
    try:
        names = [str(one["id"]) for one in _fetched(f"{_shown(url).rstrip('/')}/models", key, _SECONDS)["data"]]
    except _UNREADABLE as error:
        raise ModelError(
            f"the server at {_shown(url)} does not say which models it has ({_reason(error)}{_way(url)}); start it, or "
            "name one: --model NAME"
        ) from error
    if len(names) == 1:
        return names[0]
    if OPENAI_DEFAULT in names:
        return OPENAI_DEFAULT
    some = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
    raise ModelError(
        f"the server at {_shown(url)} has {len(names)} models; choose one with --model NAME: {some or 'none'}"
    )


_UNREADABLE: Final = (OSError, http.client.HTTPException, ValueError, LookupError, TypeError)


def _fetched(url: str, key: str | None, seconds: float) -> Any:
    """The JSON at `url`. Raises what `_UNREADABLE` has, as looking into what is there does."""
    request = urllib.request.Request(url)  # noqa: S310 - the scheme was checked
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    with urllib.request.build_opener().open(request, timeout=seconds) as response:
        return json.loads(response.read())


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP status {error.code}"
    if isinstance(error, urllib.error.URLError):
        return str(getattr(error.reason, "strerror", None) or error.reason)
    return type(error).__name__


def _way(url: str) -> str:
    """The proxy that stood between, which may be what refused; "" for none."""
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if not proxy or urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
        return ""
    shown = _shown(proxy if "//" in proxy else f"//{proxy}").removeprefix("//")
    return f", asked through the proxy {shown}; NO_PROXY={parts.hostname} asks it directly"
