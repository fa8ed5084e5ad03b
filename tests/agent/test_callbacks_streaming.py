"""What those hear of a run who want its tokens or the events of LangChain."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.tracers import _streaming

from fsm_agent.testing import Call, ScriptedModel, call, server
from tests.agent.kit import Tap, add, items_of, make


async def test_astream_events_shows_tokens_and_tools_and_changes_nothing() -> None:
    """The host's event stream has tokens, tool calls and the end; a cut call is not run although LangChain mends it."""
    executed: list[str] = []

    def purge(scope: str = "all") -> str:
        """Purge."""
        executed.append(scope)
        return "purged"

    script = [Call("purge", '{"scope": "tm'), call("add", a=1, b=2), "one two three"]
    with ScriptedModel(script) as model:
        events = [event async for event in make(model, [add, purge]).astream_events("go", version="v2")]
    kinds = [event["event"] for event in events]
    tokens = [event["data"]["chunk"].text for event in events if event["event"] == "on_chat_model_stream"]
    assert executed == []
    assert "".join(tokens).endswith("one two three")
    assert kinds.count("on_tool_start") == kinds.count("on_tool_end") == 1
    assert (kinds[0], kinds[-1]) == ("on_chain_start", "on_chain_end")


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_a_handler_that_wants_tokens_gets_them_and_a_cut_call_is_not_run(way: str) -> None:
    """LangGraph's stream of messages: `invoke` streams for its handler too, and what was cut off is read as strictly as ever."""
    executed: list[str] = []

    def purge(scope: str = "all") -> str:
        """Purge."""
        executed.append(scope)
        return "purged"

    tap = Tap()
    model = ScriptedModel([Call("purge", '{"scope": "tm'), "one two three"])
    items_of(make(model, [purge]), "go", way, {"callbacks": [tap]})
    assert executed == []
    assert "".join(tap.tokens) == "one two three"
    asked = Tap()
    with server(["one two three"]) as openai:
        items_of(make("openai:fake", base_url=openai.base_url), "go", way, {"callbacks": [asked]})
        assert [request.stream for request in openai.requests] == [True]
    assert "".join(asked.tokens) == "one two three"


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_a_handler_that_wants_events_gets_those_of_langchain_and_a_cut_call_is_not_run(way: str) -> None:
    """A handler of LangChain's newer streams is told events in the place of chunks: a stream of our own would leave it without any."""
    kind: Any = getattr(_streaming, "_V2StreamingCallbackHandler", None)
    if kind is None:
        pytest.skip("this LangChain has no such streams")
    executed: list[str] = []
    events: list[Any] = []

    class Events(Tap, kind):  # type: ignore[misc]  # a class that not every LangChain has
        """Both kinds at once, as LangGraph's newer handler."""

        def on_stream_event(self, event: Any, **kwargs: Any) -> None:
            """Keep it."""
            events.append(event)

    def purge(scope: str = "all") -> str:
        """Purge."""
        executed.append(scope)
        return "purged"

    model = ScriptedModel([Call("purge", '{"scope": "tm'), "one two three"])
    tap = Events()
    items_of(make(model, [purge]), "go", way, {"callbacks": [tap]})
    assert (executed, tap.tokens) == ([], [])
    assert events
