"""Who runs the tasks of the reliability benchmark, each set up as its own documentation recommends.

- `AgentExecutor` (langchain-classic) with `handle_parsing_errors=True` and its default of 15 iterations: the tool-calling agent, the
  structured-chat agent (JSON) and the ReAct agent, for which each tool takes one JSON text, read by a `ToolException`-raising wrapper
  under `handle_tool_error=True`. "errors as text": the tools also return their own errors as text, as a careful user would write them.
- `create_agent` (langchain): bare, and with its own middleware (model calls and tool calls limited to 15, retries of both, errors as
  text). It has no time-out for synchronous tools.
- This engine with 15 steps, under three dialects: native tool calls, one JSON object a reply, and ReAct. Its tools say what the
  engine asks of them: which may be done twice (`idempotent`), which must not (`once`), and their fallback. Memory is `KeyFacts()`, as runs
  of up to 15 steps need what their first results said; the peers send everything.
- Each profile of this engine (`Agent.from_profile`) with those tools and, so that all have the same cap, 15 steps; with its own cap
  (`--own-caps`) some tasks are longer than it may go on. Those with a short window come once more with `KeyFacts` around it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_core.tools import Tool as TextTool

from fsm_agent import Agent, KeyFacts, Limits, MessageWindow, RunResult, StopReason, Tool, Window
from fsm_agent.memory import InMemoryConversations, Memory
from fsm_agent.observe import silent_logger
from fsm_agent.testing import FakeClock
from fsm_agent.tools import as_tool
from tests.benchmarks.reliability_model import JsonProtocol, Native, Protocol, ReAct
from tests.benchmarks.reliability_tasks import ADDING_UP, BACKUPS, World

__all__ = ["CONTENDERS", "OWN_CAPS", "STEPS", "Contender", "Told", "own_tools", "told_by"]

SYSTEM: Final = "You solve the user's task with the tools. Never invent a result."
STEPS: Final = 15
"""The cap of every contender that has one: AgentExecutor's own default."""
TOOL_TIMEOUT: Final = 0.3
_CAPPED: Final = re.compile(r"stopped due to max iterations|limits? (exceeded|reached)", re.IGNORECASE)


@dataclass(frozen=True)
class Told:
    """What a caller gets back. `complete`: it is told as a finished answer. `capped`: the run went on to its cap of steps."""

    answer: str
    complete: bool
    capped: bool
    why: str = ""


@dataclass(frozen=True)
class Contender:
    """One way to run a task: `run(model, world)`, the protocol that the model speaks with it, and the package that it needs."""

    run: Callable[[BaseChatModel, World], Told]
    protocol: Protocol
    package: str = ""


def _engine(model: BaseChatModel, world: World, *, dialect: str) -> Told:
    limits = Limits(max_steps=STEPS, tool_timeout=TOOL_TIMEOUT)
    agent = Agent(
        model,
        own_tools(world),
        limits=limits,
        dialect=dialect,
        system=SYSTEM,
        memory=KeyFacts(),
        clock=FakeClock(),
        logger=silent_logger(),
    )
    return told_by(agent.invoke(world.task.text))


def _profile(
    model: BaseChatModel, world: World, *, name: str, own_cap: bool = False, memory: Memory | None = None
) -> Told:
    """A profile with the tools of the task and, unless it keeps its own, the cap of steps that everybody has."""
    limits: dict[str, Any] = (
        {"tool_timeout": TOOL_TIMEOUT} if own_cap else {"tool_timeout": TOOL_TIMEOUT, "max_steps": STEPS}
    )
    agent = Agent.from_profile(
        name,
        model,
        own_tools(world),
        limits=limits,
        memory=memory,
        # Without a thread nothing is kept; the default of one of them is a server.
        conversations=InMemoryConversations(),
        clock=FakeClock(),
        logger=silent_logger(),
    )
    return told_by(agent.invoke(world.task.text))


def own_tools(world: World) -> list[Tool]:
    """The tools of a world as this engine takes them: with their fallbacks, and saying which may be done twice."""
    made = {function.__name__: as_tool(function) for function in world.tools()}
    return [
        as_tool(tool, idempotent=name not in ADDING_UP, once=name in ADDING_UP, fallback=BACKUPS.get(name))
        for name, tool in made.items()
    ]


def told_by(result: RunResult) -> Told:
    """A result of this engine as its caller sees it."""
    reasons = [one.reason for one in result.transitions if one.reason is not None]
    return Told(result.answer or "", result.ok, StopReason.MAX_STEPS in reasons, ", ".join(dict.fromkeys(reasons)))


def _says(answer: str) -> Told:
    capped = _CAPPED.search(answer) is not None
    return Told(answer, not capped, capped)


def _create_agent(model: BaseChatModel, world: World, *, middleware: bool) -> Told:
    from langchain.agents import create_agent

    agent = create_agent(model, _tools(world), system_prompt=SYSTEM, middleware=_middleware() if middleware else ())
    return _says(agent.invoke({"messages": [("user", world.task.text)]})["messages"][-1].text)


def _middleware() -> list[Any]:
    from langchain.agents import middleware as m

    return [
        m.ModelCallLimitMiddleware(run_limit=STEPS),
        m.ToolCallLimitMiddleware(run_limit=STEPS),
        m.ModelRetryMiddleware(initial_delay=0.0, jitter=False),
        # Around the retries, so that it sees only what they could not mend.
        m.ToolErrorMiddleware(on_error=lambda error, _: f"{type(error).__name__}: {error}"),
        m.ToolRetryMiddleware(initial_delay=0.0, jitter=False, on_failure="error"),
    ]


def _executor(model: BaseChatModel, world: World, *, careful: bool = False) -> Told:
    from langchain_classic.agents import create_tool_calling_agent
    from langchain_core.prompts import ChatPromptTemplate

    tools = _tools(world, careful=careful)
    lines = [("system", SYSTEM), ("human", "{input}"), ("placeholder", "{agent_scratchpad}")]
    return _executed(create_tool_calling_agent(model, tools, ChatPromptTemplate.from_messages(lines)), tools, world)


_CHAT: Final = f"""{SYSTEM}

Tools:
{{tools}}

Every reply is one JSON blob with "action" (the name of one tool, of {{tool_names}}, or "Final Answer") and "action_input":
Action:
```
{{{{"action": "<name>", "action_input": <input>}}}}
```
With "Final Answer" the input is the complete answer as a text."""


def _chat_executor(model: BaseChatModel, world: World) -> Told:
    from langchain_classic.agents import create_structured_chat_agent
    from langchain_core.prompts import ChatPromptTemplate

    tools = _tools(world)
    prompt = ChatPromptTemplate.from_messages([("system", _CHAT), ("human", "{input}\n\n{agent_scratchpad}")])
    return _executed(create_structured_chat_agent(model, tools, prompt), tools, world)


_REACT: Final = f"""{SYSTEM}

Tools:
{{tools}}

Reply in this form, then stop:
Thought: <what is needed next>
Action: <one of {{tool_names}}>
Action Input: <its arguments as one JSON object>
or, when the task is done:
Thought: <why it is done>
Final Answer: <the complete answer>

Question: {{input}}
Thought: {{agent_scratchpad}}"""


def _react_executor(model: BaseChatModel, world: World) -> Told:
    from langchain_classic.agents import create_react_agent
    from langchain_core.prompts import PromptTemplate

    tools: list[BaseTool] = [_text_tool(function) for function in world.tools()]
    return _executed(create_react_agent(model, tools, PromptTemplate.from_template(_REACT)), tools, world)


def _executed(agent: Any, tools: list[BaseTool], world: World) -> Told:
    from langchain_classic.agents import AgentExecutor

    executor = AgentExecutor(agent=agent, tools=tools, handle_parsing_errors=True)
    return _says(str(executor.invoke({"input": world.task.text})["output"]))


def _tools(world: World, *, careful: bool = False) -> list[BaseTool]:
    functions = world.tools()
    return [StructuredTool.from_function(_careful(one) if careful else one) for one in functions]


def _careful(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def told(*args: Any, **kwargs: Any) -> str:
        try:
            return str(function(*args, **kwargs))
        except Exception as error:
            return f"Error: {error}"

    return told


def _text_tool(function: Callable[..., Any]) -> BaseTool:
    """A tool of one text, as the ReAct agent calls it."""

    def read(text: str) -> Any:
        try:
            given = json.loads(text)
        except ValueError as error:
            raise ToolException(f"the input is not a JSON object: {error}") from error
        if not isinstance(given, dict):
            raise ToolException("the input is not a JSON object")
        return function(**given)

    described = StructuredTool.from_function(function)
    about = f"{described.description} Input: a JSON object with {', '.join(described.args) or 'nothing'}."
    return TextTool(name=described.name, func=read, description=about, handle_tool_error=True)


PROTOCOLS: Final[Mapping[str, Protocol]] = {
    "session": JsonProtocol(),
    "lightweight": JsonProtocol(),
    "controlled": Native(),
    "breaker": ReAct(),
    "native": Native(),
}
"""What the model speaks with each profile: that of its dialect."""
KEEPING: Final[Mapping[str, Memory]] = {"controlled": KeyFacts(Window(3)), "native": KeyFacts(MessageWindow(10))}
"""The windows of two profiles, with the facts of what has left them."""
OWN_CAPS: Final[Mapping[str, Contender]] = {
    f"profile {name}, own cap": Contender(partial(_profile, name=name, own_cap=True), protocol)
    for name, protocol in PROTOCOLS.items()
}
CONTENDERS: Final[Mapping[str, Contender]] = {
    "fsm_agent, native": Contender(partial(_engine, dialect="native"), Native()),
    "fsm_agent, json_action": Contender(partial(_engine, dialect="json_action"), JsonProtocol()),
    "fsm_agent, react": Contender(partial(_engine, dialect="react"), ReAct()),
    **{f"profile {name}": Contender(partial(_profile, name=name), protocol) for name, protocol in PROTOCOLS.items()},
    **{
        f"profile {name}, key facts": Contender(partial(_profile, name=name, memory=memory), PROTOCOLS[name])
        for name, memory in KEEPING.items()
    },
    "AgentExecutor, tool calling": Contender(_executor, Native(), "langchain_classic"),
    "AgentExecutor, tool calling, errors as text": Contender(
        partial(_executor, careful=True), Native(), "langchain_classic"
    ),
    "AgentExecutor, structured chat": Contender(
        _chat_executor, JsonProtocol(finish="Final Answer", plain=True, fenced=True), "langchain_classic"
    ),
    "AgentExecutor, ReAct": Contender(_react_executor, ReAct(), "langchain_classic"),
    "create_agent": Contender(partial(_create_agent, middleware=False), Native(), "langchain"),
    "create_agent + middleware": Contender(partial(_create_agent, middleware=True), Native(), "langchain"),
}
