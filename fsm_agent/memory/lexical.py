"""A vector store in this process's memory with a local embedding of words, for long-term memory without any service.

Lexical, not semantic: two texts are near when they share words (for Chinese and Japanese, pairs of characters).
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores.in_memory import InMemoryVectorStore

from fsm_agent.words import telling_words

__all__ = ["LexicalEmbeddings", "local_store"]


class LexicalEmbeddings(Embeddings):
    """Texts as vectors of hashed words, of length 1: each word adds to one of `size` places, the more often the more.

    The same on every machine and in every process; nothing is learned and nothing is fetched.
    """

    def __init__(self, size: int = 512) -> None:
        self.size: Final = size

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector for each text."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """The vector of one text; all zeros when it has no words."""
        vector = [0.0] * self.size
        for word, count in Counter(telling_words(text)).items():
            draw = int.from_bytes(hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest(), "big")
            sign = 1.0 if draw & 1 else -1.0
            vector[(draw >> 1) % self.size] += sign * (1.0 + math.log(count))
        length = math.sqrt(sum(part * part for part in vector))
        return [part / length for part in vector] if length else vector


class _PlainVectorStore(InMemoryVectorStore):
    """LangChain's store, which asks numpy for its similarities, without numpy: for vectors of length 1 they are one sum each."""

    def _similarity_search_with_score_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        filter: Callable[[Document], bool] | None = None,  # noqa: A002 - the name of the parent's argument
    ) -> list[tuple[Document, float, list[float]]]:
        scored = []
        for kept in list(self.store.values()):
            document = Document(id=kept["id"], page_content=kept["text"], metadata=kept["metadata"])
            if filter is None or filter(document):
                vector: list[float] = kept["vector"]
                scored.append((document, sum(map(operator.mul, embedding, vector)), vector))
        return sorted(scored, key=lambda one: one[1], reverse=True)[:k]


def local_store() -> Any:
    """An empty store."""
    return _PlainVectorStore(LexicalEmbeddings())
