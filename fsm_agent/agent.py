"""`Agent`: the composition root, and a LangChain `Runnable`. What drives a run is `fsm_agent.runs.drive`."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import ensure_config

from fsm_agent.clock import Clock, SystemClock
from fsm_agent.context import Context, Setup
from fsm_agent.dialects import Dialect, dialect_for
from fsm_agent.effects import Decision
from fsm_agent.history import block
from fsm_agent.inputs import AgentInput, call_ids, earlier_blocks, read_input
from fsm_agent.jobs import Job
from fsm_agent.ladder import Rung
from fsm_agent.language import Language, detect_language, texts_for
from fsm_agent.limits import Limits
from fsm_agent.machine import DEFAULT_MACHINE
from fsm_agent.memory import Conversations, InMemoryConversations, Memory, Window
from fsm_agent.models import prepare, resolve
from fsm_agent.observe import Logger, Observer, StructlogObserver
from fsm_agent.perform import Approver, Performer
from fsm_agent.perform_model import ModelPerformer
from fsm_agent.perform_tools import ToolPerformer
from fsm_agent.pilot import Driven, flown, relayed
from fsm_agent.records import RunResult
from fsm_agent.runner import Runner, StreamItem
from fsm_agent.runs import Run
from fsm_agent.tools import Registry, Tool
from fsm_agent.tracing import Trace

if TYPE_CHECKING:  # its import takes a second, which an agent without LangChain tools never pays
    from langchain_core.tools import BaseTool

__all__ = ["Agent", "StreamItem"]


class Agent(Runnable[AgentInput, RunResult]):
    """An agent whose loop is the table. Safe to share: runs of one agent never share state.

    `model` is any LangChain chat model, or a string: "openai:gpt-4o-mini", "local:1.5b". `tools` are typed functions, `Tool`s and
    LangChain tools, or a `Registry` that may change while runs go on. `limits` default to `Limits.from_env()`. `dialect` is "native",
    "json_action" or a `Dialect`; None chooses "json_action" for a local model whose server takes no tools, else "native". `memory`
    defaults to `Window(rounds=5)`. `approve` decides in place about calls that need approval; without it such a run is suspended.
    `store` keeps conversations by `config["configurable"]["thread_id"]`, by default in memory. `language` ("en", "zh") is what the model is
    addressed in, by default the script of the task. `logger` is a structlog logger, by default the host's;
    `observers` are told each transition.

    Raises `fsm_agent.errors.DefinitionError` for a wrong definition. What a model or a tool does never raises: it ends the run, typed.
    """

    def __init__(
        self,
        model: Any,
        tools: Registry | Iterable[Tool | BaseTool | Callable[..., Any]] = (),
        *,
        limits: Limits | None = None,
        system: str | None = None,
        dialect: str | Dialect | None = None,
        memory: Memory | None = None,
        store: Conversations | None = None,
        approve: Approver | None = None,
        language: Language | None = None,
        ladder: Iterable[str] | None = None,
        base_url: str | None = None,
        name: str = "agent",
        clock: Clock | None = None,
        logger: Logger | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.name = name
        self.limits = Limits.from_env() if limits is None else limits
        self.tools = tools if isinstance(tools, Registry) else Registry(tools)
        self.model = chosen = resolve(model, base_url=base_url)
        self._setup = Setup(
            limits=self.limits,
            tools=self.tools,
            dialect=dialect_for(dialect, model),
            memory=Window() if memory is None else memory,
            system=system,
            ladder=frozenset(Rung if ladder is None else ladder),
        )
        asking = ModelPerformer(
            prepare(chosen, timeout=self.limits.model_timeout),
            self.tools,
            native_tools=self._setup.dialect.native_tools,
        )
        asking.check(self.tools.names())
        self._store: Conversations = InMemoryConversations() if store is None else store
        performer = Performer(asking, ToolPerformer(self.tools, self.limits), approve)
        self._runner = Runner(performer, self._store, self.tools)
        self._language = language
        self._clock: Clock = SystemClock() if clock is None else clock
        self._observers: tuple[Observer, ...] = (StructlogObserver(logger), *observers)

    def invoke(self, input: AgentInput, config: RunnableConfig | None = None, **kwargs: Any) -> RunResult:
        """Run the task to its end, or until a person is needed, and return what came of it."""
        return flown(self._start(input, config, streaming=False))

    async def ainvoke(self, input: AgentInput, config: RunnableConfig | None = None, **kwargs: Any) -> RunResult:
        """`invoke` on the event loop. Cancelling the await stops the run at once; the run ends as cancelled."""
        return await _alast(self._astart(input, config, streaming=False))

    def stream(self, input: AgentInput, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        """Run the task and yield each `Transitioned` as it happens, `Token`s while the model writes, and last the `RunResult`."""
        yield from relayed(self._start(input, config, streaming=True))

    async def astream(
        self, input: AgentInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """`stream` on the event loop."""
        async with aclosing(self._astart(input, config, streaming=True)) as items:
            async for item in items:
                yield item

    def resume(self, run_id: str, *, decision: Decision | Mapping[str, Decision]) -> RunResult:
        """Go on with a suspended run: `decision` is `Approve()`, `Edit(args)` or `Deny(reason)`, or one of them for each call id.

        Raises `RunError` for a decision that does not fit, and `UnknownRun` when no such run waits here (or somebody else has resumed it).
        """
        run, outcome = self._runner.claim(run_id, decision)
        return flown(self._runner.run(run, Trace(run.job.config, run.job.traced), outcome))

    async def aresume(self, run_id: str, *, decision: Decision | Mapping[str, Decision]) -> RunResult:
        """`resume` on the event loop."""
        run, outcome = self._runner.claim(run_id, decision)
        return await _alast(self._runner.arun(run, Trace(run.job.config, run.job.traced), outcome))

    def cancel(self, run_id: str, why: str = "cancelled by the caller") -> bool:
        """Stop a run, from any thread: one that waits for a model, a tool or a retry stops at once.

        False when no such run is under way.
        """
        return self._runner.cancel(run_id, why)

    def _start(self, given: AgentInput, config: RunnableConfig | None, *, streaming: bool) -> Driven:
        full = ensure_config(config)
        run = self._open(given, full, streaming=streaming)
        try:
            trace = Trace.begin(full, self.name or "agent", given)
        except BaseException:
            self._runner.release(run.job.run_id, run.ctx.thread_id)
            raise
        run.job.config, run.job.traced = trace.config, trace.traced
        yield from self._runner.run(run, trace, None)

    async def _astart(
        self, given: AgentInput, config: RunnableConfig | None, *, streaming: bool
    ) -> AsyncGenerator[StreamItem]:
        full = ensure_config(config)
        run = self._open(given, full, streaming=streaming)
        try:
            trace = await Trace.abegin(full, self.name or "agent", given)
        except BaseException:
            self._runner.release(run.job.run_id, run.ctx.thread_id)
            raise
        run.job.config, run.job.traced = trace.config, trace.traced
        async with aclosing(self._runner.arun(run, trace, None)) as items:
            async for item in items:
                yield item

    def _open(self, given: AgentInput, config: RunnableConfig, *, streaming: bool) -> Run:
        """A new run for `given`, with the thread's history when the config names a thread."""
        task = read_input(given)
        configurable = config.get("configurable") or {}
        run_id = str(config.get("run_id") or configurable.get("run_id") or uuid.uuid4())
        thread_id = None if configurable.get("thread_id") is None else str(configurable["thread_id"])
        language = self._language or detect_language(task.text)
        brought = earlier_blocks(task, self._setup.dialect, texts_for(language))
        self._runner.reserve(run_id)
        try:
            earlier = brought if thread_id is None else self._store.open(thread_id, run_id) or brought
        except BaseException:
            self._runner.release(run_id, None)
            raise
        turn = earlier[-1].turn + 1 if earlier else 0
        ctx = Context(
            setup=self._setup,
            run_id=run_id,
            task=task.text,
            language=language,
            thread_id=thread_id,
            turn=turn,
            system=task.system,
            history=(*earlier, block("task", task.message, turn=turn)),
            call_ids=call_ids(earlier),
        )
        job = Job(
            run_id=run_id,
            clock=self._clock,
            started=self._clock.monotonic(),
            language=language,
            streaming=streaming,
            observed=len(self._observers) > 1,
        )
        return Run(ctx=ctx, job=job, machine=DEFAULT_MACHINE, observers=self._observers)


async def _alast(items: AsyncIterator[StreamItem]) -> RunResult:
    result: RunResult | None = None
    async for item in items:
        result = item if isinstance(item, RunResult) else None
    assert result is not None, "the last item is the result"
    return result
