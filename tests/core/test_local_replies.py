"""A model that is named to run on this machine, its server played by the fake one: how long its replies may be, and how it is reached."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from fsm_agent import Agent, Limits, Status
from fsm_agent.observe import silent_logger
from fsm_agent.testing import FaultServer, forever, reply, server

ENDLESS = reply('{"thought": "and again and again', finish_reason="length", usage=(10, 1024))


@pytest.fixture(name="local")
def _local(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    """A server in the place of llama.cpp's, whose model repeats itself for ever."""
    with server([forever(ENDLESS)]) as s:
        monkeypatch.setattr("fsm_agent.local.shared", lambda name: SimpleNamespace(base_url=s.base_url))
        yield s


def allowed(asked: FaultServer) -> set[int | None]:
    """How many tokens of reply its requests allowed."""
    return {one.body.get("max_completion_tokens", one.body.get("max_tokens")) for one in asked.requests}


def test_a_local_model_that_repeats_itself_comes_to_an_end(local: FaultServer) -> None:
    """Every reply is capped, each that was cut is told and counted, and the run ends by its table, within its retries."""
    result = Agent("local:0.5b", [], logger=silent_logger()).invoke("Count.")
    assert allowed(local) == {1024}
    assert (result.status, result.tool_calls) == (Status.FAILED, 0)
    assert "was cut off" in local.requests[1].text
    assert local.count <= 5


def test_a_profile_or_a_caller_may_allow_other_replies_of_a_local_model(local: FaultServer) -> None:
    """What `from_profile` says, else the profile, comes before the default of a model that is only named."""
    for name, given in (("breaker", None), ("breaker", 4096), ("controlled", None)):
        Agent.from_profile(name, "local:0.5b", [], max_tokens=given, logger=silent_logger()).invoke("Count.")
    assert allowed(local) == {512, 4096, 1024}


def test_a_local_model_is_asked_past_the_proxy_of_the_environment(
    local: FaultServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A proxy that the environment names does not know this machine's loopback: no request goes there, and nobody is warned of it."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "OPENAI_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    agent = Agent("local:0.5b", [], limits=Limits(max_retries=0), logger=silent_logger())
    agent.invoke("Count.")
    asked = local.count
    asyncio.run(agent.ainvoke("Count."))
    assert 0 < asked < local.count
    assert not [one for one in caplog.records if one.name.startswith("langchain_openai")]


def test_no_connection_to_a_local_model_is_kept_open(local: FaultServer) -> None:
    """One of an event loop that has ended, or of the parent of a fork, would fail the next call."""
    agent = Agent("local:0.5b", [], logger=silent_logger())
    agent.invoke("Count.")
    asyncio.run(agent.ainvoke("Count."))
    assert {one.headers["connection"] for one in local.requests} == {"close"}
