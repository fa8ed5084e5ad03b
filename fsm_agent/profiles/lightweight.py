"""`lightweight`: few steps, short prompts, and facts that stay when their round has left the window."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fsm_agent.memory import KeyFacts, Window
from fsm_agent.profiles.base import Example, Profile, frozen_mapping
from fsm_agent.profiles.tools.documents import search_documents
from fsm_agent.profiles.tools.web_search import web_search
from fsm_agent.reflection import Reflect
from fsm_agent.tools.builtin import calculator
from fsm_agent.tools.results import SHORT_MARKER
from fsm_agent.tools.spec import Tool

__all__ = ["PROFILE"]


def _tools(folder: Path | None) -> tuple[Tool, ...]:
    return (web_search(fallback=search_documents(folder)), calculator)


def _without_network(folder: Path | None) -> tuple[Tool, ...]:
    return (search_documents(), calculator)


PROFILE: Final = Profile(
    name="lightweight",
    about="few steps and short prompts; key facts outlive the window",
    tools=_tools,
    limits=frozen_mapping(max_steps=6, degrade_after=2, no_progress_steps=3, max_result_chars=200),
    dialect="json_action",
    memory=KeyFacts(Window(rounds=5), per_round=3),
    # Another way is not tried: a simpler tool, or an answer from what is known, and that is the end.
    ladder=("fallback", "answer", "stop"),
    reflect=Reflect(every=3, most=1),
    cut_marker=SHORT_MARKER,
    folder="the documents searched when the web cannot be",
    example=Example(
        tasks={
            "en": "Look up the default of the limit max_tool_calls in the documents, and multiply it by 17.",
            "zh": "在文档中查出限制 max_tool_calls 的默认值，并用计算器把它乘以 17。",
        },
        answer=("850",),
        tools=_without_network,
    ),
)
