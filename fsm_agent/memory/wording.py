"""In which words a view tells what it has left out: a memory sees only the history, so it goes by the newest task. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from fsm_agent.history import Block, text_of
from fsm_agent.language import EN, Texts, detect_language, texts_for

__all__ = ["texts_of"]


def texts_of(history: Sequence[Block]) -> Texts:
    """The sentences in the language of the newest task of `history`, English where there is none."""
    for one in reversed(history):
        if one.kind == "task":
            return texts_for(detect_language(text_of(one.messages[0].content)))
    return EN
