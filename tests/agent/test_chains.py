"""An agent as a link of a LangChain chain."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.runnables import RunnableConfig, RunnableLambda, RunnableParallel, RunnablePassthrough
from langchain_core.runnables.history import RunnableWithMessageHistory

from fsm_agent import RunResult, Token
from fsm_agent.errors import DefinitionError
from fsm_agent.testing import ScriptedModel, call
from tests.agent.kit import RUN, THREAD, WAYS, Recorder, add, items_of, make, run
from tests.memory.kit import ListHistory


@pytest.mark.parametrize("way", WAYS)
def test_in_the_middle_of_a_chain(way: str) -> None:
    """A prompt before it and a function behind it: the chain gives the answer in every way."""
    prompt = ChatPromptTemplate.from_messages([("system", "Answer in {language}."), ("human", "{question}")])
    with ScriptedModel([call("add", a=1, b=2), "tre"]) as model:
        chain = prompt | make(model, [add]) | RunnableLambda(lambda result: result.answer.upper())
        items = items_of(chain, {"language": "Italian", "question": "1+2?"}, way)
    assert items == ["TRE"]
    assert "1+2?" in model.requests[0].text
    assert "Answer in Italian." in model.requests[0].messages[0].text
    assert [message.type for message in model.requests[0].messages] == ["system", "human"]


@pytest.mark.parametrize("way", WAYS)
def test_at_both_ends_of_a_chain(way: str) -> None:
    """First and last: the answer of one agent is the task of the next."""
    with ScriptedModel(by_task={"topic": ["draft one"], "Polish: draft": ["final one"]}) as model:
        writer, editor = make(model, name="writer"), make(model, name="editor")
        chain = writer | RunnableLambda(lambda result: f"Polish: {result.answer}") | editor
        result = run(chain, "topic", way)
    assert result.answer == "final one"


def test_a_chain_that_ends_in_an_agent_streams_its_items() -> None:
    """As the last part of a chain, tokens and transitions come through."""
    with ScriptedModel(["one two"]) as model:
        chain = PromptTemplate.from_template("Say {what}") | make(model)
        items = list(chain.stream({"what": "it"}))
    assert [item.text for item in items if isinstance(item, Token)] == ["one", " two"]
    assert items[-1].answer == "one two"


def test_in_parallel_and_assigned() -> None:
    """Two agents in parallel on one input, and one whose result is assigned to a key."""
    with ScriptedModel(["x", "y", "z"]) as model:
        agent = make(model)
        both = RunnableParallel(one=agent, other=agent).invoke("task")
        assert {both["one"].answer, both["other"].answer} == {"x", "y"}
        chain: Any = RunnablePassthrough.assign(result=lambda given: agent.invoke(given["task"]))
        assert chain.invoke({"task": "t", "keep": 1})["result"].answer == "z"


def test_map_over_a_list() -> None:
    """`map()` runs the agent for each element."""
    model = ScriptedModel(lambda request: f"echo {request.messages[-1].text}")
    assert [result.answer for result in make(model).map().invoke(["a", "b"])] == ["echo a", "echo b"]


def test_with_config_binds_thread_tags_and_name() -> None:
    """`with_config` gives every run its thread, tags and name."""
    handler = Recorder()
    with ScriptedModel(["a", "b"]) as model:
        bound = make(model).with_config(
            {"configurable": {"thread_id": "t"}, "tags": ["mine"], "run_name": "named", "callbacks": [handler]}
        )
        bound.invoke("first")
        result = bound.invoke("second")
    assert result.thread_id == "t"
    assert "first" in model.requests[1].text
    chains = [event for event in handler.events if event.name == "on_chain_start"]
    assert [event.label for event in chains] == ["named", "named"]
    assert all("mine" in event.tags for event in handler.events)


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning")
@pytest.mark.parametrize("way", WAYS)
def test_with_a_message_history_around_it(way: str) -> None:
    """`RunnableWithMessageHistory` finds the task and the answer of each run, and the next one knows them."""
    history = ListHistory()
    agent: Any = make(ScriptedModel(lambda request: f"seen {len(request.messages)}"))
    chain = RunnableWithMessageHistory(
        agent,
        lambda: history,
        input_messages_key="input",
        history_messages_key="chat_history",
        history_factory_config=[],
    )
    items_of(chain, {"input": "one"}, way)
    items_of(chain, {"input": "two"}, way)
    assert [message.content for message in history.messages] == ["one", "seen 2", "two", "seen 4"]


@pytest.mark.parametrize("what", ["get_input_jsonschema", "get_output_jsonschema", "get_config_jsonschema"])
def test_its_schemas_can_be_asked_for(what: str) -> None:
    """What serves a runnable asks for its schemas."""
    assert isinstance(getattr(make(ScriptedModel([])), what)(), dict)


def test_it_has_a_name_and_a_graph() -> None:
    """Its name shows in traces and in the drawing of a chain."""
    agent = make(ScriptedModel([]), name="accountant")
    assert agent.get_name() == "accountant"
    assert agent.OutputType is RunResult
    chain = agent | RunnableLambda(lambda result: result.answer)
    assert "accountant" in chain.get_graph().draw_mermaid()


def test_an_agent_among_the_tools_is_refused_with_what_to_do() -> None:
    """An agent is no tool by itself; the error names the way that makes one of it."""
    with pytest.raises(DefinitionError, match="make one of it with its as_tool") as raised:
        make(ScriptedModel([]), [make(ScriptedModel([]))])
    with pytest.raises(DefinitionError) as other:
        make(ScriptedModel([]), [5])
    assert "arg_types" in str(raised.value)
    assert "as_tool" not in str(other.value)


@pytest.mark.filterwarnings("ignore::langchain_core._api.beta_decorator.LangChainBetaWarning")
def test_an_agent_is_a_tool_of_another_one() -> None:
    """`as_tool` makes an agent a LangChain tool: the outer model reads the inner answer, and only that."""
    inner_model = ScriptedModel(["the capital is Oslo"])
    inner = make(inner_model)
    as_tool = inner.as_tool(name="geographer", description="Knows capitals.", arg_types={"task": str})
    with ScriptedModel([call("geographer", task="capital of Norway?"), "Oslo"]) as model:
        result = run(make(model, [as_tool]), "go")
    assert result.answer == "Oslo"
    told = model.requests[1].messages[-1].text
    assert "the capital is Oslo" in told
    assert len(told) < 500, "the log of the inner run is no text for the outer model"


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_run_inside_of_a_tool_is_a_run_of_its_own(way: str, watched: bool, tmp_path: Path) -> None:
    """It has neither the id nor the thread of the run around it, whoever listens and however the config got there; or one of its own."""
    said = ScriptedModel(["one", "two", "three", "four"])
    inner = make(said, name="inner", store=tmp_path / "runs.db")
    chain = RunnableLambda(lambda task: task) | inner

    def ask(task: str, config: RunnableConfig) -> str:
        """Ask the other one."""
        result = {
            "around": lambda: inner.invoke(task),
            "handed": lambda: inner.invoke(task, config),
            "chain": lambda: chain.invoke(task, config),
            "named": lambda: inner.invoke(task, {"configurable": {"thread_id": "named"}}),
        }[task]()
        assert (result.thread_id, result.run_id == "r") == ("named" if task == "named" else None, False)
        return str(result.answer)

    script = [*(call("ask", task=task) for task in ("around", "handed", "chain", "named")), "done"]
    config: RunnableConfig = {"configurable": RUN["configurable"], "callbacks": [Recorder()] if watched else []}
    result = run(make(ScriptedModel(script), [ask], store=tmp_path / "runs.db"), "go", way, config)
    assert [one.text for one in result.results] == ["one", "two", "three", "four"]
    assert [len(request.messages) for request in said.requests] == [2, 2, 2, 2]
    assert (result.run_id, result.thread_id) == ("r", "t")


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_run_takes_over_nothing_of_a_run_further_out(way: str, watched: bool) -> None:
    """Each of three runs, one inside of the other, has an id of its own, and the outermost alone has the thread."""
    found: list[RunResult] = []

    def ask(left: int) -> str:
        """Ask one that asks on."""
        script = [call("ask", left=left - 1), "done"] if left else ["done"]
        found.append(make(ScriptedModel(script), [ask]).invoke("go"))
        return "asked"

    config: RunnableConfig = {"configurable": RUN["configurable"], "callbacks": [Recorder()] if watched else []}
    found.append(run(make(ScriptedModel([call("ask", left=1), "done"]), [ask]), "go", way, config))
    assert [one.thread_id for one in found] == [None, None, "t"]
    assert found[-1].run_id == "r"
    assert len({one.run_id for one in found}) == 3


def test_the_messages_of_a_result_are_a_list_of_their_own() -> None:
    """`messages` is a list, as a graph of LangGraph adds to its state (a tuple it takes for one message), and each result has its own."""
    agent = make(ScriptedModel([call("add", a=1, b=2), "3", "again"]), [add])
    first = agent.invoke("1+2", THREAD)
    assert isinstance(first.messages, list)
    first.messages.clear()
    second = agent.invoke([HumanMessage("once more", id="7")], THREAD)
    assert [message.type for message in second.messages] == ["human", "ai"]
    assert second.messages[0].id == "7", "what the graph knows already is not added again"


GRAPH: RunnableConfig = {"configurable": {"thread_id": "t", "run_id": "of the graph", "checkpoint_ns": "agent:1"}}
"""What LangGraph gives a node, its server with the id of the graph's run among it."""


PROMPT = ChatPromptTemplate.from_messages([("placeholder", "{history}"), ("human", "now")])


@pytest.mark.parametrize(
    ("state", "thread"),
    [
        ({"messages": ["before", ("ai", "of another node"), "now"]}, None),
        ({"messages": ["now"]}, None),
        (["before", ("ai", "of another node"), "now"], None),
        ({"task": "now", "chat_history": ["before"]}, None),
        (PROMPT.invoke({"history": ["before"]}), None),
        (PROMPT.invoke({}), "t"),
        ({"task": "now"}, "t"),
        ({"task": "now", "messages": ["before"]}, "t"),
        ("now", "t"),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_the_messages_of_a_graph_are_the_conversation(way: str, state: Any, thread: str | None) -> None:
    """What others wrote into the state is read, what was removed there is not, and without messages the thread has what was said."""
    with ScriptedModel(["one", "two"]) as model:
        agent = make(model)
        run(agent, "removed", way, THREAD)
        assert run(agent, state, way, GRAPH).thread_id == thread
    assert ("removed" in model.requests[1].text) is (thread is not None)
    assert ("of another node" in model.requests[1].text) is ("of another node" in str(state))


@pytest.mark.parametrize("way", WAYS)
def test_the_run_of_a_graph_is_not_that_of_its_agents(way: str, tmp_path: Path) -> None:
    """A node that runs again within one run of its graph has a run id of its own each time, and the graph's thread."""
    with ScriptedModel(["one", "two"]) as model:
        agent = make(model, store=tmp_path / "runs.db")
        results = [run(agent, "go", way, GRAPH) for _ in range(2)]
    assert [one.thread_id for one in results] == ["t", "t"]
    assert len({"of the graph", *(one.run_id for one in results)}) == 3


def test_the_id_that_a_run_in_a_graph_is_given_is_its_own() -> None:
    """LangChain's own `run_id` goes to nobody else, so that it names the run in a graph too."""
    result = make(ScriptedModel(["one"])).invoke("go", {**GRAPH, "run_id": UUID(int=7)})
    assert result.run_id == str(UUID(int=7))


@pytest.mark.parametrize(
    ("around", "handed", "thread"),
    [(GRAPH, False, None), (GRAPH, True, "t"), (THREAD, False, "t"), (THREAD, True, "t")],
    ids=["graph", "graph, handed on", "chain", "chain, handed on"],
)
@pytest.mark.parametrize("way", WAYS)
def test_an_agent_that_a_function_calls(way: str, around: RunnableConfig, handed: bool, thread: str | None) -> None:
    """A function of a graph, a tool of it say, has runs of their own made, at the same time too, unless it hands its config on."""

    def ask(task: str, config: RunnableConfig) -> Any:
        return agent.invoke(task, config if handed else None)

    async def aask(task: str, config: RunnableConfig) -> Any:
        return await agent.ainvoke(task, config if handed else None)

    with ScriptedModel(["one"]) as model:
        agent = make(model)
        (result,) = items_of(RunnableLambda(ask, aask), "go", way, around)
    assert result.thread_id == thread
