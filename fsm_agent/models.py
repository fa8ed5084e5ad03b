"""Which model an agent uses, prepared so that one model call is one request.

OpenAI-compatible clients retry by themselves; here the table retries, visibly and within the limits, so the client's own retries are
switched off on a copy. The caller's model is never changed.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig
from langchain_core.runnables.config import merge_configs

from fsm_agent.dialects import is_local
from fsm_agent.errors import ModelError
from fsm_agent.limits import Limits
from fsm_agent.unstreamed import aeither, either
from fsm_agent.wire import attach

__all__ = ["Prepared", "capped", "key_from", "name_of", "prepare", "resolve", "with_local_timeout"]

_LOCAL_TIMEOUT: Final = 600.0
"""Seconds. A small machine reads a long prompt at some ten tokens a second."""
_LOCAL_REPLY: Final = 1024
"""Tokens. A small model may repeat itself until its context is full; so much is ten times what a call or an answer takes."""
_ONE: Final = "; an agent has one model: make an agent of each"
_INSTEAD: Final = {
    "RunnableConfigurableAlternatives": _ONE,
    "RunnableConfigurableFields": _ONE,
    "_ConfigurableModel": _ONE,
    "RunnableSequence": "; what stands in a chain with it (with_structured_output() too) stands there with the agent",
    "RunnableRetry": "; leave with_retry() out: a run tries again by its table, `Limits(max_retries=...)` times",
    "RunnableWithFallbacks": "; make an agent of each, and with_fallbacks() of a chain that raises where a result is not `ok`",
}
"""What to do instead of what users of LangChain do with a model, by the class that this gives."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model ready to be called. `openai` says that it speaks the OpenAI protocol; `cap` is its limit on reply tokens, where known.

    `config` is what `with_config` gave it: callbacks, tags and the like. `direct`: the model has LangChain's own `invoke`, so that without
    callbacks it may be asked for its generation directly. `patience`: the seconds after which its client gives up unless a request says
    otherwise; None: that is the client's own business.
    """

    model: BaseChatModel
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    config: RunnableConfig = field(default_factory=RunnableConfig)
    openai: bool = False
    cap: int | None = None
    streams: bool = False
    direct: bool = False
    patience: float | None = None


def resolve(model: Any, *, base_url: str | None = None) -> Any:
    """A chat model for what the user gave: itself, or for a string like "openai:gpt-4o-mini", "gpt-4o-mini" or "local:1.5b" a new one.

    Raises `fsm_agent.errors.ModelError` for anything that is not a chat model, naming what can be given instead, and for a `base_url` that
    would not be asked.
    """
    if base_url is not None and not (isinstance(model, str) and _openai_name(model)):
        given = repr(model) if isinstance(model, str) else f"of a {type(model).__name__}, which has its own"
        raise ModelError(f'base_url is the server of a model that is named, as in "openai:NAME", not {given}')
    if isinstance(model, str):
        return _from_name(model, base_url)
    return model


def with_local_timeout(model: Any, limits: Limits) -> Limits:
    """`limits`, where a model that is named to run on this machine may take its time (600 s a reply) unless they say how long."""
    if isinstance(model, str) and is_local(model) and "model_timeout" not in limits.model_fields_set:
        return limits.replace(model_timeout=_LOCAL_TIMEOUT)
    return limits


def capped(model: Any, max_tokens: int | None, *, base_url: str | None = None) -> Any:
    """The chat model for `model`, whose replies have at most `max_tokens` tokens; None leaves that to it.

    A model that says itself how many, when it was made or by `bind`, keeps that, and so does one of a class without such a setting. For
    one that is only named, to run on this machine, nobody has said: it has 1,024 where `max_tokens` is None.
    """
    chosen = resolve(model, base_url=base_url)
    inner: Any = chosen
    bound: dict[str, Any] = {}
    while isinstance(inner, RunnableBinding):
        inner, bound = inner.bound, {**inner.kwargs, **bound}
    open_ = isinstance(inner, BaseChatModel) and "max_tokens" in type(inner).model_fields
    if max_tokens is None or not open_ or "max_tokens" in bound:
        return chosen
    if inner.max_tokens is not None and not (isinstance(model, str) and is_local(model)):
        return chosen
    return chosen.bind(max_tokens=max_tokens)


def _from_name(name: str, base_url: str | None) -> Any:
    if is_local(name):
        from fsm_agent.local import shared  # noqa: PLC0415 - the local server is an extra, and heavy

        settings = {"temperature": 0.0, "max_tokens": _LOCAL_REPLY, **_direct_clients()}
        return _openai("local", shared(name).base_url, api_key="none", **settings)
    if found := _openai_name(name):
        return _openai(found, base_url)
    provider = name.partition(":")[0]
    try:
        from langchain.chat_models import init_chat_model  # noqa: PLC0415 - only for other providers, when installed
    except ImportError as error:
        raise ModelError(
            f"model {name!r}: for the provider {provider!r} install langchain and its package, or give a chat model object; "
            'any OpenAI-compatible server works as "openai:NAME" with base_url'
        ) from error
    return init_chat_model(name)


@cache
def _direct_clients() -> Mapping[str, Any]:
    """Connections that take no proxy of the environment: a server of this machine is never behind one. Shared, as LangChain's own are.

    None is kept open between calls: one of an event loop that has ended, or of the parent of a fork, would fail the next call.
    """
    from openai import DefaultAsyncHttpxClient, DefaultHttpxClient  # noqa: PLC0415 - as `ChatOpenAI`, below

    settings: Any = {"trust_env": False, "headers": {"Connection": "close"}}
    direct = DefaultHttpxClient(**settings)
    atexit.register(direct.close)
    clients = {"http_client": direct, "http_async_client": DefaultAsyncHttpxClient(**settings)}
    # With socket options LangChain would warn of the proxy.
    return {**clients, "openai_proxy": None, "http_socket_options": ()}


def _openai_name(name: str) -> str:
    """The model that "openai:NAME" or "NAME" names at a server of OpenAI's protocol; "" for one of this machine, or of another provider."""
    provider, _, rest = name.partition(":")
    return "" if is_local(name) or (rest and provider != "openai") else rest or name


def key_from(environ: Mapping[str, str]) -> str | None:
    """The key in `OPENAI_API_KEY`, without the line break that a file of a secret ends with; None where there is none.

    Raises `ModelError` for one that no request can carry: its client would tell of a connection that failed.
    """
    key = environ.get("OPENAI_API_KEY", "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ModelError("OPENAI_API_KEY holds a character that no HTTP header can carry; copy the key again")
    return key or None


def _openai(name: str, base_url: str | None, api_key: str | None = None, **settings: Any) -> Any:
    from langchain_openai import ChatOpenAI  # noqa: PLC0415 - a second of import, only when it is used

    key = api_key or key_from(os.environ) or ("none" if base_url else None)
    if key is None:
        raise ModelError(
            f"model {name!r} needs a key: set OPENAI_API_KEY, or give base_url for a server of your own, or name another "
            'provider, as in "anthropic:NAME", or use "local:1.5b" for a model on this machine'
        )
    return ChatOpenAI(model=name, base_url=base_url, api_key=key, **settings)


def prepare(model: Any, *, timeout: float) -> Prepared:
    """`model` as a `Prepared`. What is bound (`bind(...)`, `with_config(...)`) is kept. Raises `ModelError` for what is no chat model."""
    kwargs: dict[str, Any] = {}
    config = RunnableConfig()
    inner: Runnable[Any, Any] | Any = model
    while isinstance(inner, RunnableBinding):
        kwargs = {**inner.kwargs, **kwargs}
        config = merge_configs(inner.config, config) if inner.config else config
        inner = inner.bound
    if not isinstance(inner, BaseChatModel):
        raise ModelError(
            f"model is a {type(model).__name__}; give a LangChain chat model, or a string like "
            '"openai:gpt-4o-mini" or "local:1.5b"' + _INSTEAD.get(type(model).__name__, "")
        )
    # Whether to stream is for the engine to say, request by request.
    streamed = kwargs.pop("stream", None) or getattr(inner, "streaming", False)
    openai = any(base.__name__ == "BaseChatOpenAI" for base in type(inner).__mro__)
    cap = kwargs.get("max_tokens", getattr(inner, "max_tokens", None))
    # LangChain streams inside `invoke` for such a model, and loses the raw text of the calls; an OpenAI one can be told not to.
    streams = not openai and bool(streamed)
    own = getattr(inner, "request_timeout", None)
    patience = timeout if openai and own is None and "timeout" not in kwargs else None
    return Prepared(
        model=_single_request(inner, patience) if openai else inner,
        kwargs=kwargs,
        config=config,
        openai=openai,
        cap=cap if isinstance(cap, int) else None,
        streams=streams,
        direct=_is_direct(inner) and not config,
        patience=patience,
    )


def name_of(given: Any, prepared: Prepared) -> str:
    """What a trail calls the model: as it was named where it was, else "provider:name" by what it tells LangChain's tracers; "" unknown."""
    if isinstance(given, str):
        return given
    try:
        # What each provider's class says of itself; nothing public does.
        told = prepared.model._get_ls_params(**prepared.kwargs)
    except Exception:  # noqa: BLE001 - a class of somebody else: a name that is not known fails no agent
        return ""
    provider, name = told.get("ls_provider"), told.get("ls_model_name")
    return f"{provider}:{name}" if provider and name else ""


def _is_direct(model: BaseChatModel) -> bool:
    """True when `invoke` would add nothing but callbacks.

    That is: it is LangChain's own, and the model has no callbacks, cache, rate limiter or message format of its own.
    """
    kind = type(model)
    own = all(
        getattr(kind, name) is getattr(BaseChatModel, name) for name in ("invoke", "ainvoke", "generate", "agenerate")
    )
    plain = not (model.callbacks or model.cache or model.rate_limiter or model.output_version == "v1")
    return own and plain


def message_of(result: ChatResult) -> BaseMessage:
    """The message of a generation, with the finish reason where `invoke` puts it."""
    generation = result.generations[0]
    message = generation.message
    info = {**(result.llm_output or {}), **(generation.generation_info or {})}
    if info:
        message.response_metadata = {**info, **message.response_metadata}
    return message


def _single_request(model: Any, timeout: float | None) -> BaseChatModel:
    """A copy of an OpenAI chat model whose clients make exactly one request, and give up after `timeout` (None: as they would anyway)."""
    options: dict[str, Any] = {"max_retries": 0}
    if timeout is not None:
        options["timeout"] = timeout
    update: dict[str, Any] = {"max_retries": 0}
    if model.root_client is not None:
        client = model.root_client.with_options(**options)
        update |= {"root_client": client, "client": either(client.chat.completions)}
    if model.root_async_client is not None:
        client = model.root_async_client.with_options(**options)
        update |= {"root_async_client": client, "async_client": aeither(client.chat.completions)}
    if model.stream_usage is None:
        # A server of one's own reports the usage of a stream only when it is asked for.
        update["stream_usage"] = True
    copy: BaseChatModel = model.model_copy(update=update)
    attach(copy)
    return copy
