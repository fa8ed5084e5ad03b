"""Made-up histories for the tests of memory, in any dialect, and what is said in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage

from fsm_agent.dialects import DIALECTS, Dialect, dialect_for
from fsm_agent.dialects.base import Prompt
from fsm_agent.history import Block, block, text_of
from fsm_agent.language import EN
from fsm_agent.memory import SummaryWindow
from fsm_agent.memory.summary import summary_block
from fsm_agent.testing.strategies import Round, history_of, round_of
from tests.core.builders import TOOLS

NATIVE = dialect_for("native")
APART = sorted(set(DIALECTS) - {"guided_json"})
"""The dialects that write a call and its result apart; `guided_json` says the call again with its result."""
sizes = st.integers(1, 7)
summaries = st.builds(
    SummaryWindow, rounds=sizes, every=st.integers(1, 3), chunk_tokens=st.sampled_from([1, 100, 6_000])
)


def sent(dialect: Dialect, blocks: Sequence[Block], system: str = "Be brief.") -> tuple[AnyMessage, ...]:
    """What the dialect sends for these blocks."""
    return dialect.compose(Prompt(system=system, blocks=tuple(blocks), tools=TOOLS, purpose="plan", texts=EN))


def said_in(messages: Sequence[BaseMessage]) -> str:
    """Every text and call of `messages`, in order."""
    parts = []
    for message in messages:
        parts.append(text_of(message.content))
        if isinstance(message, AIMessage):
            parts += [f"{call['id']} {call['args']}" for call in message.tool_calls]
    return "\n".join(parts)


def spoken(count: int, dialect: Any = NATIVE) -> list[Block]:
    """One task and so many rounds in which the model speaks and calls once."""
    return history_of(dialect, [([Round(1, True, False)] * count, False)])


def summarised(history: Sequence[Block], memory: Any) -> list[Block]:
    """The history after the summaries that `memory` asks for, each named by its number."""
    blocks = list(history)
    number = 0
    while (leaving := memory.leaving(blocks)) is not None:
        blocks.insert(leaving.stop, summary_block(f"summary {number}.", EN, blocks[-1].turn))
        number += 1
        assert number <= len(history), "each summary takes at least one round away"
    return blocks


def numbered(count: int, dialect: Any = NATIVE) -> list[Block]:
    """A task and rounds whose results hold four facts each and a sentence that is none."""
    history = [block("task", HumanMessage("task 0."))]
    for number in range(count):
        one = round_of(dialect, Round(1, False, False), 0, f"0-{number}")
        told = [
            message.model_copy(
                update={"content": text_of(message.content).replace(f"result id-0-{number}-0.", facts_text(number))}
            )
            for message in one.messages
        ]
        history.append(block("round", *told))
    return history


def facts_text(number: int) -> str:
    """A result with four key facts."""
    return f"Alpha{number} is 1. Nothing. Beta{number} is 2. Gamma{number} is 3. Delta{number} is 4."
