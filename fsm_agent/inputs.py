"""What a run may be given: a task as text, messages, or a mapping that holds either."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage, SystemMessage, convert_to_messages
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from fsm_agent.dialects import Dialect
from fsm_agent.errors import RunError
from fsm_agent.history import Block, text_of
from fsm_agent.language import Language, detect_language, texts_for
from fsm_agent.memory.rebuilt import rebuilt
from fsm_agent.tools.call import current_call
from fsm_agent.tools.plain import well_formed
from fsm_agent.visible import checked_id

__all__ = ["AgentInput", "Ids", "NewRun", "Task", "aconfig_of", "config_of", "ids_of", "new_run", "read_input"]

AgentInput = str | Mapping[str, Any] | Sequence[Any] | PromptValue | BaseMessage
"""A task as text, a message, messages that end with the user's, a prompt value, or `{"task" | "input" | "messages": ...}`.

A message may be LangChain's own, `("user", "text")` or `{"role": "user", "content": "text"}`. Earlier ones may stand beside the task, in
`chat_history`.
"""

Ids = tuple[str | None, str | None]
"""Of a run and of its thread, where they are named."""

_KEYS = ("task", "input", "messages")
_EARLIER = "chat_history"
_ROLES = ("user", "human", "assistant", "ai", "system", "developer")


@dataclass(frozen=True, slots=True)
class Task:
    """One user turn: its text, its message, and the earlier turns that the caller brought along."""

    text: str
    message: HumanMessage
    earlier: tuple[BaseMessage, ...] = ()
    system: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """What a caller wants of a new run: the task, the ids, the language, and the earlier turns as blocks."""

    task: Task
    run_id: str
    thread_id: str | None
    language: Language
    brought: tuple[Block, ...]


def config_of(config: RunnableConfig | None, more: Mapping[str, Any]) -> RunnableConfig:
    """The config of a run, whole. Raises `RunError` for arguments beside it, which nobody would read."""
    if more:
        raise RunError(
            f"a run takes no {', '.join(more)}: limits are the agent's, and callbacks, a thread or the id of the run are named in the "
            'config, as in agent.invoke(task, {"callbacks": [...], "configurable": {"thread_id": "ana"}})'
        )
    return ensure_config(config)


def aconfig_of(config: RunnableConfig | None, more: Mapping[str, Any]) -> RunnableConfig:
    """`config_of` for a run on the event loop. Raises `RunError` also where none of asyncio runs, as under Trio."""
    try:
        asyncio.get_running_loop()
    except RuntimeError as error:
        raise RunError(
            "no event loop of asyncio runs here, and LangChain knows no other; under Trio call invoke() in a thread, as in "
            "trio.to_thread.run_sync(agent.invoke, task)"
        ) from error
    return config_of(config, more)


def ids_of(value: AgentInput, config: RunnableConfig | None, whole: RunnableConfig) -> Ids:
    """The ids of the run and of the thread that are named for a new run, by the config that it was given and what `config_of` made of it.

    A run inside of a tool call is a run of its own: the ids of the runs around it are not its own, however they got into its config. In a
    graph of LangGraph the configurable `run_id` is that of the graph's run (its server names it), and the thread is that of the agents
    which the graph itself calls: one that a tool or a function of the graph calls has it when the config is handed on. Where the state of
    the graph has the messages, it is the conversation: others write there too, remove what is there, or go on from an earlier one.
    """
    run_id, thread_id = _named(whole)
    if whole.get("configurable", {}).get("checkpoint_ns"):
        run_id = str(whole["run_id"]) if whole.get("run_id") else None
        handed = config is not None and "configurable" in config
        thread_id = thread_id if handed and not _has_earlier(value) else None
    outer = current_call()
    if outer.run_id:
        # Made inside of a tool. Whether what names the runs around it has come along depends on who listens, and on who calls whom.
        around = _named(outer.config or {})
        run_id = None if run_id in (outer.run_id, around[0]) else run_id
        thread_id = None if thread_id == around[1] else thread_id
    return run_id, thread_id


def _has_earlier(value: AgentInput) -> bool:
    """True where what came before the task is given with it, if there is any."""
    if isinstance(value, Mapping):
        key = next((key for key in _KEYS if key in value), None)
        return bool(value.get(_EARLIER)) or (key is not None and _has_earlier(value[key]))
    if isinstance(value, PromptValue):
        return bool(read_input(value).earlier)
    return isinstance(value, Sequence) and not isinstance(value, str)


def new_run(value: AgentInput, ids: Ids, *, language: Language | None, dialect: Dialect) -> NewRun:
    """What `value` and the ids of `ids_of` ask for; without a `language` it is that of the task. Nothing is taken for it yet.

    Raises `RunError`.
    """
    task = read_input(value)
    spoken = language or detect_language(task.text)
    run_id, thread_id = ids
    return NewRun(
        task=task,
        run_id=checked_id("the run id", run_id or str(uuid.uuid4())),
        thread_id=None if thread_id is None else checked_id("the thread_id", thread_id),
        language=spoken,
        brought=rebuilt(task.earlier, dialect, texts_for(spoken)),
    )


def _named(config: Mapping[str, Any]) -> Ids:
    """The ids of the run and of the thread that a config names."""
    named = config.get("configurable") or {}
    run_id, thread_id = config.get("run_id") or named.get("run_id"), named.get("thread_id")
    return (str(run_id) if run_id else None), (None if thread_id is None else str(thread_id))


def read_input(value: AgentInput) -> Task:
    """The task in `value`, in one of the forms of `AgentInput`.

    Of a list of messages the last one must be the user's; earlier ones become earlier turns, a system message among them the system text.
    Raises `fsm_agent.errors.RunError` for anything else, before anything happens.
    """
    if isinstance(value, PromptValue):
        return _of_messages(value.to_messages())
    if isinstance(value, str):
        return _of_text(value)
    if isinstance(value, BaseMessage):
        return _of_messages([value])
    if isinstance(value, Mapping):
        for key in _KEYS:
            if key in value:
                task = read_input(value[key])
                return _after(value[_EARLIER], task) if value.get(_EARLIER) else task
        if "role" in value and "content" in value:
            return _of_messages(_converted([value]))
        raise RunError(
            f"the input has none of the keys {', '.join(_KEYS)}; it has {', '.join(map(str, value)) or 'none'}"
        )
    given: object = value
    if isinstance(given, Sequence) and given and not isinstance(given, bytes | bytearray):
        return _of_messages(_converted(given))
    what = "an empty list" if value == [] else type(value).__name__
    raise RunError(f"the input is {what}; give the task as text, or messages that end with the user's")


def _after(earlier: object, task: Task) -> Task:
    """`task` behind the messages that stand beside it."""
    if isinstance(earlier, str) or not isinstance(earlier, Sequence):
        raise RunError(f"{_EARLIER} is {type(earlier).__name__}; give the earlier messages as a list")
    before = _of_messages([*_converted(earlier), task.message])
    systems = [one for one in (before.system, task.system) if one]
    return replace(task, earlier=(*before.earlier, *task.earlier), system="\n\n".join(systems) or None)


def _converted(given: Sequence[Any]) -> list[BaseMessage]:
    # LangGraph takes this pair for one message, as it is meant; LangChain for two, of which the first says "user".
    pair = isinstance(given, tuple) and len(given) == 2 and given[0] in _ROLES  # noqa: PLR2004 - a pair
    messages: list[Any] = [given] if pair else list(given)
    try:
        return convert_to_messages(messages)
    # LangChain raises each of these for something that is no message; `NotImplementedError` for a type that it does not know.
    except (ValueError, TypeError, NotImplementedError, KeyError) as error:
        raise RunError(f"the input is a list that is no list of messages: {error}") from error


def _of_text(text: str) -> Task:
    if not text.strip():
        raise RunError("the task is empty; say what the agent should do")
    text = well_formed(text)
    return Task(text, HumanMessage(text))


def _of_messages(messages: Sequence[AnyMessage | BaseMessage]) -> Task:
    *before, last = [_whole(one) for one in messages]
    if not isinstance(last, HumanMessage):
        raise RunError(
            f"the last message is one of type {type(last).__name__}, and must be the user's: add a HumanMessage that says what to do now"
        )
    text = text_of(last.content)
    if not text.strip() and not any(isinstance(part, dict) and part.get("type") != "text" for part in last.content):
        raise RunError("the task is empty; say what the agent should do")
    system = "\n\n".join(text_of(one.content) for one in before if isinstance(one, SystemMessage))
    return Task(text, last, tuple(one for one in before if not isinstance(one, SystemMessage)), system or None)


def _whole(message: BaseMessage) -> BaseMessage:
    """Halves of a character would be joined, or lost, by the first server or file that they meet: they are joined here."""
    content: Any = message.content
    if isinstance(content, str):
        whole: Any = well_formed(content)
    else:
        whole = [
            well_formed(part)
            if isinstance(part, str)
            else {name: well_formed(item) if isinstance(item, str) else item for name, item in part.items()}
            for part in content
        ]
    return message if whole == content else message.model_copy(update={"content": whole})
