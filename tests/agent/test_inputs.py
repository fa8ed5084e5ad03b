"""What a run and an agent may be given, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, BaseToolkit
from langchain_core.tools import tool as langchain_tool

from fsm_agent import Agent, Limits, Registry, RunError, Status, StopReason, tool
from fsm_agent.errors import DefinitionError, ModelError
from fsm_agent.inputs import read_input
from fsm_agent.models import resolve
from fsm_agent.observe import silent_logger
from fsm_agent.testing import ScriptedModel, call, server
from tests.agent.kit import THREAD, WAYS, Recorder, add, make, run

PROMPT = ChatPromptTemplate.from_messages([("human", "{q}")])


FORMS: list[tuple[str, Any]] = [
    ("text", "hello"),
    ("message", HumanMessage("hello")),
    ("messages", [HumanMessage("hello")]),
    ("pairs", [("user", "hello")]),
    ("pair", ("user", "hello")),
    ("dicts", [{"role": "user", "content": "hello"}]),
    ("dict", {"role": "user", "content": "hello"}),
    ("task", {"task": "hello"}),
    ("input", {"input": "hello"}),
    ("mapping", {"messages": [("user", "hello")]}),
    ("mapping-pair", {"messages": ("user", "hello")}),
    ("mapping-dict", {"messages": {"role": "user", "content": "hello"}}),
    ("no-history", {"input": "hello", "chat_history": []}),
    ("prompt", PROMPT.invoke({"q": "hello"})),
    ("blocks", HumanMessage([{"type": "text", "text": "hello"}])),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "given"), FORMS, ids=[form[0] for form in FORMS])
def test_every_form_of_a_task(name: str, given: Any, way: str) -> None:
    """A text, a message, messages in LangChain's forms, a prompt value, or a mapping that holds one of them."""
    with ScriptedModel(["hi"]) as model:
        assert run(make(model), given, way).answer == "hi", name
    (sent,) = [message for message in model.requests[0].messages if message.type == "human"]
    assert sent.text == "hello"


def test_earlier_turns_of_the_caller_are_sent() -> None:
    """Messages before the last are the conversation so far."""
    with ScriptedModel(["three"]) as model:
        run(make(model), [HumanMessage("one"), AIMessage("two"), HumanMessage("what next?")])
    assert [message.text for message in model.requests[0].messages[1:]] == ["one", "two", "what next?"]


def test_earlier_turns_may_stand_beside_the_task() -> None:
    """`chat_history`, as `RunnableWithMessageHistory` and the agents before it have it, is the conversation so far."""
    earlier = [SystemMessage("Be terse."), ("user", "one"), AIMessage("two")]
    with ScriptedModel(["three"]) as model:
        run(make(model), {"input": "what next?", "chat_history": earlier})
    system, *said = [message.text for message in model.requests[0].messages]
    assert said == ["one", "two", "what next?"]
    assert system.endswith("Be terse.")
    assert [one.text for one in read_input({"input": "go", "chat_history": ("user", "one")}).earlier] == ["one"]


WRONG: list[tuple[str, Any, str]] = [
    ("empty", "", "empty"),
    ("blank", " \n ", "empty"),
    ("none", None, "NoneType"),
    ("number", 5, "int"),
    ("empty-list", [], "empty list"),
    ("no-key", {"question": "hello"}, "question"),
    ("empty-mapping", {}, "none"),
    ("assistant-last", [HumanMessage("a"), AIMessage("b")], "AIMessage, and must be the user's: add a HumanMessage"),
    ("system-only", [SystemMessage("a")], "SystemMessage"),
    ("blank-message", HumanMessage(""), "empty"),
    ("no-blocks", HumanMessage([]), "empty"),
    ("blank-block", HumanMessage([{"type": "text", "text": " "}]), "empty"),
    ("assistant-pair", ("assistant", "hello"), "AIMessage"),
    ("history-text", {"input": "hello", "chat_history": "Human: hi"}, "chat_history is str"),
    ("history-odd", {"input": "hello", "chat_history": [5]}, "no list of messages"),
    ("bytes", b"hello", "bytes"),
    ("odd-list", [object()], "object"),
    ("nested", {"task": {"task": ""}}, "empty"),
]


@pytest.mark.parametrize("way", WAYS)
def test_an_argument_that_nobody_would_read_is_refused(way: str) -> None:
    """`invoke(task, thread_id=...)` would keep no thread: it says where that goes, before anything happens."""
    with ScriptedModel(["hi"]) as model:
        agent = make(model)
        with pytest.raises(RunError, match=r"takes no thread_id: .* callbacks, a thread .*\"configurable\""):
            run(agent.bind(thread_id="ana"), "hello", way)
        assert model.count == 0
        assert run(agent, "hello", way).answer == "hi"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("odd", [" ", "a\nb"])
def test_a_run_id_is_a_text_of_one_line(odd: str, way: str) -> None:
    """An id that would break a line of a log or of the list of runs is refused before anything happens; any script is fine."""
    with ScriptedModel(["hi"]) as model:
        agent = make(model)
        with pytest.raises(RunError, match=r"run id is .*; give a text of one line"):
            run(agent, "hello", way, {"configurable": {"run_id": odd}})
        assert model.count == 0
        assert run(agent, "hello", way, {"configurable": {"run_id": "第 1 次/a"}}).run_id == "第 1 次/a"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("odd", ["", " ", "a\nb"])
def test_a_thread_id_is_a_text_of_one_line(odd: str, way: str) -> None:
    """Who has no name for a thread yet, as a variable that is not set, does not share one with all others that have none."""
    with ScriptedModel(["hi"]) as model:
        agent = make(model)
        with pytest.raises(RunError, match=r"thread_id is .*; give a text of one line"):
            run(agent, "hello", way, {"configurable": {"thread_id": odd}})
        assert model.count == 0
        assert run(agent, "hello", way, {"configurable": {"thread_id": 5}}).thread_id == "5"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "given", "says"), WRONG, ids=[wrong[0] for wrong in WRONG])
def test_a_wrong_input_is_refused_before_anything_happens(name: str, given: Any, says: str, way: str) -> None:
    """What is no task raises a `RunError` that says what was wrong: no model call, no thread taken, no callback."""
    handler = Recorder()
    with ScriptedModel(["hi"]) as model:
        agent = make(model)
        with pytest.raises(RunError, match=says):
            run(agent, given, way, {**THREAD, "callbacks": [handler]})
        assert (model.count, handler.events) == (0, []), name
        assert run(agent, "hello", "invoke", THREAD).answer == "hi"


class Kit(BaseToolkit):
    """A toolkit, which is no list of tools, but can be iterated as any pydantic model."""

    def get_tools(self) -> list[BaseTool]:
        """One."""
        return [langchain_tool(add)]


def test_tools_may_be_none_and_those_of_a_toolkit() -> None:
    """None is for no tools, as elsewhere; a toolkit gives its own by `get_tools`."""
    assert make(ScriptedModel([]), None).tools.names() == ()
    assert make(ScriptedModel([]), Kit().get_tools()).tools.names() == ("add",)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Agent(object()), "chat model"),  # type: ignore[arg-type]  # that is the point
        (lambda: Agent(None), "chat model"),  # type: ignore[arg-type]  # that is the point
        (lambda: Agent(lambda text: text), "chat model"),  # type: ignore[arg-type]  # that is the point
        (lambda: Agent(ScriptedModel([]), [5]), "tool"),  # type: ignore[list-item]  # that is the point
        (lambda: Agent(ScriptedModel([]), [add, add]), "add"),
        (lambda: Agent(ScriptedModel([]), langchain_tool(add)), "kind StructuredTool: give a list"),  # type: ignore[arg-type]  # that is the point
        (lambda: Agent(ScriptedModel([]), Kit()), r"get_tools\(\)"),  # type: ignore[arg-type]  # that is the point
        (lambda: Agent(ScriptedModel([]), dialect="klingon"), "klingon"),
        (lambda: Agent(ScriptedModel([]), [tool(name="FINISH")(add)], dialect="json_action"), "'FINISH' here"),
        (lambda: Agent(ScriptedModel([]), [tool(name="THINK")(add)], dialect="guided_json"), "'THINK' here"),
        (lambda: Agent(ScriptedModel([]), limits=Limits(max_steps=0)), "max_steps"),
        (lambda: Agent("gpt-4o-mini"), "OPENAI_API_KEY"),
        (lambda: Agent(ScriptedModel([]), ladder=["rope"]), "fallback, default, strategy, simpler, answer, stop"),
        (lambda: Agent(ScriptedModel([]), language="fr"), "en, zh"),  # type: ignore[arg-type]  # that is the point
        (lambda: Agent(ScriptedModel([])).pause_at("LUNCH"), "PLAN"),
        (lambda: Agent(ScriptedModel([]), store=""), "names no file"),
    ],
    ids="object none function tool twice single kit dialect finish think limits key ladder language state store".split(),
)
def test_a_wrong_definition_is_refused_when_it_is_made(build: Callable[[], Agent], says: str) -> None:
    """What is wrong with a definition is said at once, with what to give instead."""
    with pytest.raises(DefinitionError, match=says):
        build()


def test_a_tool_with_a_name_of_the_dialect_is_refused_also_when_it_came_later() -> None:
    """A registry takes tools after its agent was made: no run begins with one that no reply could call, nor holds its thread."""
    tools = Registry([add])
    answer = '{"action": "FINISH", "action_input": {"answer": "3"}}'
    agent = Agent(ScriptedModel([answer]), tools, dialect="json_action", logger=silent_logger())
    tools.register(tool(name="FINISH")(add))
    thread: RunnableConfig = {"configurable": {"thread_id": "ana"}}
    with pytest.raises(DefinitionError, match="'FINISH' here"):
        agent.invoke("1+2", thread)
    tools.unregister("FINISH")
    assert agent.invoke("1+2", thread).status is Status.COMPLETED


@pytest.mark.parametrize("way", WAYS)
def test_a_request_without_tools_says_nothing_of_tools(way: str) -> None:
    """What `bind` and `bind_tools` said of tools is left out where an answer is asked for without them: OpenAI would refuse it."""
    with server([call("add", a=1, b=2), "3"]) as openai:
        model = resolve("openai:fake", base_url=openai.base_url)
        bound = model.bind_tools([add], tool_choice="auto", parallel_tool_calls=False).bind(seed=7)
        result = run(make(bound, [add], limits={"max_steps": 1}), "1+2", way)
        first, last = [request.body for request in openai.requests]
    assert (result.reason, result.answer) == (StopReason.FORCED_ANSWER, "3")
    assert (first["tool_choice"], first["parallel_tool_calls"], first["seed"]) == ("auto", False, 7)
    assert ("tools" in last, "tool_choice" in last, "parallel_tool_calls" in last, last["seed"]) == (False,) * 3 + (7,)


def test_tools_that_a_model_brings_along_are_those_of_an_agent_without_any() -> None:
    """A provider's own tools, bound to the model, are offered by an agent that has none; a bound choice among none is not."""
    with server(["one", "two"]) as openai:
        model = resolve("openai:fake", base_url=openai.base_url)
        make(model.bind_tools([add])).invoke("go")
        make(model.bind(parallel_tool_calls=False)).invoke("go")
        first, last = openai.requests
    assert first.tool_names == ("add",)
    assert "parallel_tool_calls" not in last.body


@pytest.mark.parametrize("way", WAYS)
def test_what_a_provider_runs_itself_stays_beside_the_tools_of_the_agent(way: str) -> None:
    """A web search that was bound to the model is offered with the agent's tools, a bound function is not, and neither in the last call."""
    search = {"type": "web_search", "name": "web_search"}
    model = ScriptedModel([call("add", a=1, b=2), "3"])
    other = {"type": "function", "function": {"name": "other", "parameters": {}}}
    result = run(make(model.bind(tools=[search, other]), [add], limits={"max_steps": 1}), "1+2", way)
    first, last = (request.tools for request in model.requests)
    assert result.answer == "3"
    assert [one.get("name") or one["function"]["name"] for one in first] == ["add", "web_search"]
    assert not last


@pytest.mark.parametrize("way", WAYS)
def test_a_model_bound_to_stream_is_asked_as_the_run_needs_it(way: str) -> None:
    """`bind(stream=True)` changes nothing of what comes of a run."""
    with server(["hello"]) as openai:
        model = resolve("openai:fake", base_url=openai.base_url).bind(stream=True)
        assert run(make(model), "go", way).answer == "hello"


def test_a_model_that_cannot_call_tools_is_refused_before_any_run() -> None:
    """A model without tool calling is a wrong definition for the native dialect, and fine for another."""

    class Plain(ScriptedModel):
        """Has no tool calling."""

        def bind_tools(self, *args: Any, **kwargs: Any) -> Any:
            """Refuse, as LangChain's base class does."""
            raise NotImplementedError

    plain: Any = Plain  # for mypy, which knows only the constructor that pydantic's plugin makes up
    with pytest.raises(DefinitionError, match="json_action"):
        make(plain([]), [add])
    said = '{"action": "FINISH", "action_input": {"answer": "ok"}}'
    assert run(make(plain([said]), [add], dialect="json_action"), "go").answer == "ok"
    assert issubclass(ModelError, DefinitionError)


@pytest.mark.parametrize(
    "model",
    [ScriptedModel([]), "local:0.5b", "anthropic:claude", "qwen2.5:7b"],
    ids=["made", "local", "provider", "colon"],
)
def test_a_base_url_that_would_not_be_asked_is_refused(model: Any) -> None:
    """A model that is made has a server of its own, as one of this machine or of another provider has: no call goes where nobody said."""
    with pytest.raises(ModelError, match="base_url is the server of a model that is named"):
        Agent(model, base_url="http://localhost:8080/v1")
    with pytest.raises(ModelError, match="base_url is the server of a model that is named"):
        Agent.from_profile("native", model, base_url="http://localhost:8080/v1")


def test_limits_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `limits` the agent reads them from FSM_AGENT_..., and what is wrong there is named."""
    monkeypatch.setenv("FSM_AGENT_MAX_STEPS", "3")
    agent = Agent(ScriptedModel([]), logger=silent_logger())
    assert agent.limits.max_steps == 3
    monkeypatch.setenv("FSM_AGENT_MAX_STEPS", "many")
    with pytest.raises(DefinitionError, match="FSM_AGENT_MAX_STEPS"):
        Agent(ScriptedModel([]))
