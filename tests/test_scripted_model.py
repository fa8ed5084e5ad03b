"""The scripted chat model: what it says, what it records, and how it fails a test."""

from __future__ import annotations

import asyncio
import copy
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from pydantic import BaseModel

from fsm_agent.errors import ScriptError
from fsm_agent.testing import Call, Delay, FakeClock, ModelRequest, ScriptedModel, call, forever, reply


@tool
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


def ask(model: ScriptedModel, way: str, text: str = "hi") -> AIMessage:
    """Ask in one of the ways a chat model can be asked; streams are put together again."""
    if way == "invoke":
        return model.invoke(text)
    if way == "ainvoke":
        return asyncio.run(model.ainvoke(text))
    if way == "batch":
        return model.batch([text])[0]
    if way == "abatch":
        return asyncio.run(model.abatch([text]))[0]

    async def collect() -> list[Any]:
        return [chunk async for chunk in model.astream(text)]

    chunks = list(model.stream(text)) if way == "stream" else asyncio.run(collect())
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert isinstance(whole, AIMessage)
    return whole


WAYS = ["invoke", "ainvoke", "batch", "abatch", "stream", "astream"]
each_way = pytest.mark.parametrize("way", WAYS)


@each_way
def test_text_reply_in_every_way(way: str) -> None:
    """A str is a text reply with a stop label and the default usage, however the model is asked."""
    message = ask(ScriptedModel(["one  two\nthree "]), way)
    assert message.content == "one  two\nthree "
    assert message.response_metadata["finish_reason"] == "stop"
    assert message.usage_metadata == {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    assert message.id == "scripted-1"


@pytest.mark.parametrize(
    "text", ['{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", '{"a": ' + "9" * 5_000 + "}"], ids=["deep", "long"]
)
@pytest.mark.parametrize("way", ["invoke", "stream"])
def test_arguments_that_python_does_not_read_are_dealt_as_they_are(text: str, way: str) -> None:
    """Nesting and numbers without end can be scripted: they are calls that cannot be read, not errors of the script."""
    with ScriptedModel([Call("add", text)]) as model:
        said = ask(model, way)
    assert [bad["args"] for bad in said.invalid_tool_calls] == [text]


@each_way
def test_calls_in_every_way(way: str) -> None:
    """Calls arrive parsed, in order, each with its own id, beside the text of the same reply."""
    model = ScriptedModel([reply("Let me look.", call("add", a=1, b=2), call("note", text="ünï 中"))])
    message = ask(model, way)
    assert message.content == "Let me look."
    assert [(c["name"], c["args"], c["id"]) for c in message.tool_calls] == [
        ("add", {"a": 1, "b": 2}, "call_1_0"),
        ("note", {"text": "ünï 中"}, "call_1_1"),
    ]
    assert message.invalid_tool_calls == []
    assert message.response_metadata["finish_reason"] == "tool_calls"


@each_way
def test_broken_arguments_are_invalid_calls(way: str) -> None:
    """Argument text that is no JSON object never shows as a good call when nothing was cut off."""
    message = ask(ScriptedModel([[Call("add", "```json\n{}\n```"), call("add", a=1, b=1)]]), way)
    assert [c["args"] for c in message.tool_calls] == [{"a": 1, "b": 1}]
    assert [(c["name"], c["args"]) for c in message.invalid_tool_calls] == [("add", "```json\n{}\n```")]
    assert [c["id"] for c in message.invalid_tool_calls] == ["call_1_0"]


@each_way
def test_errors_are_raised_in_every_way(way: str) -> None:
    """An exception in the script, instance or class, is raised to the caller, and the next request goes on."""
    boom = ConnectionError("gone")
    model = ScriptedModel([boom, TimeoutError, "back"])
    with pytest.raises(ConnectionError) as caught:
        ask(model, way)
    assert caught.value is boom
    with pytest.raises(TimeoutError):
        ask(model, way)
    assert ask(model, way).content == "back"


@each_way
def test_beyond_the_end_names_the_request(way: str) -> None:
    """Asked more than the script says, it raises ScriptError with the number and the text of the request."""
    model = ScriptedModel(["only"])
    ask(model, way)
    with pytest.raises(ScriptError, match=r"request 2 has no reply: the script has 1.*the second question"):
        ask(model, way, "the second question")
    assert model.count == 2
    assert model.requests[-1].text == "the second question"


def test_a_stream_comes_in_pieces() -> None:
    """Text streams word by word and arguments in pieces, the first with name and id; usage only on the last."""
    chunks = list(ScriptedModel([reply("Let me see.", call("add", a=123456, b=7))]).stream("hi"))
    assert [chunk.content for chunk in chunks[:3]] == ["Let", " me", " see."]
    pieces = [piece for chunk in chunks for piece in chunk.tool_call_chunks]
    assert (pieces[0]["name"], pieces[0]["id"], pieces[0]["args"]) == ("add", "call_1_0", "")
    assert all((piece["name"], piece["id"], piece["index"]) == (None, None, 0) for piece in pieces[1:])
    assert "".join(str(piece["args"]) for piece in pieces) == '{"a": 123456, "b": 7}'
    assert len(pieces) > 2
    assert [chunk.usage_metadata is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert {chunk.id for chunk in chunks} == {"scripted-1"}


def test_tokens_reach_callbacks() -> None:
    """A callback given in the config sees every token of a stream and the end of it."""
    seen: list[str] = []

    class Tokens(BaseCallbackHandler):
        def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
            seen.append(token)

        def on_llm_end(self, response: Any, **kwargs: Any) -> None:
            seen.append("END")

    list(ScriptedModel(["a b"]).stream("hi", config={"callbacks": [Tokens()]}))
    assert seen == ["a", " b", "", "END"]


@given(st.text(), st.dictionaries(st.text(), st.integers() | st.text()))
def test_streamed_equals_whole(text: str, args: dict[str, Any]) -> None:
    """For any text and arguments, the chunks add up to what invoke gives."""
    script = [reply(text, Call("act", args))]
    whole, streamed = ask(ScriptedModel(script), "invoke"), ask(ScriptedModel(script), "stream")
    assert (streamed.content, streamed.tool_calls) == (whole.content, whole.tool_calls) == (text, whole.tool_calls)
    assert whole.tool_calls[0]["args"] == args


@pytest.mark.parametrize("streaming", [False, True])
def test_usage_and_labels_as_given(streaming: bool) -> None:
    """Usage and finish reason arrive as the script says them: counted, absent, or wrong."""
    strange = {"input_tokens": "12", "output_tokens": True, "total_tokens": -1}
    model = ScriptedModel(
        [reply("a", usage=(7, 2), finish_reason="length"), reply("b", usage=None, finish_reason=None)]
    )
    way = "stream" if streaming else "invoke"
    first, second = ask(model, way), ask(model, way)
    assert first.usage_metadata == {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
    assert first.response_metadata["finish_reason"] == "length"
    assert second.usage_metadata is None
    assert "finish_reason" not in second.response_metadata
    assert ScriptedModel([reply("c", usage=strange)]).invoke("hi").usage_metadata == strange
    assert ScriptedModel(["d"], usage=None).invoke("hi").usage_metadata is None


def test_ids_as_given() -> None:
    """Call ids that the script gives are kept: repeated, empty, or none at all; so is a message id."""
    calls = [Call("f", {}, id="same"), Call("f", {}, id="same"), Call("f", {}, id=""), Call("f", {}, id=None)]
    message = ScriptedModel([reply("", *calls, id="m1")]).invoke("hi")
    assert [c["id"] for c in message.tool_calls] == ["same", "same", "", None]
    assert message.id == "m1"


def test_content_as_given() -> None:
    """Null content becomes empty text, as LangChain's clients make it; content blocks and refusals pass through."""
    model = ScriptedModel([reply(None), reply([{"type": "text", "text": "x"}]), reply("", refusal="I cannot.")])
    assert [model.invoke("hi").content, model.invoke("hi").content] == ["", [{"type": "text", "text": "x"}]]
    assert model.invoke("hi").additional_kwargs == {"refusal": "I cannot."}


def test_an_ai_message_is_taken_as_it_is() -> None:
    """A ready AIMessage keeps its fields, usage left out included, and only gets an id when it has none."""
    said = AIMessage("x", tool_calls=[{"name": "add", "args": {"a": 1}, "id": "c9", "type": "tool_call"}])
    message = ScriptedModel([said]).invoke("hi")
    assert (message.tool_calls, message.usage_metadata) == (said.tool_calls, None)
    assert (message.id, said.id) == ("scripted-1", None)


def test_replies_are_independent() -> None:
    """A message that was dealt can be changed without changing the next one from the same entry; ids are fresh."""
    model = ScriptedModel([forever(reply("x", Call("f", {"deep": {"list": [1]}})))])
    first = model.invoke("hi")
    first.tool_calls[0]["args"]["deep"]["list"].append(2)
    first.response_metadata.clear()
    first.content = "changed"
    second = model.invoke("hi")
    assert second.tool_calls[0]["args"] == {"deep": {"list": [1]}}
    assert (second.content, second.response_metadata["finish_reason"]) == ("x", "tool_calls")
    assert (first.id, second.id) == ("scripted-1", "scripted-2")
    assert (first.tool_calls[0]["id"], second.tool_calls[0]["id"]) == ("call_1_0", "call_2_0")


def test_requests_are_recorded() -> None:
    """Every request is kept with its number, messages, bound tools, other bindings and whether it streamed."""
    model = ScriptedModel([call("add", a=1, b=2), "done"])
    bound = model.bind_tools([add], tool_choice="any", parallel_tool_calls=False)
    bound.invoke([SystemMessage("be brief"), HumanMessage("one")], stop=["X"])
    list(model.stream("two"))
    first, second = model.requests
    assert (first.number, first.text, first.tool_names, first.stream) == (1, "be brief\none", ("add",), False)
    assert first.kwargs == {"tool_choice": "required", "parallel_tool_calls": False, "stop": ["X"]}
    assert first.tools[0]["function"]["parameters"]["required"] == ["a", "b"]
    assert (second.number, second.text, second.tools, second.stream) == (2, "two", (), True)
    assert model.count == 2


def test_a_named_tool_choice_is_formatted() -> None:
    """bind_tools turns the name of a bound tool into OpenAI's choice object."""
    model = ScriptedModel(["x"])
    model.bind_tools([add], tool_choice="add").invoke("hi")
    assert model.requests[0].kwargs["tool_choice"] == {"type": "function", "function": {"name": "add"}}


def test_structured_output_works() -> None:
    """with_structured_output reads a scripted call as the schema."""

    class Point(BaseModel):
        """A point."""

        x: int

    assert ScriptedModel([call("Point", x=3)]).with_structured_output(Point).invoke("hi") == Point(x=3)


def test_delay_is_on_the_clock() -> None:
    """A Delay sleeps on the injected clock, sync and async, before the reply or the error."""
    clock = FakeClock()
    model = ScriptedModel([Delay(7, "late"), Delay(2, TimeoutError), Delay(1, Delay(4, "x"))], clock=clock)
    assert model.invoke("hi").content == "late"
    with pytest.raises(TimeoutError):
        model.invoke("hi")
    assert asyncio.run(model.ainvoke("hi")).content == "x"
    assert clock.slept == [7.0, 2.0, 1.0, 4.0]


def test_functions_see_the_request() -> None:
    """A function in a script answers from the request, with any entry, and may stand for the whole script."""

    def echo(request: ModelRequest) -> Any:
        return [call("add", a=request.number, b=0)] if request.tools else f"you said {request.text}"

    model = ScriptedModel(echo)
    assert model.invoke("moo").content == "you said moo"
    assert model.bind_tools([add]).invoke("moo").tool_calls[0]["args"] == {"a": 2, "b": 0}
    model.assert_exhausted()


def test_coroutine_functions_can_hang() -> None:
    """A coroutine function lets a test stop a run in the middle of a model call; the sync ways refuse it."""

    async def main() -> str:
        reached, go_on = asyncio.Event(), asyncio.Event()

        async def stuck(request: ModelRequest) -> str:
            reached.set()
            await go_on.wait()
            return "free"

        model = ScriptedModel([stuck])
        task = asyncio.create_task(model.ainvoke("hi"))
        await reached.wait()
        assert not task.done()
        go_on.set()
        return str((await task).content)

    async def never(request: ModelRequest) -> str:
        return ""

    assert asyncio.run(main()) == "free"
    with pytest.raises(ScriptError, match="needs ainvoke or astream"):
        ScriptedModel([never]).invoke("hi")


def test_unused_replies_fail_the_test() -> None:
    """As a context manager it raises for what was never asked for, naming the first such entry as it was given."""
    called = "Reply(calls=(Call(name='add', args={'a': 1}),))"
    for entry, shown in (("second", "Reply(text='second')"), (call("add", a=1), called)):
        unused = re.escape(f"2 of 3 entries were never asked for, the first of them {shown}") + "$"
        with pytest.raises(ScriptError, match=unused), ScriptedModel(["first", entry, "third"]) as model:
            model.invoke("hi")
    with ScriptedModel(["first", forever("more")]) as model:
        model.invoke("hi")


def test_asking_too_much_fails_the_test() -> None:
    """A request beyond the end shows at the end too, when the code under test swallowed the ScriptError."""
    model = ScriptedModel(["x"])
    model.invoke("hi")
    with pytest.raises(ScriptError):
        model.invoke("more")
    with pytest.raises(ScriptError, match="request 2 has no reply"):
        model.assert_exhausted()


def test_an_error_is_not_hidden_by_the_script() -> None:
    """Leaving the context with another error lets that error through."""
    with pytest.raises(KeyError), ScriptedModel(["unused"]):
        raise KeyError("the real one")


@pytest.mark.parametrize("script", [[3], [[]], [["text", call("f")]], "text", [forever("x"), "y"], None])
def test_impossible_scripts_are_refused(script: Any) -> None:
    """What can never be dealt is refused at construction."""
    with pytest.raises(ScriptError):
        ScriptedModel(script)


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("hi", r"\['hi'\]"),
        (call("f"), r"\[Call\(\.\.\.\)\]"),
        (forever("x"), r"\[Forever"),
        (AIMessage("x"), r"\[AIMessage"),
        (3, r"\[int"),
    ],
)
def test_one_entry_in_the_place_of_a_script_is_told_to_be_written_in_a_list(script: Any, shown: str) -> None:
    """A call, a message or `forever(...)` alone is no script, and the error says how it is written."""
    with pytest.raises(ScriptError, match=f"for one entry write a list of it, as in {shown}"):
        ScriptedModel(script)


def test_twenty_runs_each_get_their_own() -> None:
    """Runs that go on together, told apart by a word of their task, each get their own script in order."""
    words = [f"secret-{n}" for n in range(20)]
    model = ScriptedModel(by_task={word: [f"{word} one", f"{word} two"] for word in words})

    async def run(word: str) -> list[Any]:
        first = await model.ainvoke(f"my word is {word}")
        return [first.content, (await model.ainvoke([HumanMessage(f"my word is {word}"), first])).content]

    async def main() -> list[list[Any]]:
        return await asyncio.gather(*(run(word) for word in words))

    assert asyncio.run(main()) == [[f"{word} one", f"{word} two"] for word in words]
    model.assert_exhausted()
    with pytest.raises(ScriptError, match="holds none of the texts"):
        model.invoke("no word")


def test_threads_never_share_a_reply() -> None:
    """Asked from many threads, every entry is dealt exactly once and every request has its own number."""
    model = ScriptedModel([str(n) for n in range(400)])
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: model.invoke("hi").content, range(400)))
    assert sorted(answers, key=lambda answer: int(str(answer))) == [str(n) for n in range(400)]
    assert [request.number for request in model.requests] == list(range(1, 401))


def test_copies_share_the_script() -> None:
    """A copied model (for another timeout, say) goes on in the same script and the same record."""
    model = ScriptedModel(["one", "two", "three"])
    answers = [model.invoke("a"), model.model_copy().invoke("b"), copy.deepcopy(model).invoke("c")]
    assert [answer.content for answer in answers] == ["one", "two", "three"]
    assert model.count == 3


def test_recording_can_be_left_out() -> None:
    """Without record nothing is kept, so a long benchmark does not grow; the count goes on."""
    model = ScriptedModel([forever("x")], record=False)
    model.invoke("hi")
    assert (model.requests, model.count) == ([], 1)


def test_tokens_are_counted_without_a_tokenizer() -> None:
    """get_num_tokens answers at once: one for every four characters or part of them."""
    assert [ScriptedModel([]).get_num_tokens(text) for text in ("", "a", "abcd", "abcde")] == [0, 1, 1, 2]


def test_a_reply_costs_microseconds() -> None:
    """Dealing a reply is far below the cost of a LangChain call, so benchmarks measure the engine."""
    model = ScriptedModel([forever(call("add", a=1, b=2))], record=False)
    messages: list[BaseMessage] = [HumanMessage("hi")]
    best = min(_timed(lambda: model._generate(messages), 500) for _ in range(5))
    assert best < 100e-6


def _timed(action: Any, times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        action()
    return (time.perf_counter() - start) / times
