"""Which model is chosen, and what is said when none can be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fsm_agent import Agent
from fsm_agent.cli.choice import Choice, choose, with_dialect
from fsm_agent.errors import ModelError
from fsm_agent.observe import silent_logger
from fsm_agent.testing import server

URL = "http://127.0.0.1:9/v1"
NOTHING = "no --model, no FSM_AGENT_MODEL, no OPENAI_API_KEY"
KEY = {"OPENAI_API_KEY": "k"}


@pytest.mark.parametrize(
    ("model", "base_url", "environ", "chosen"),
    [
        (None, None, {}, Choice("local:1.5b", None, NOTHING)),
        (None, None, KEY, Choice("openai:gpt-4o-mini", None, "OPENAI_API_KEY is set")),
        (None, None, {"OPENAI_API_KEY": ""}, Choice("local:1.5b", None, NOTHING)),
        (None, None, {**KEY, "FSM_AGENT_MODEL": "local:0.5b"}, Choice("local:0.5b", None, "FSM_AGENT_MODEL")),
        ("m.gguf", None, {**KEY, "FSM_AGENT_MODEL": "x"}, Choice("m.gguf", None, "--model")),
        ("openai:gpt-5", None, {}, Choice("openai:gpt-5", None, "--model")),
        ("qwen2.5:7b", URL, {}, Choice("openai:qwen2.5:7b", URL, "--model")),
        ("openai:x", None, {"OPENAI_BASE_URL": URL}, Choice("openai:x", URL, "--model")),
        (None, None, {"OPENAI_BASE_URL": f" {URL}\n", "FSM_AGENT_MODEL": "x\n"}, Choice("openai:x", URL, "FSM_AGENT_MODEL")),
        (None, None, {"OPENAI_BASE_URL": " ", "FSM_AGENT_MODEL": "\n"}, Choice("local:1.5b", None, NOTHING)),
        ("local:0.5b", None, {"OPENAI_BASE_URL": URL}, Choice("local:0.5b", None, "--model")),
        ("anthropic:claude", None, {}, Choice("anthropic:claude", None, "--model")),
    ],
)  # fmt: skip
def test_the_order_of_choice(model: str | None, base_url: str | None, environ: dict[str, str], chosen: Choice) -> None:
    """Command line, FSM_AGENT_MODEL, OPENAI_API_KEY, the model of this machine: in this order, saying which and why."""
    assert choose(model, base_url, environ) == chosen


def test_the_only_model_of_a_server_is_taken() -> None:
    """With a base URL and no name, the server is asked, with the key that there is."""
    with server([], model="its-own") as s:
        assert choose(None, s.base_url, {}).model == "openai:its-own"
        assert choose(None, None, {"OPENAI_BASE_URL": s.base_url}).base_url == s.base_url


def test_the_line_break_behind_a_key_is_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that was read from a file of a secret serves, for the question about the models and for those that answer."""
    monkeypatch.setenv("OPENAI_API_KEY", "k\n")
    with server(["Hi."], model="its-own") as s:
        chosen = choose(None, s.base_url, {"OPENAI_API_KEY": "k\n"})
        assert Agent(chosen.model, base_url=s.base_url, logger=silent_logger()).invoke("x").answer == "Hi."


@pytest.mark.parametrize("key", ["sk-\u043a\u043b\u044e\u0447", "sk-a\nb"])
def test_a_key_that_no_request_can_carry_is_refused(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is named, and not the server, to which no connection fails; the key is not shown."""
    monkeypatch.setenv("OPENAI_API_KEY", key)
    for make in (lambda: choose(None, URL, {"OPENAI_API_KEY": key}), lambda: Agent("openai:x", base_url=URL)):
        with pytest.raises(ModelError, match="OPENAI_API_KEY holds a character") as caught:
            make()
        assert "sk-" not in str(caught.value)


def test_several_models_of_a_server_are_a_question() -> None:
    """Nothing is guessed among several models, but OpenAI's default where it is one of them."""
    several = {"data": [{"id": name} for name in "abcdefghij"]}
    with (
        server([], routes={"/v1/models": several}) as s,
        pytest.raises(ModelError, match=r"--model NAME: a, b.*, \.\.\.$"),
    ):
        choose(None, s.base_url, {})
    with server([], routes={"/v1/models": {"data": [*several["data"], {"id": "gpt-4o-mini"}]}}) as s:
        assert choose(None, s.base_url, KEY).model == "openai:gpt-4o-mini"


@pytest.mark.parametrize("listed", [{}, {"data": None}, {"data": [{}]}, [], {"data": []}])
def test_a_server_that_does_not_say_its_models_is_named(listed: object) -> None:
    """Whatever a server answers there, the error names it and the way out."""
    with server([], routes={"/v1/models": listed}) as s, pytest.raises(ModelError, match="--model NAME"):
        choose(None, s.base_url, {})


def test_where_a_model_is_asked_is_told_without_secrets() -> None:
    """A key may stand in the query of a base URL: what is shown of it has neither that nor a password."""
    choice = choose("x", "http://me:hunter2@127.0.0.1:9/v1?api_key=hunter2#hunter2", {})
    assert choice.place == "http://127.0.0.1:9/v1"


def test_a_server_that_is_down_is_named_without_its_password() -> None:
    """The way out is said, and the password in a URL is not."""
    with pytest.raises(ModelError, match="start it, or name one: --model NAME") as caught:
        choose(None, "http://me:hunter2@127.0.0.1:9/v1", {})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("proxy", ["http://me:hunter2@127.0.0.1:9", "me:hunter2@127.0.0.1:9"])
def test_a_proxy_that_refuses_is_named_without_its_password(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of this machine may well run: what the environment has put before it is said, and only where it is asked."""
    for name in ("no_proxy", "NO_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with server([]) as s:
        with pytest.raises(ModelError, match=r"the proxy (http://)?127\.0\.0\.1:9; NO_PROXY=127\.0\.0\.1 ") as caught:
            choose(None, s.base_url, {})
        assert "hunter2" not in str(caught.value)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        choose(None, s.base_url, {})
    with pytest.raises(ModelError, match="start it") as caught:
        choose(None, URL, {})
    assert "proxy" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        *("localhost:8080", "ftp://x/v1", "http://", "http://x:99999/v1", "file:///etc/passwd"),
        "http://me:hunter2@[::1/v1?api_key=hunter2",
    ],
)
def test_what_is_no_url_of_a_server_is_refused(url: str) -> None:
    """A base URL is checked before anything is asked of it, and shown without its secrets."""
    with pytest.raises(ModelError, match="give one like") as caught:
        choose("m", url, {})
    assert "hunter2" not in str(caught.value)


def test_a_model_of_this_machine_takes_no_base_url() -> None:
    """Two contradicting wishes are refused, not resolved silently."""
    with pytest.raises(ModelError, match="give one of the two"):
        choose("local:1.5b", URL, {})


@pytest.mark.parametrize(
    ("props", "dialect"),
    [
        ({"chat_template_caps": {"supports_tools": False}}, "json_action"),
        ({"chat_template_caps": {"supports_tools": True}}, None),
        ({"chat_template_caps": None}, None),
        ([], None),
    ],
)
def test_a_server_that_drops_tools_is_asked_in_json(props: Any, dialect: str | None) -> None:
    """What `GET /props` of llama.cpp says decides; a server that does not say is taken to know tools."""
    with server([], routes={"/props": props}) as s:
        chosen = Choice("openai:x", s.base_url, "--model")
        assert with_dialect(chosen, {}) == replace(chosen, dialect=dialect)


def test_a_server_that_has_no_props_is_taken_to_know_tools() -> None:
    """Nor is one asked that nobody named, or that is not there."""
    with server([]) as s:
        there = Choice("openai:x", s.base_url, "--model")
        assert with_dialect(there, {}) == there
    assert with_dialect(there, {}) == there
    nowhere = Choice("openai:x", None, "--model")
    assert with_dialect(nowhere, {}) == nowhere
