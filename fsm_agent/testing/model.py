"""`ScriptedModel`: a chat model that says what its script says, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from fsm_agent.clock import Clock, SystemClock
from fsm_agent.testing.ready import stream_chunks
from fsm_agent.testing.stage import ModelRequest, Stage

__all__ = ["DEFAULT_USAGE", "ScriptedModel"]

DEFAULT_USAGE: Final = (10, 5)
"""Tokens of a reply that does not say: input, output."""


class ScriptedModel(BaseChatModel):
    """A chat model without a network: request n gets entry n of the script, whoever asks and however.

    An entry is an `AIMessage`, a str (a text reply), a `call(...)`, a list of calls (one reply), a `reply(...)`, an
    exception (instance or class; raised), `Delay(seconds, entry)`, `forever(entry)` as the last one, or a function
    `(ModelRequest) -> entry`, which may be a coroutine function where the model is used with `ainvoke` or `astream`.
    Instead of a sequence the script may be one such function, or `by_task={text: sequence}`: the requests that hold
    `text` get the entries of that sequence, so runs that go on at the same time each have their own.

    `usage` is the (input, output) tokens, or the LangChain usage mapping, of replies that do not say; None reports
    none. An `AIMessage` is taken as it is. Every reply gets a fresh message id, and fresh call ids where none is given.
    `clock` is what `Delay` sleeps on (default: the real one). `record=False` keeps no requests, for long benchmarks.

    Used as a context manager it raises `ScriptError` at the end when the script is not used up, or when more was asked
    than it says (which a run may have taken for a model failure).
    """

    model_name: str = "scripted"
    stage: Stage = Field(exclude=True, repr=False)
    """Not part of the interface: a field only because pydantic is slow to find private attributes."""

    def __init__(
        self,
        script: Sequence[Any] | Callable[[ModelRequest], Any] | None = None,
        *,
        by_task: Mapping[str, Sequence[Any]] | None = None,
        usage: Mapping[str, Any] | tuple[int, int] | None = DEFAULT_USAGE,
        clock: Clock | None = None,
        record: bool = True,
        model_name: str = "scripted",
        **kwargs: Any,
    ) -> None:
        stage = Stage(
            script, by_task=by_task, usage=usage, clock=clock or SystemClock(), record=record, model_name=model_name
        )
        super().__init__(**{"model_name": model_name, "stage": stage, **kwargs})

    @property
    def requests(self) -> list[ModelRequest]:
        """Every request so far, in order of its number."""
        return self.stage.requests

    @property
    def count(self) -> int:
        """How many requests there were."""
        return self.stage.script.taken

    def assert_exhausted(self) -> None:
        """Raise `ScriptError` when the script is not used up, or more was asked than it says."""
        self.stage.script.assert_exhausted()

    def __enter__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """A copy goes on in the same script and the same record: those are a place in a play, not a value."""
        return self.__copy__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.assert_exhausted()

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: dict[str, Any] | str | bool | None = None,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools as `ChatOpenAI` does: OpenAI's format, "any" and True become "required", a name a choice."""
        formatted = [convert_to_openai_tool(tool, strict=strict) for tool in tools]
        if tool_choice:
            if tool_choice is True or tool_choice == "any":
                tool_choice = "required"
            elif any(tool["function"]["name"] == tool_choice for tool in formatted):
                tool_choice = {"type": "function", "function": {"name": tool_choice}}
            kwargs["tool_choice"] = tool_choice
        return self.bind(tools=formatted, **kwargs)

    def get_token_ids(self, text: str) -> list[int]:
        """One token for every four characters or part of them; no tokenizer is loaded."""
        return list(range((len(text) + 3) // 4))

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name}

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        number, ready = self.stage.answer(messages, stop, kwargs, stream=False)
        return ChatResult(generations=[ChatGeneration(message=ready.deal(number))])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        number, ready = await self.stage.aanswer(messages, stop, kwargs, stream=False)
        return ChatResult(generations=[ChatGeneration(message=ready.deal(number))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        number, ready = self.stage.answer(messages, stop, kwargs, stream=True)
        yield from stream_chunks(ready, number)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        number, ready = await self.stage.aanswer(messages, stop, kwargs, stream=True)
        for chunk in stream_chunks(ready, number):
            yield chunk
