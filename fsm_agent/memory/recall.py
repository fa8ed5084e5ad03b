"""`Recall`: long-term memory in any LangChain `VectorStore`. What a run has found out is kept, and recalled by similarity to a later task.

This is the edge: a store may do I/O. What was recalled becomes part of the run's system text before the run begins, so that the run itself,
and a replay of it, see nothing but text.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from fsm_agent.dialects.base import Done
from fsm_agent.errors import DefinitionError
from fsm_agent.history import Block, text_of
from fsm_agent.language import Texts
from fsm_agent.memory.facts import key_sentences
from fsm_agent.memory.views import at_least_one

if TYPE_CHECKING:  # their import takes a second, which an agent without long-term memory never pays
    from langchain_core.documents import Document
    from langchain_core.vectorstores import VectorStore

__all__ = ["Recall", "found_out", "with_recalled"]

_FACTS_OF_A_RESULT: Final = 3
_TEXT_CHARS: Final = 600
_LEAST_LEXICAL: Final = 0.1


class Recall:
    """Long-term memory: the answers, summaries and key facts of finished runs, the `k` nearest to a task recalled when a run begins.

    `store` is any LangChain `VectorStore` with its embedding; None is one in this process's memory with a small local embedding, which is
    lexical: it finds what has words in common with the task, not what means the same. `least` is the similarity below which nothing is
    recalled, for a store whose `similarity_search_with_score` gives similarities; None recalls the nearest, however far.

    One `Recall` is one memory, and whatever it holds may be shown to any run of an agent that has it: give each user one of their own.
    Equal texts are kept once. A store that fails never fails a run: `last_error` is what it said since something was last
    recalled, "" for nothing.
    Raises `DefinitionError` for `k` < 1 or a store that is none.
    """

    def __init__(self, store: VectorStore | None = None, k: int = 3, *, least: float | None = None) -> None:
        at_least_one("Recall", "k", k, "leave `recall` out to recall nothing")
        if store is None:
            from fsm_agent.memory.lexical import local_store  # noqa: PLC0415 - its import takes a second

            store, least = local_store(), _LEAST_LEXICAL if least is None else least
        elif not all(hasattr(store, name) for name in ("add_documents", "similarity_search")):
            raise DefinitionError(
                f"Recall(store={type(store).__name__}): it needs a LangChain VectorStore, or None for one in memory"
            )
        self.store: Final[VectorStore] = store
        self.k: Final = k
        self.least: Final = least
        self.last_error = ""

    def recall(self, task: str) -> tuple[str, ...]:
        """The texts nearest to `task`, nearest first; () when there are none, or the store fails."""
        self.last_error = ""
        found: tuple[str, ...] = ()
        with self._sparing_the_run():
            if self.least is None:
                found = _texts(self.store.similarity_search(task, k=self.k))
            else:
                found = self._near(self.store.similarity_search_with_score(task, k=self.k))
        return found

    async def arecall(self, task: str) -> tuple[str, ...]:
        """`recall` on the event loop."""
        self.last_error = ""
        found: tuple[str, ...] = ()
        with self._sparing_the_run():
            if self.least is None:
                found = _texts(await self.store.asimilarity_search(task, k=self.k))
            else:
                found = self._near(await self.store.asimilarity_search_with_score(task, k=self.k))
        return found

    def remember(self, texts: Sequence[str], metadata: dict[str, Any]) -> None:
        """Keep `texts`, each with `metadata`."""
        if texts:
            with self._sparing_the_run():
                documents, ids = _documents(texts, metadata)
                self.store.add_documents(documents, ids=ids)

    async def aremember(self, texts: Sequence[str], metadata: dict[str, Any]) -> None:
        """`remember` on the event loop."""
        if texts:
            with self._sparing_the_run():
                documents, ids = _documents(texts, metadata)
                await self.store.aadd_documents(documents, ids=ids)

    @contextmanager
    def _sparing_the_run(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a store is somebody else's code, and its loss must not cost the run
            self.last_error = f"{type(error).__name__}: {error}"

    def _near(self, scored: Iterable[tuple[Document, float]]) -> tuple[str, ...]:
        assert self.least is not None, "asked only with a least similarity"
        return _texts(document for document, score in scored if score >= self.least)


def found_out(task: str, answer: str | None, history: Iterable[Block], done: Iterable[Done]) -> tuple[str, ...]:
    """What a finished run has found out that may matter later: the task with its answer, its newest summary, its key facts; each once."""
    texts = [] if answer is None else [f"{task.strip()}\n{answer.strip()}"]
    summaries = [text_of(one.messages[0].content) for one in history if one.kind == "summary"]
    # Beneath its heading, which is for the model that reads the history.
    texts += [summary.partition("\n")[2] for summary in summaries[-1:]]
    for one in done:
        texts += [f"{one.call.tool}: {fact}" for fact in key_sentences(one.result.text)[:_FACTS_OF_A_RESULT]]
    return tuple(dict.fromkeys(text for text in texts if text.strip()))


def with_recalled(system: str | None, recalled: Sequence[str], texts: Texts) -> str | None:
    """The system text of a run with what was recalled for it, as it is when that is nothing."""
    if not recalled:
        return system
    told = texts.recalled.format(facts="\n".join(f"- {' '.join(one.split())[:_TEXT_CHARS]}" for one in recalled))
    return f"{system}\n\n{told}" if system else told


def _texts(documents: Iterable[Document]) -> tuple[str, ...]:
    return tuple(one.page_content for one in documents)


def _documents(texts: Sequence[str], metadata: dict[str, Any]) -> tuple[list[Document], list[str]]:
    """Documents whose ids follow from their text, so that the same is kept once; UUIDs, because some stores take nothing else."""
    from langchain_core.documents import Document  # noqa: PLC0415 - heavy, and imported by the store already

    ids = [str(uuid.uuid5(uuid.NAMESPACE_OID, text)) for text in texts]
    return [Document(page_content=text, metadata=dict(metadata)) for text in texts], ids
