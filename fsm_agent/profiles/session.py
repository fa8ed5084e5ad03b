"""`session`: a registry of tools and a conversation in Redis, spoken to in one JSON object a reply."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from fsm_agent.dialects.json_action import JsonAction
from fsm_agent.errors import DefinitionError
from fsm_agent.memory import Conversations, MessageWindow, RedisConversations
from fsm_agent.profiles.base import Example, Profile, frozen_mapping
from fsm_agent.tools.builtin import query_order
from fsm_agent.tools.spec import Tool

__all__ = ["PROFILE", "REDIS_URL"]

REDIS_URL: Final = "FSM_AGENT_REDIS_URL"
_KEPT: Final = 12


def _tools(folder: Path | None) -> tuple[Tool, ...]:
    return (query_order,)


def _conversations() -> Conversations:
    """The server that FSM_AGENT_REDIS_URL names, else the one of this machine. It is first asked when a run has a thread."""
    url = os.environ.get(REDIS_URL) or "redis://localhost:6379/0"
    try:
        return RedisConversations(url, key_prefix="agent:memory:", keep_messages=_KEPT)
    except DefinitionError as error:
        raise DefinitionError(
            f"{error}. The profile session keeps its threads in Redis ({REDIS_URL}); for another place give "
            "conversations=SQLiteConversations(FILE)"
        ) from error


PROFILE: Final = Profile(
    name="session",
    about="a registry of tools, and the newest messages of each thread in Redis",
    tools=_tools,
    limits=frozen_mapping(max_steps=6, repeat_threshold=1, repeats="in_a_row", on_limit="stop"),
    dialect=JsonAction(think=True),
    memory=MessageWindow(messages=_KEPT),
    conversations=_conversations,
    example=Example(
        tasks={
            "en": "Who is the customer of order SO-2024-001, and what is its total?",
            "zh": "订单 SO-2024-001 的客户是谁，总额是多少？",
        },
        answer=("Lin Wei", "129.90"),
    ),
)
