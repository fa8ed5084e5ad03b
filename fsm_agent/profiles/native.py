"""`native`: the provider's own tool calling, a history without orphans, and tools that say what they are not for.

Its ten messages lose older results; `Agent.from_profile("native", model, memory=KeyFacts(MessageWindow(10)))` keeps their facts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fsm_agent.memory import MessageWindow
from fsm_agent.profiles.base import Example, Profile, frozen_mapping
from fsm_agent.profiles.tools.documents import search_documents
from fsm_agent.tools.builtin import calculator, query_order
from fsm_agent.tools.spec import Tool

__all__ = ["PROFILE"]


def _tools(folder: Path | None) -> tuple[Tool, ...]:
    return (query_order, calculator, search_documents(folder))


PROFILE: Final = Profile(
    name="native",
    about="the provider's tool calling, whole rounds only, resumable",
    tools=_tools,
    limits=frozen_mapping(max_steps=5),
    dialect="native",
    memory=MessageWindow(messages=10),
    temperature=0.0,
    folder="the documents that are searched",
    example=Example(
        tasks={
            "en": "What do the orders SO-2024-001 and SO-2024-002 cost together?",
            "zh": "订单 SO-2024-001 和 SO-2024-002 的总额加起来是多少？",
        },
        answer=("174.90",),
    ),
)
