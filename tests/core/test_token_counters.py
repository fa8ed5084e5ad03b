"""Who counts tokens: the model itself, tiktoken without the network, or the estimate; and what a count changes."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_openai import ChatOpenAI

from fsm_agent import Agent, Limits
from fsm_agent.effects import RawCall, Replied, Usage
from fsm_agent.history import estimate_text, estimate_tokens
from fsm_agent.memory import tokens
from fsm_agent.memory.tokens import ESTIMATE, TokenCounter, counter_for
from fsm_agent.observe import silent_logger
from fsm_agent.testing import ScriptedModel, call, reply
from fsm_agent.trail import MemoryTrail
from fsm_agent.trail.audit import audit
from tests.core.builders import TOOLS


class CountsWords(ScriptedModel):
    """A user's own model, with a counter of its own: a token is a word."""

    def __init__(self, script: Any, **options: Any) -> None:
        super().__init__(script, **options)

    def get_num_tokens(self, text: str) -> int:
        """The words of `text`."""
        return len(text.split())


class CountsBadly(ScriptedModel):
    """A counter that does not work."""

    def __init__(self, script: Any, **options: Any) -> None:
        super().__init__(script, **options)

    def get_num_tokens(self, text: str) -> int:
        """Nothing."""
        raise OSError("no tokenizer here")


def openai(name: str = "gpt-4o-mini", **options: Any) -> ChatOpenAI:
    """A model of OpenAI's that is never asked."""
    return ChatOpenAI(model=name, api_key="none", **options)


# ---------------------------------------------------------------- who counts


def test_a_model_that_counts_itself_is_asked() -> None:
    """The model's own counter comes first, by method or by `custom_get_token_ids`, through `bind` too; the agent says who counts."""
    given_one = ScriptedModel(["ok"])
    given_one.custom_get_token_ids = lambda text: [0] * len(text.split())
    for model in (CountsWords(["ok"]), given_one, CountsWords(["ok"]).bind(stop=["x"])):
        assert counter_for(model).name == "model"
        assert counter_for(model).count("three little words") == 3
        assert Agent(model, logger=silent_logger()).token_counter == "model"


def test_a_model_without_a_counter_is_estimated() -> None:
    """LangChain's default counter would download a tokenizer, so it is not asked; nor is our scripted model's."""
    assert counter_for(ScriptedModel([])) is ESTIMATE
    assert Agent(ScriptedModel([]), logger=silent_logger()).token_counter == "estimate"
    assert ESTIMATE.count("汉" * 40) == 40


def test_a_counter_that_fails_is_replaced_by_the_estimate() -> None:
    """A count is never worth a run: the text is estimated, and so is a text of more than 100,000 characters."""
    assert counter_for(CountsBadly([])).count("x" * 40) == 10
    assert counter_for(CountsWords([])).count("x " * 60_000) == estimate_text("x " * 60_000)
    result = Agent(CountsBadly(["done"], usage=None), logger=silent_logger()).invoke("go")
    assert result.answer == "done"


# ---------------------------------------------------------------- tiktoken


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of tiktoken's."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    return tmp_path


def put(cache: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Put a small encoding, in which every byte is a token, into the cache under the name of a real one."""
    (cache / "key").write_bytes(b"the file")
    monkeypatch.setattr(tokens, "_ENCODINGS", {name: ("key", hashlib.sha256(b"the file").hexdigest())})
    small = tiktoken.Encoding(
        name, pat_str=r"\S+|\s+", mergeable_ranks={bytes([byte]): byte for byte in range(256)}, special_tokens={}
    )
    monkeypatch.setattr(tiktoken, "get_encoding", lambda asked: small if asked == name else None)


def test_an_openai_model_is_counted_by_tiktoken_from_its_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the encoding of the model in the cache, that counts, special tokens in the text included."""
    put(cache, monkeypatch, "o200k_base")
    counter = counter_for(openai())
    assert counter.name == "tiktoken:o200k_base"
    assert counter.count("ab 汉<|endoftext|>") == len("ab 汉<|endoftext|>".encode())
    assert Agent(openai(), logger=silent_logger()).token_counter == "tiktoken:o200k_base"


@pytest.mark.parametrize("content", [None, b"", b"half of the fi"])
def test_what_is_not_cached_whole_is_not_downloaded(
    content: bytes | None, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not there would be fetched, over the network and in the middle of a run: the estimate counts instead."""
    put(cache, monkeypatch, "o200k_base")
    (cache / "key").unlink() if content is None else (cache / "key").write_bytes(content)
    monkeypatch.setattr(tiktoken, "get_encoding", lambda _: pytest.fail("asked tiktoken"))
    assert counter_for(openai()) is ESTIMATE
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert counter_for(openai()) is ESTIMATE


def test_the_names_in_the_cache_are_those_of_tiktoken(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What we look for is what tiktoken would look for: its own loader finds a file under our key, and then reads nothing else."""
    openai_public: Any = importlib.import_module("tiktoken_ext.openai_public")
    asked: dict[str, str | None] = {}

    def noted(path: str, expected_hash: str | None = None) -> dict[bytes, int]:
        asked[hashlib.sha1(path.encode(), usedforsecurity=False).hexdigest()] = expected_hash
        return {}

    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", noted)
    for name in tokens._ENCODINGS:
        openai_public.ENCODING_CONSTRUCTORS[name]()
    assert asked == dict(tokens._ENCODINGS.values())


def test_a_server_that_only_speaks_the_protocol_is_not_counted_as_openais(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Qwen behind vLLM has another tokenizer, whatever the client calls it; a name that the user gives is believed."""
    put(cache, monkeypatch, "cl100k_base")
    assert counter_for(openai("gpt-3.5-turbo", base_url="http://localhost:8000/v1")) is ESTIMATE
    assert counter_for(openai("Qwen2.5-7B")) is ESTIMATE
    named = openai("Qwen2.5-7B", base_url="http://localhost:8000/v1", tiktoken_model_name="gpt-4")
    assert counter_for(named).name == "tiktoken:cl100k_base"


# ---------------------------------------------------------------- what a count changes

WORDS = TokenCounter("model", lambda text: len(text.split()))


def test_what_the_server_did_not_count_is_counted() -> None:
    """Prompt, tool schemas and reply by the counter, marked as not from the server; what the server counted stays."""
    sent: list[AnyMessage] = [
        HumanMessage("one two"),
        AIMessage("three", tool_calls=[{"name": "f", "args": {"a": "b c"}, "id": "i"}]),
    ]
    said = Replied(text="four five six", calls=(RawCall("", "g", {"x": 1}), RawCall("", "h", "7 8")))
    counted = WORDS.completed(said, sent, ["nine ten"])
    # Four for each message and eight for the call are what a server adds.
    prompt = 2 + 1 + 4 + 4 + 8 + 1 + 3 + 2
    assert (counted.prompt_tokens, counted.usage) == (prompt, Usage(prompt, 9, prompt + 9, prompt + 9))
    known = Replied(text="x", usage=Usage(5, 1, 6), prompt_tokens=5)
    assert WORDS.completed(known, sent, []) is known
    assert ESTIMATE.completed(said, sent, []) is said


@given(st.lists(st.text(max_size=50), max_size=4))
def test_messages_are_counted_as_they_are_estimated(texts: list[str]) -> None:
    """With the estimate as the counter, nothing changes."""
    messages = [HumanMessage(text) for text in texts]
    assert ESTIMATE.count_messages(messages) == estimate_tokens(messages)


@pytest.mark.parametrize(
    ("texts", "factor"),
    [(["abcd efgh"], 2 / 3), (["a b c d e f g h i j"], 2.0), (["x" * 400], 0.5), ([], 1.0), ([""], 1.0)],
)
def test_the_estimate_is_calibrated_within_bounds(texts: Sequence[str], factor: float) -> None:
    """Counted over estimated, between a half and four."""
    assert WORDS.factor(lambda: texts) == pytest.approx(factor)
    assert ESTIMATE.factor(lambda: pytest.fail("not needed")) == 1.0


def guard_values(result: Any, name: str) -> list[Any]:
    """What `token_budget_spent` compared as `name`, in each step."""
    return [
        guard.values[name]
        for record in result.transitions
        for guard in record.guards
        if guard.guard == "token_budget_spent"
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_a_run_is_counted_by_the_models_counter(stream: bool) -> None:
    """Without usage from the server the budget goes by the model's own count, from the first prompt on."""
    totals = []
    for kind in (CountsWords, ScriptedModel):
        script = [reply("", call("look", q="x")), "done"]
        agent = Agent(kind(script, usage=None), TOOLS, limits=Limits(), logger=silent_logger())
        result = (
            list(agent.stream("supercalifragilistic " * 40))[-1]
            if stream
            else agent.invoke("supercalifragilistic " * 40)
        )
        assert (result.answer, result.usage.estimated) == ("done", result.usage.total)
        totals.append((result.usage.total, guard_values(result, "next_prompt")[0]))
    (counted, counted_next), (estimated, estimated_next) = totals
    assert counted < estimated * 0.8
    assert counted_next < estimated_next * 0.8


def test_a_trail_of_a_calibrated_run_replays_without_the_counter() -> None:
    """The calibration is in the header and each count in its outcome, so an audit on another machine sees the same guards."""
    store = MemoryTrail()
    script = [reply("", call("look", q="x")), reply("", call("look", q="y")), "done"]
    agent = Agent(CountsWords(script, usage=None), TOOLS, store=store, logger=silent_logger())
    result = agent.invoke("a b c")
    assert result.answer == "done"
    assert agent.token_counter == "model"
    journal = agent._journal
    assert journal is not None
    assert audit(journal, result.run_id).findings == ()
