"""`breaker`: for a server of one's own; two buffers of memory, a circuit breaker, and a budget of tokens for the whole run."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fsm_agent.memory import DualBuffer
from fsm_agent.profiles.base import Example, Profile, frozen_mapping
from fsm_agent.profiles.tools.documents import search_documents
from fsm_agent.temperature import Cooling
from fsm_agent.tools.builtin import calculator
from fsm_agent.tools.spec import Tool

__all__ = ["PROFILE"]


def _tools(folder: Path | None) -> tuple[Tool, ...]:
    return (search_documents(folder), calculator)


PROFILE: Final = Profile(
    name="breaker",
    about="an OpenAI-compatible server of one's own, two buffers of memory, a circuit breaker",
    tools=_tools,
    limits=frozen_mapping(max_steps=10, degrade_after=2, abort_after=3, no_progress_steps=3, token_budget=18_000),
    dialect="react",
    # 70 % of a context of 32 K tokens, as a round number.
    memory=DualBuffer(reasoning=6, results=3, max_tokens=22_000),
    # No fallback is run for it: the model is told to choose another tool.
    ladder=("strategy", "answer"),
    temperature=Cooling(start=0.3, after=3, temperature=0.1),
    max_tokens=512,
    folder="the documents that are searched",
    example=Example(
        tasks={
            "en": "Look up the default of the limit max_retries in the documents, then compute 2 ** 10 plus that number.",
            "zh": "在文档中查出限制 max_retries 的默认值，然后用计算器计算 2 ** 10 加上这个数。",
        },
        answer=("1025",),
    ),
)
