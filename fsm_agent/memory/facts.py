"""`KeyFacts`: sentences of tool results that hold a number or a link stay in the prompt after their round has left it. Pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from langchain_core.messages import HumanMessage, ToolMessage

from fsm_agent.errors import DefinitionError
from fsm_agent.history import Block, block, text_of
from fsm_agent.memory.views import Compacting, Memory, Window, at_least_one, is_memory
from fsm_agent.memory.wording import texts_of

__all__ = ["KeyFacts", "key_sentences", "sentences"]


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """What `inner` shows, and the key facts of the rounds that it does not show any more.

    A key fact is a sentence of a tool result that holds a number or a link; the first `per_round` of a round are kept, the newest `at_most`
    of all, each once and letter for letter, with the name of the tool where it is known. They stand after the task and the summary.
    Raises `DefinitionError` for a size below 1, and an `inner` that is no memory.
    """

    inner: Memory = field(default_factory=Window)
    per_round: int = 3
    at_most: int = 60

    def __post_init__(self) -> None:
        if not is_memory(self.inner):
            raise DefinitionError(f"KeyFacts({self.inner!r}): give a memory, as in KeyFacts(Window(rounds=3))")
        at_least_one("KeyFacts", "per_round", self.per_round, "give the inner memory alone to keep no facts")
        at_least_one("KeyFacts", "at_most", self.at_most, "give the inner memory alone to keep no facts")

    def view(self, history: Sequence[Block]) -> tuple[Block, ...]:
        """The inner view with one block of facts after its leading tasks and summary."""
        shown = self.inner.view(history)
        facts = self.facts(history, shown)
        if not facts:
            return shown
        told = texts_of(history).key_facts.format(facts="\n".join(f"- {one}" for one in facts))
        at = next((index for index, one in enumerate(shown) if one.kind not in ("task", "summary")), len(shown))
        # Of kind "summary", so that it is not taken for something that can be dropped like a round.
        return (*shown[:at], block("summary", HumanMessage(told), turn=history[-1].turn), *shown[at:])

    def facts(self, history: Sequence[Block], shown: Sequence[Block] = ()) -> tuple[str, ...]:
        """The key facts of the rounds of `history` that are not in `shown` whole, oldest first."""
        seen = {id(one) for one in shown}
        found: dict[str, None] = {}
        # From the newest, so that a long history is not read to its beginning; a fact told twice is as new as the newest time.
        for one in reversed(history):
            if one.kind == "round" and id(one) not in seen:
                for fact in reversed(_facts_of(one, self.per_round)):
                    found.setdefault(fact)
                if len(found) >= self.at_most:
                    break
        return tuple(found)[: self.at_most][::-1]

    def leaving(self, history: Sequence[Block], failed_at: int = 0) -> range | None:
        """What the inner memory wants summarised, if it is one that does."""
        return self.inner.leaving(history, failed_at) if isinstance(self.inner, Compacting) else None

    def for_context(self, tokens: int) -> Self:
        """The same with an inner memory for a model whose context holds `tokens`."""
        sized = getattr(self.inner, "for_context", None)
        return self if sized is None else replace(self, inner=sized(tokens))


def _facts_of(one: Block, per_round: int) -> list[str]:
    """The first facts of a round, in the order of its results."""
    found: list[str] = []
    for name, text in _results_of(one):
        for sentence in key_sentences(text):
            found.append(f"{name}: {sentence}" if name else sentence)
            if len(found) == per_round:
                return found
    return found


def _results_of(one: Block) -> Iterator[tuple[str, str]]:
    """What the calls of a round gave: its tool messages, or in a text dialect the user's message after the model's."""
    native = [message for message in one.messages if isinstance(message, ToolMessage)]
    for message in native:
        if message.status != "error":
            yield message.name or "", text_of(message.content)
    if not native and len(one.messages) > 1 and isinstance(one.messages[1], HumanMessage):
        yield "", text_of(one.messages[1].content)


# Chinese marks end a sentence wherever they stand; the Latin full stop only before a space or the end, so that it splits no decimal,
# version, address or file name. A closing quote or bracket belongs to the sentence before it.
_CLOSERS: Final = "\"'\u2019\u201d)\\]\u300d\u300f\uff09\u3011"
# Each run of marks is tried once, whole: a tool's text may be one long run.
_END: Final = re.compile(
    rf"[\u3002\uff01\uff1f\uff1b]+[{_CLOSERS}]*|(?<![.!?;\u2026])[.!?;\u2026]++[{_CLOSERS}]*+(?=\s|$)|\n+"
)
_SHORTENED_WORDS: Final = (
    "approx art ca cf ch co corp dept dr ed eq est etc ext fig figs gen hr inc jan feb mar apr jun jul aug sep sept oct nov dec jr ltd max "
    "min mr mrs ms no nos nr op pp prof pt rev sec sr st tel vol vs"
)
_ABBREVIATION: Final = re.compile(
    rf"(?:^|[\s(\"'])(?:[a-z]|(?:[a-z]\.)+[a-z]|{_SHORTENED_WORDS.replace(' ', '|')})$", re.IGNORECASE
)
_ABBREVIATION_CHARS: Final = 20
# A digit of any script, or a Chinese numeral with its unit ("three hundred").
_NUMBER: Final = re.compile(
    r"\d|[\u4e00\u4e8c\u4e24\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d][\u5341\u767e\u5343\u4e07\u4ebf]"
)
_LINK: Final = re.compile(r"https?://|www\.|(?<![\w.+-])[\w.+-]++@[\w-]++\.\w", re.IGNORECASE)
_LIST_NUMBER: Final = re.compile(r"\s*\d{1,3}")
_SENTENCE_CHARS: Final = 300


@functools.lru_cache(maxsize=2_048)
def key_sentences(text: str) -> tuple[str, ...]:
    """The sentences of `text` that hold a number or a link, in order. A very long one is kept up to a place where words part."""
    return tuple(short for one in sentences(text) if _is_key(one) and _is_key(short := _shortened(one)))


def _is_key(sentence: str) -> bool:
    return bool(_NUMBER.search(sentence) or _LINK.search(sentence))


def sentences(text: str) -> Iterator[str]:
    """The sentences of `text`, stripped: they end with Chinese or Latin punctuation, or with the line.

    Decimals, versions, addresses, file names and common abbreviations are not split.
    """
    begun = 0
    for end in _END.finditer(text):
        stop = end.start()
        # Only the last word is looked at: a text of nothing but abbreviations is one long sentence.
        if text[stop] == "." and (
            _ABBREVIATION.search(text[max(begun, stop - _ABBREVIATION_CHARS) : stop])
            or _LIST_NUMBER.fullmatch(text, begun, stop)
        ):
            continue
        sentence = text[begun : end.end()].strip()
        if sentence:
            yield sentence
        begun = end.end()
    if text[begun:].strip():
        yield text[begun:].strip()


def _shortened(sentence: str) -> str:
    """At most 300 characters, ended where words part, so that no number or link is cut; "" when there is no such place."""
    if len(sentence) <= _SENTENCE_CHARS:
        return sentence
    head = sentence[:_SENTENCE_CHARS]
    at = max(head.rfind(mark) for mark in (" ", "\t", "\uff0c", "\u3001", "\uff1a", ", "))
    return f"{head[:at].rstrip()} ..." if at > 0 else ""
