"""`lightweight`: each sentence of what it promises."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from fsm_agent import Event, Full, KeyFacts, RunResult, State, Status, StopReason, SummaryWindow, Window, tool
from fsm_agent.errors import ToolDefinitionError
from fsm_agent.profiles.tools.documents import read_documents, search_documents
from fsm_agent.profiles.tools.web_search import Page, searxng, web_search
from fsm_agent.reflection import Reflect
from fsm_agent.testing import ModelRequest, ScriptedModel, forever
from fsm_agent.tools import calculator
from fsm_agent.tools.spec import Invalid, Valid
from tests.profiles.kit import act, by_name, finish

NEVER = Reflect(every=100)


@tool
def numbered(n: int) -> str:
    """Give a number."""
    return f"number {n}"


# ---------------------------------------------------------------- the goal


def test_a_task_of_three_steps_costs_about_1500_tokens() -> None:
    """Search, compute, answer, with the profile's own tools: the prompts and replies together stay near the goal."""
    pages = [Page("Paris", "https://example.org/paris", "Paris had 2,102,650 inhabitants in 2023.")]
    model = ScriptedModel(
        [
            act("web_search", query="population of Paris"),
            act("calculator", expression="2102650 / 105.4", precision=0),
            finish("About 19,949 people live on each square kilometre."),
        ],
        usage=None,
    )
    agent, _ = by_name("lightweight", model, [web_search(lambda *_: pages), calculator])
    result = agent.invoke("How many people live on a square kilometre of Paris (105.4 square kilometres)?")
    assert (result.ok, result.steps) == (True, 3)
    assert result.usage.total <= 1_950


def test_calls_arrive_though_replies_are_untidy() -> None:
    """Of 100 replies, 8 in a Markdown fence and 18 that are not valid JSON, at least 85 calls are made; none with other values."""
    got: list[int] = []

    @tool
    def take(n: int) -> str:
        """Take a number."""
        got.append(n)
        return f"taken {n}"

    untidy = 0
    for n in range(100):
        good = act("take", n=n)
        if n < 8:
            said = f"```json\n{good}\n```"
        elif n < 26:
            said = [
                good[:-1] + ",}",
                good.replace('"', "'"),
                "Sure! " + good,
                good[:-1],
                good[: len(good) // 2],
                "I will take it.",
            ][n % 6]
        else:
            said = good
        agent, model = by_name("lightweight", [said, good, finish("ok"), finish("ok")], [take])
        result = agent.invoke("Take it.")
        untidy += len(result.calls) == 0
        first = model.requests[1].messages[-1].text
        got_first = f"taken {n}" in first
        untidy += not got_first
        assert result.ok
    assert untidy <= 15
    assert set(got) == set(range(100))


# ---------------------------------------------------------------- tools


@pytest.mark.parametrize(
    ("name", "arguments", "field"),
    [
        ("web_search", {"query": "x", "engine": "yahoo"}, "engine"),
        ("web_search", {"query": "x", "limit": 11}, "limit"),
        ("web_search", {"query": ""}, "query"),
        ("calculator", {"expression": "1", "precision": 11}, "precision"),
        ("calculator", {"expression": "1", "precision": -1}, "precision"),
    ],
)
def test_inputs_are_models_with_enums_and_bounds(name: str, arguments: dict[str, Any], field: str) -> None:
    """What is outside is refused by the name of its field; what is inside is accepted."""
    agent, _ = by_name("lightweight", [])
    one = agent.tools.get(name)
    assert one is not None
    refused = one.validate(arguments)
    assert isinstance(refused, Invalid)
    assert field in str(refused.problems)
    assert one.args_model.model_fields
    assert isinstance(
        one.validate(
            {"query": "x", "engine": "bing"} if name == "web_search" else {"expression": "1", "precision": 10}
        ),
        Valid,
    )


def test_the_tools_shown_are_a_web_search_and_a_calculator() -> None:
    """The simpler search stands behind the first, and the model is not shown it."""
    agent, model = by_name("lightweight", [finish("ok")])
    agent.invoke("hello")
    assert agent.tools.names() == ("web_search", "calculator")
    assert "search_documents" not in model.requests[0].text


# ---------------------------------------------------------------- bounds


def test_at_most_six_steps() -> None:
    """The seventh is not begun; what is known is asked for."""
    agent, _ = by_name(
        "lightweight",
        ScriptedModel(
            lambda request: (
                act("numbered", n=request.number) if "numbered(" in request.messages[0].text else finish("so far")
            )
        ),
        [numbered],
    )
    result = agent.invoke("go")
    assert (result.tool_calls, result.status, result.reason) == (6, Status.PARTIAL, StopReason.FORCED_ANSWER)
    assert "max_steps=6" in result.detail


def test_the_window_slides_over_five_rounds() -> None:
    """After eight rounds the newest five are shown."""
    agent, model = by_name(
        "lightweight",
        [*(act("plain", word="abcdefgh"[n]) for n in range(8)), finish("ok")],
        [plain],
        limits={"max_steps": 9},
        reflect=NEVER,
    )
    assert agent.invoke("go").ok
    history = "\n".join(
        message.text for message in model.requests[-1].messages[1:] if "Known so far" not in message.text
    )
    assert [word for word in "abcdefgh" if f'"word": "{word}"' in history][-5:] == list("defgh")
    assert '"word": "c"' not in history


@tool
def plain(word: str) -> str:
    """Say a word."""
    return f"word {word} it is"


def test_two_failures_in_a_row_take_a_simpler_tool() -> None:
    """The web cannot be searched: after the second failure the documents are, with the same words, and the model reads what they say."""
    call = act("web_search", query="default of max_tool_calls")
    again = act("web_search", query="default of max_tool_calls", engine="bing")
    agent, model = by_name("lightweight", [call, again, finish("50")])
    result = agent.invoke("What is the default of max_tool_calls?")
    assert [one.target for one in result.transitions].count(State.DEGRADE) == 1
    assert "The default of max_tool_calls is 50." in model.requests[2].messages[-1].text
    assert "no web search is set up here (set FSM_AGENT_SEARCH_URL" in model.requests[1].messages[-1].text
    assert result.ok


def test_or_stop() -> None:
    """Without a simpler tool the second failure is the end: an answer from what is known, or none where none may be asked for."""

    @tool(retry=0)
    def shaky(n: int) -> str:
        """Fail."""
        raise RuntimeError("no luck")

    def script(request: ModelRequest) -> str:
        return act("shaky", n=request.number) if "shaky(" in request.messages[0].text else finish("I could not.")

    agent, model = by_name("lightweight", ScriptedModel(script), [shaky])
    result = agent.invoke("go")
    assert (result.status, result.answer, result.tool_calls, model.count) == (Status.PARTIAL, "I could not.", 2, 3)
    agent, model = by_name("lightweight", ScriptedModel(script), [shaky], limits={"on_limit": "stop"})
    result = agent.invoke("go")
    assert (result.status, result.reason, model.count) == (Status.FAILED, StopReason.CONSECUTIVE_FAILURES, 2)


def test_three_steps_without_anything_new_force_a_stop() -> None:
    """Three calls that bring what is known already end in an answer without tools."""

    @tool
    def same(n: int) -> str:
        """Always the same."""
        return "the same"

    agent, _ = by_name(
        "lightweight",
        ScriptedModel(
            lambda request: (
                act("same", n=request.number) if "same(" in request.messages[0].text else finish("that is all")
            )
        ),
        [same],
    )
    result = agent.invoke("go")
    assert (result.status, result.answer, result.tool_calls) == (Status.PARTIAL, "that is all", 4)
    assert "no_progress: idle_steps=3" in result.detail


# ---------------------------------------------------------------- replies


def test_a_reply_in_a_fence_is_read() -> None:
    """What stands in a Markdown code fence is the action."""
    agent, _ = by_name("lightweight", [f"```json\n{act('numbered', n=1)}\n```", f"```\n{finish('1')}\n```"], [numbered])
    result = agent.invoke("go")
    assert (result.answer, result.tool_calls) == ("1", 1)


def test_a_reply_that_is_no_json_is_answered_with_what_is_wrong() -> None:
    """The model reads what could not be read, and sends it again."""
    agent, model = by_name(
        "lightweight", ['{"action": "numbered", "action_input": {"n": }', act("numbered", n=1), finish("1")], [numbered]
    )
    result = agent.invoke("go")
    assert (result.answer, result.tool_calls) == ("1", 1)
    assert (
        "could not be read" in model.requests[1].messages[-1].text or "cut off" in model.requests[1].messages[-1].text
    )


# ---------------------------------------------------------------- results


def test_results_are_cut_to_200_characters_and_three_dots() -> None:
    """The model sees the first 200 and `...`; a result of 200 is whole; the caller has all of it."""

    @tool
    def dump(n: int) -> str:
        """Give much."""
        return "r" * n

    agent, model = by_name("lightweight", [act("dump", n=5000), act("dump", n=200), finish("ok")], [dump])
    result = agent.invoke("go")
    assert f"{'r' * 200}..." in model.requests[1].text
    assert "r" * 201 not in model.requests[2].text
    assert [len(one.text) for one in result.results] == [203, 200]
    assert result.results[0].full == "r" * 5000


def facts_after(*results: str) -> str:
    """What the model reads of key facts once each of `results` has been given, and five rounds more."""

    @tool
    def give(n: int) -> str:
        """Give a text."""
        return results[n] if n < len(results) else f"nothing of note, {'abcdefgh'[n]}"

    count = len(results) + 5
    agent, model = by_name(
        "lightweight",
        [*(act("give", n=n) for n in range(count)), finish("ok")],
        [give],
        limits={"max_steps": 20},
        reflect=NEVER,
    )
    assert agent.invoke("go").ok
    told = [message.text for message in model.requests[-1].messages if "Key facts from earlier results" in message.text]
    return told[0].partition("Known so far")[0] if told else ""


def test_sentences_with_a_number_or_a_link_outlive_their_round() -> None:
    """They stay in the prompt when their round has left the window; other sentences do not."""
    told = facts_after("It is sunny. Oslo has 709,037 people. See https://example.org/oslo for more. People are kind.")
    assert "Oslo has 709,037 people." in told
    assert "https://example.org/oslo" in told
    assert "sunny" not in told
    assert "kind" not in told


def test_at_most_three_facts_are_kept_of_a_round() -> None:
    """The first three of five; of each round."""
    told = facts_after("A is 1. B is 2. C is 3. D is 4. E is 5.", "F is 6.")
    assert [letter for letter in "ABCDEF" if f"{letter} is" in told] == ["A", "B", "C", "F"]


def test_sentences_end_in_chinese_and_in_latin_punctuation() -> None:
    """Both kinds in one text; a decimal point ends nothing."""
    told = facts_after("天气很好。奥斯陆有709037人！价格是3.5元？很好；Rent is 12.50 a day. Fine!")
    assert "奥斯陆有709037人！" in told
    assert "价格是3.5元？" in told
    assert "Rent is 12.50 a day." in told
    assert "天气很好" not in told
    assert "Fine" not in told


# ---------------------------------------------------------------- memory strategies


def test_the_three_strategies_exist_and_cost_what_they_should() -> None:
    """On the same task the full history is dearer than the window, and both answer; the summary is another call that replaces rounds."""

    def cost(memory: Any) -> tuple[int, str]:
        def script(request: ModelRequest) -> Any:
            if "You keep the notes" in request.messages[0].text:
                return "Notes: words a to d were said."
            asked = sum("word" in message.text for message in request.messages if message.type == "ai")
            n = script.n = script.n + 1  # type: ignore[attr-defined] # a counter of its own
            return act("plain", word="abcdefghij"[n - 1]) if n <= 10 and asked >= 0 else finish("ok")

        script.n = 0  # type: ignore[attr-defined] # the same
        agent, model = by_name(
            "lightweight",
            ScriptedModel(script, usage=None),
            [plain],
            memory=memory,
            limits={"max_steps": 11, "no_progress_steps": 9},
            reflect=NEVER,
        )
        result = agent.invoke("Say words. " + "Please. " * 5)
        assert result.ok
        return model.requests[-1].text.count('"plain"'), model.requests[-1].text

    full, _ = cost(Full())
    window, _ = cost(Window(rounds=5))
    summed, text = cost(SummaryWindow(rounds=5))
    assert full == 10
    assert window == 5
    assert summed < full
    assert "Notes: words a to d were said." in text


# ---------------------------------------------------------------- reflection


def reflecting(said: str) -> tuple[RunResult, list[ModelRequest]]:
    """A run of four numbers that is asked to reflect after the third, and says this."""
    script = [*(act("numbered", n=n) for n in range(3)), said, act("numbered", n=3), finish("0 to 3")]
    agent, model = by_name("lightweight", script, [numbered])
    return agent.invoke("Which numbers are there?"), model.requests


def test_reflection_may_say_go_on_and_the_next_tool() -> None:
    """Asked once, after three steps; the tool is passed on as a hint, and the run goes on."""
    result, requests = reflecting('{"go_on": true, "next_tool": "numbered"}')
    assert (result.ok, result.answer, result.tool_calls) == (True, "0 to 3", 4)
    assert [one.event for one in result.transitions].count(Event.REFLECTED) == 1
    assert "numbered" in requests[4].messages[-1].text


def test_reflection_may_say_do_not_go_on() -> None:
    """Then an answer from what is known is asked for, and no tool is called any more."""
    script = [*(act("numbered", n=n) for n in range(3)), '{"go_on": false, "next_tool": null}', finish("0 to 2")]
    agent, model = by_name("lightweight", script, [numbered])
    result = agent.invoke("Which numbers are there?")
    assert (result.status, result.answer, result.tool_calls, model.count) == (Status.PARTIAL, "0 to 2", 3, 5)


@pytest.mark.parametrize(
    "said",
    [finish("I am done, really."), act("numbered", n=9), "Well, I think that we should go on.", '{"go_on": "perhaps"}'],
)
def test_reflection_may_say_nothing_else(said: str) -> None:
    """An answer, a call and talk are none of it: nothing of them counts, and the run goes on."""
    result, _ = reflecting(said)
    assert (result.ok, result.answer, result.tool_calls) == (True, "0 to 3", 4)
    assert Event.REFLECTED not in [one.event for one in result.transitions]


def test_the_memory_of_the_profile() -> None:
    """A window of five rounds with three facts of each."""
    assert by_name("lightweight", [])[0].setup.memory == KeyFacts(Window(rounds=5), per_round=3)


# ---------------------------------------------------------------- the web


class Searx(BaseHTTPRequestHandler):
    """What a SearxNG server says in the format json."""

    asked: list[dict[str, list[str]]]
    body: bytes
    status: int

    def do_GET(self) -> None:
        """Answer a search."""
        type(self).asked.append(parse_qs(urlsplit(self.path).query))
        self.send_response(type(self).status)
        self.send_header("Content-Length", str(len(type(self).body)))
        self.end_headers()
        self.wfile.write(type(self).body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def searching(body: Any, status: int = 200) -> Iterator[tuple[str, type[Searx]]]:
    """A search server on this machine."""
    kind = type(
        "Answering",
        (Searx,),
        {"asked": [], "body": body if isinstance(body, bytes) else json.dumps(body).encode(), "status": status},
    )
    httpd = HTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}", kind
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


RESULTS = {"results": [
    {"title": "Paris", "url": "https://example.org/paris", "content": "2,102,650\n inhabitants"},
    {"title": "Trap", "url": "javascript:alert(1)", "content": "x"},
    {"title": "Rome", "url": "https://example.org/rome", "content": None},
]}  # fmt: skip


def test_the_web_is_searched_through_a_server_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Query and engine go to the server that the environment names; its results come back as they are, web addresses only."""
    with searching(RESULTS) as (url, seen):
        monkeypatch.setenv("FSM_AGENT_SEARCH_URL", url)
        agent, model = by_name(
            "lightweight", [act("web_search", query="paris & rome", engine="bing", limit=2), finish("2,102,650")]
        )
        assert agent.invoke("How many people live in Paris?").ok
    assert seen.asked == [{"q": ["paris & rome"], "engines": ["bing"], "format": ["json"]}]
    told = model.requests[1].messages[-1].text
    assert "Paris (https://example.org/paris): 2,102,650 inhabitants" in told
    assert "javascript" not in told


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"<html>", 200, "no list of results"),
        ({"results": 5}, 200, "no list of results"),
        (b"", 403, "HTTP status 403"),
        (b"x" * 2_100_000, 200, "more than 2,000,000 bytes"),
    ],
    ids=["no JSON", "no list", "refused", "too large"],
)
def test_a_server_that_says_something_else_is_a_failure_in_words(body: Any, status: int, told: str) -> None:
    """Never an empty result, never an invented one."""
    with searching(body, status) as (url, _), pytest.raises(ConnectionError, match=told):
        searxng(url)("x", "google", 3)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.org", "searx", "http://"])
def test_what_is_no_server_is_refused_when_the_tool_is_made(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is no server."""
    monkeypatch.setenv("FSM_AGENT_SEARCH_URL", url)
    with pytest.raises(ToolDefinitionError, match="no address of a server"):
        by_name("lightweight", [])


@pytest.mark.parametrize("url", ["https://ann:hunter2@searx.example", "http://hunter2@localhost:8888"])
def test_a_password_in_the_address_of_a_server_is_refused_and_not_told(url: str) -> None:
    """It would never be sent, and each search would fail with it in the words that the model and the log get."""
    with pytest.raises(ToolDefinitionError, match="a name or a password") as caught:
        searxng(url)
    assert "hunter2" not in str(caught.value)


# ---------------------------------------------------------------- the documents


@pytest.mark.skipif(sys.platform != "linux", reason="names that other systems do not have")
def test_one_odd_name_hides_no_document(tmp_path: Path) -> None:
    """A file whose name no path may hold, or that is no UTF-8, and a directory of such a name, are left out; the others are read."""
    (tmp_path / "good.md").write_text("alpha")
    (tmp_path / "a\nb.md").write_text("x")
    (tmp_path / "a\\b.md").write_text("x")
    (tmp_path / "c\nd").mkdir()
    (tmp_path / "c\nd" / "inner.md").write_text("x")
    (tmp_path / os.fsdecode(b"\xff.md")).write_text("x")
    assert read_documents(tmp_path) == {"good.md": "alpha"}


def test_documents_of_a_directory_are_searched(tmp_path: Path) -> None:
    """Text files at any depth, in English and Chinese; links, hidden files and other kinds are left out."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "rent.md").write_text("# Rent\n\nThe rent is 12.50 a day.\n\nPets are fine.", encoding="utf-8")
    (tmp_path / "天气.txt").write_text("奥斯陆的天气很好。", encoding="utf-8")
    (tmp_path / "code.py").write_text("rent = 1", encoding="utf-8")
    (tmp_path / "link.md").symlink_to("/etc/passwd")
    agent, model = by_name(
        "breaker",
        [
            'Action: search_documents\nAction Input: {"query": "how much is the rent"}',
            'Action: search_documents\nAction Input: {"query": "奥斯陆 天气"}',
            "Final Answer: ok",
        ],
        [search_documents(tmp_path)],
    )
    first, second = agent.invoke("go").results
    assert first.text == "deep/rent.md: The rent is 12.50 a day."
    assert second.text == "天气.txt: 奥斯陆的天气很好。"
    assert model.count == 3


def test_nothing_found_is_said_and_nothing_to_search_is_refused(tmp_path: Path) -> None:
    """An empty directory is a wrong definition; words that no document has give a result that says so."""
    with pytest.raises(ToolDefinitionError, match="no text file"):
        search_documents(tmp_path)
    agent, _ = by_name(
        "breaker", ['Action: search_documents\nAction Input: {"query": "elephants"}', "Final Answer: ok"]
    )
    (one,) = agent.invoke("go").results
    assert one.text.startswith("Nothing found.")
    assert one.metadata == {"confidence_score": 0.0}


def test_too_much_to_search_is_refused(tmp_path: Path) -> None:
    """A whole disk is not read by mistake."""
    for n in range(1_001):
        (tmp_path / f"{n}.txt").write_text("x", encoding="utf-8")
    with pytest.raises(ToolDefinitionError, match="more than 1,000 text files"):
        search_documents(tmp_path)


def test_a_query_of_nothing_but_small_words_is_refused() -> None:
    """The model is told what a query needs."""
    agent, _ = by_name(
        "breaker",
        [forever('Action: search_documents\nAction Input: {"query": "is it the"}')],
        limits={"max_steps": 1, "on_limit": "stop"},
    )
    agent.invoke("go")
    stats = agent.tools.stats("search_documents")
    assert "no word that could be looked for" in stats.last_error
