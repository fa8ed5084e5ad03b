"""Long-term memory: what a run has found out is recalled by similarity in the system text of a later one, and nothing fails for it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.messages import SystemMessage
from langchain_core.vectorstores import VectorStore

from fsm_agent import Agent, Approve, Limits, Recall, Status, SummaryWindow, tool
from fsm_agent.errors import DefinitionError
from fsm_agent.language import EN
from fsm_agent.memory.lexical import LexicalEmbeddings, local_store
from fsm_agent.memory.recall import found_out, with_recalled
from fsm_agent.observe import silent_logger
from fsm_agent.testing import ScriptedModel, call
from fsm_agent.trail import MemoryTrail
from fsm_agent.trail.audit import audit
from fsm_agent.words import telling_words
from tests.core.validity import wrong_prompt
from tests.faults.kit import WAYS, run


def price(item: str) -> str:
    """Look up a price."""
    return f"The {item} costs 42 EUR. It is nice."


def agent_of(script: Any, recall: Recall | None, **options: Any) -> tuple[Agent, ScriptedModel]:
    """An agent with one tool."""
    model = ScriptedModel(script)
    return Agent(model, [price], recall=recall, logger=silent_logger(), **options), model


class Broken(VectorStore):
    """A store that is down."""

    @classmethod
    def from_texts(cls, texts: list[str], embedding: Embeddings, metadatas: Any = None, **kwargs: Any) -> Broken:
        """Never called."""
        raise NotImplementedError

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Fail."""
        raise ConnectionError("the store is down")

    def add_documents(self, documents: list[Document], **kwargs: Any) -> list[str]:
        """Fail."""
        raise ConnectionError("the store is full")


@pytest.mark.parametrize("way", WAYS)
def test_what_a_run_found_out_is_known_to_a_later_one(way: str) -> None:
    """Answer and key facts are kept after the run, and stand in the one system message of a run about the same."""
    recall = Recall()
    first, model = agent_of([call("price", item="bicycle"), "A bicycle costs 42 EUR."], recall)
    assert run(first, "What does the bicycle cost?", way).status is Status.COMPLETED
    assert "bicycle" not in model.requests[0].messages[0].text
    second, model = agent_of(["Still 42."], recall)
    run(second, "Is the bicycle still as dear?", way)
    (request,) = model.requests
    assert wrong_prompt(request.messages) == []
    told = request.messages[0]
    assert isinstance(told, SystemMessage)
    assert told.text.startswith(EN.system)
    assert "What does the bicycle cost? A bicycle costs 42 EUR." in told.text
    assert "price: The bicycle costs 42 EUR." in told.text
    assert "It is nice" not in told.text
    assert recall.last_error == ""


@pytest.mark.parametrize("way", WAYS)
def test_a_store_that_is_down_fails_no_run(way: str) -> None:
    """The run goes on without; what the store said is kept for whoever looks."""
    recall = Recall(Broken())
    agent, _ = agent_of([call("price", item="bicycle"), "42 EUR."], recall)
    result = run(agent, "What does the bicycle cost?", way)
    assert (result.status, result.answer) == (Status.COMPLETED, "42 EUR.")
    assert recall.last_error == "ConnectionError: the store is full"


def test_what_a_store_said_is_forgotten_when_it_is_next_asked() -> None:
    """`last_error` is about the newest run: a recall that succeeds begins anew."""
    recall = Recall()
    recall.last_error = "ConnectionError: the store was down"
    recall.recall("bicycle")
    assert recall.last_error == ""


def test_only_what_is_near_is_recalled_and_k_at_most() -> None:
    """The embedded store recalls nothing without a word in common, and the nearest first."""
    recall = Recall(k=2)
    recall.remember([f"The bicycle {part} costs {part} EUR." for part in ("one", "two", "three")], {})
    recall.remember(["Paris is the capital of France."], {})
    assert recall.recall("What is the capital of France?") == ("Paris is the capital of France.",)
    assert recall.recall("zzz qqq") == ()
    near = recall.recall("How much is bicycle two?")
    assert (len(near), near[0]) == (2, "The bicycle two costs two EUR.")


def test_the_same_is_kept_once() -> None:
    """A fact that ten runs find out is one document; its id follows from its text."""
    recall = Recall()
    for _ in range(10):
        recall.remember(["The bicycle costs 42 EUR."], {"run_id": "r"})
    assert len(recall.store.store) == 1  # type: ignore[attr-defined] # LangChain's in-memory store shows what it holds
    assert len(recall.recall("bicycle")) == 1


def test_any_vector_store_of_langchains_will_do() -> None:
    """A store is asked by its public methods only: documents in, the nearest documents out, asynchronously too."""

    class Minimal(Broken):
        """The least that a vector store has."""

        def __init__(self) -> None:
            self.kept: dict[str, Document] = {}

        def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
            """The first ones."""
            return list(self.kept.values())[:k]

        def add_documents(self, documents: list[Document], **kwargs: Any) -> list[str]:
            """Keep them."""
            self.kept |= dict(zip(kwargs["ids"], documents, strict=True))
            return list(self.kept)

    store = Minimal()
    agent, _ = agent_of(["It is 42."], Recall(store, k=1))
    result = run(agent, "What is it?", "ainvoke")
    (document,) = store.kept.values()
    assert document.page_content == "What is it?\nIt is 42."
    assert document.metadata == {"run_id": result.run_id, "thread_id": "", "task": "What is it?"}
    assert Recall(store).recall("anything") == ("What is it?\nIt is 42.",)


NO_STORE: Any = object()


@pytest.mark.parametrize("wrong", [lambda: Recall(k=0), lambda: Recall(k=True), lambda: Recall(NO_STORE)])
def test_what_is_no_long_term_memory_is_refused(wrong: Any) -> None:
    """The error says what to give instead."""
    with pytest.raises(DefinitionError, match="Recall"):
        wrong()


def test_a_run_that_failed_leaves_its_facts_but_no_answer() -> None:
    """What tools returned is true all the same; what was not answered is not remembered as answered."""
    recall = Recall()
    agent, _ = agent_of([call("price", item="bicycle"), RuntimeError("down")], recall, limits=Limits(max_retries=0))
    assert run(agent, "What does the bicycle cost?").status is Status.FAILED
    assert recall.recall("bicycle") == ("price: The bicycle costs 42 EUR.",)


def test_a_run_that_waits_for_a_person_has_nothing_to_keep_yet() -> None:
    """It is kept when it has ended, by whatever way it is resumed."""

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"Paid {amount} EUR."

    recall = Recall()
    model = ScriptedModel([call("price", item="bicycle"), call("pay", amount=42), "Done."])
    agent = Agent(model, [price, pay], recall=recall, logger=silent_logger())
    waiting = agent.invoke("Pay the bicycle.")
    assert waiting.status is Status.SUSPENDED
    assert recall.recall("bicycle price pay paid") == ()
    agent.resume(waiting.run_id, decision=Approve())
    assert "pay: Paid 42 EUR." in recall.recall("pay paid EUR")
    assert "price: The bicycle costs 42 EUR." in recall.recall("bicycle price")


def test_the_newest_summary_is_kept_without_its_heading() -> None:
    """Summaries are what a long run was about."""
    recall = Recall()

    def acts(request: Any) -> Any:
        if request.messages[0].text == EN.summarise:
            return f"Notes about bicycles {request.number}."
        return call("price", item=f"bicycle {request.number}") if request.number < 8 else "Done."

    agent, _ = agent_of(acts, recall, memory=SummaryWindow(rounds=1, every=1))
    run(agent, "Compare.")
    found = [text for text in recall.recall("Notes about bicycles") if text.startswith("Notes")]
    assert len(found) == 1


def test_what_was_recalled_is_in_the_trail() -> None:
    """A replay sees the same system text, whatever the store holds by then."""
    recall, store = Recall(), MemoryTrail()
    recall.remember(["The bicycle costs 42 EUR."], {})
    agent, model = agent_of(["42."], recall, store=store)
    result = run(agent, "What does the bicycle cost?")
    assert "The bicycle costs 42 EUR." in model.requests[0].messages[0].text
    journal = agent._journal
    assert journal is not None
    assert audit(journal, result.run_id).findings == ()


def test_nothing_recalled_changes_nothing() -> None:
    """Without long-term memory, or without anything in it, the prompt is what it was."""
    (agent, with_it), (other, without) = agent_of(["42."], Recall()), agent_of(["42."], None)
    run(agent, "Hi")
    run(other, "Hi")
    assert with_it.requests[0].messages == without.requests[0].messages
    assert with_recalled("mine", (), EN) == "mine"
    assert with_recalled(None, (), EN) is None


def test_recalled_text_is_one_line_each_and_bounded() -> None:
    """A long or many-lined memory cannot push the system text away, nor look like another part of it."""
    told = with_recalled("Mine.", ("a\n\nb", "x" * 10_000), EN)
    assert told is not None
    assert told.startswith("Mine.\n\n")
    assert "- a b\n- xxx" in told
    assert len(told) < 1_000


def test_found_out_is_empty_for_a_run_that_found_nothing() -> None:
    """No empty texts are kept."""
    assert found_out("task", None, (), ()) == ()
    assert found_out(" task ", " 42 ", (), ()) == ("task\n42",)


# ---------------------------------------------------------------- the embedding


@given(st.text(max_size=60))
def test_an_embedding_has_length_one_or_no_words(text: str) -> None:
    """Of the size asked for, the same for the same text, and every text embeds."""
    vector = LexicalEmbeddings(64).embed_query(text)
    assert len(vector) == 64
    assert vector == LexicalEmbeddings(64).embed_documents([text])[0]
    length = math.sqrt(sum(part * part for part in vector))
    assert length == pytest.approx(1.0) or length == 0.0


@pytest.mark.parametrize(
    ("task", "near", "far"),
    [
        ("What does the red bicycle cost?", "A red bicycle costs 42 EUR.", "Paris is the capital of France."),
        ("自行车多少钱？", "红色自行车的价格是42元。", "巴黎是法国的首都。"),
        ("SO-2024-001 status", "Order SO-2024-001 was sent.", "Order SO-2023-999 was lost."),
        ("自転車の値段", "赤い自転車は42円です。", "パリはフランスの首都です。"),
    ],
)
def test_texts_with_words_in_common_are_near(task: str, near: str, far: str) -> None:
    """In scripts with and without spaces, whatever the case."""
    store = local_store()
    store.add_documents([Document(page_content=near), Document(page_content=far)])
    scored = store.similarity_search_with_score(task.upper(), k=2)
    assert [document.page_content for document, _ in scored] == [near, far]
    assert scored[0][1] > 0.1


def test_the_embedded_store_needs_no_numpy() -> None:
    """It is LangChain's in-memory store, with filters and ids, and its similarities are computed here."""
    store = local_store()
    store.add_documents([Document(page_content=f"bicycle {n}", metadata={"n": n}) for n in range(5)], ids=list("abcde"))
    found = store.similarity_search("bicycle", k=9, filter=lambda document: document.metadata["n"] > 2)
    assert {document.id for document in found} == {"d", "e"}


def test_words_of_two_scripts_are_told_apart() -> None:
    """A Latin word that stands in Chinese without a space is a word of its own."""
    assert list(telling_words("查出max_retries的默认值")) == ["查出", "max", "retries", "的默", "默认", "认值"]
