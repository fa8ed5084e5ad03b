"""`Agent`: the composition root, and a LangChain `Runnable`. What drives a run is `fsm_agent.runs.drive`."""

from __future__ import annotations

import threading
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import ensure_config

from fsm_agent.alphabet import TERMINAL
from fsm_agent.clock import Clock, SystemClock
from fsm_agent.context import Context, Setup
from fsm_agent.dialects import Dialect, dialect_for
from fsm_agent.effects import Answered, Broke, Cancelled, Decision, Effect, Expired, Outcome
from fsm_agent.errors import FsmAgentError, UnknownRun
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
from fsm_agent.records import RunResult, Token, Transitioned
from fsm_agent.review import decisions_for
from fsm_agent.runs import Run, drive
from fsm_agent.tools import Registry, Tool
from fsm_agent.tracing import Trace

if TYPE_CHECKING:  # its import takes a second, which an agent without LangChain tools never pays
    from langchain_core.tools import BaseTool

__all__ = ["Agent", "StreamItem"]

StreamItem = Transitioned | Token | RunResult
"""What `stream` yields: transitions as they happen, pieces of the reply, and last the result."""


class Agent(Runnable[AgentInput, RunResult]):
    """An agent whose loop is the table. Safe to share: runs of one agent never share state.

    `model` is any LangChain chat model, or a string: "openai:gpt-4o-mini", "local:1.5b". `tools` are typed functions, `Tool`s and
    LangChain tools, or a `Registry` that may change while runs go on. `limits` default to `Limits.from_env()`. `dialect` is "native",
    "json_action" or a `Dialect`; None chooses "json_action" for a local model whose server takes no tools, else "native". `memory`
    defaults to `Window(rounds=5)`. `approve` decides in place about calls that need approval; without it such a run is suspended.
    `store` keeps conversations by `config["configurable"]["thread_id"]`, by default in memory. `language` ("en", "zh") is what the model is
    addressed in, by default the script of the task. `logger` is a structlog logger, by default the host's; `observers` are told each transition.

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
        chosen = resolve(model, base_url=base_url)
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
        self._performer = Performer(asking, ToolPerformer(self.tools, self.limits), approve)
        self._store: Conversations = InMemoryConversations() if store is None else store
        self._language = language
        self._clock: Clock = SystemClock() if clock is None else clock
        self._observers: tuple[Observer, ...] = (StructlogObserver(logger), *observers)
        self._active: dict[str, Job] = {}
        self._suspended: dict[str, Run] = {}
        self._lock = threading.Lock()

    def invoke(self, input: AgentInput, config: RunnableConfig | None = None, **kwargs: Any) -> RunResult:
        """Run the task to its end, or until a person is needed, and return what came of it."""
        return _last(self._start(input, config, streaming=False))

    async def ainvoke(self, input: AgentInput, config: RunnableConfig | None = None, **kwargs: Any) -> RunResult:
        """`invoke` on the event loop. Cancelling the await stops the run at once; the run ends as cancelled."""
        return await _alast(self._astart(input, config, streaming=False))

    def stream(self, input: AgentInput, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        """Run the task and yield each `Transitioned` as it happens, `Token`s while the model writes, and last the `RunResult`."""
        yield from self._start(input, config, streaming=True)

    async def astream(
        self, input: AgentInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """`stream` on the event loop."""
        async for item in self._astart(input, config, streaming=True):
            yield item

    def resume(self, run_id: str, *, decision: Decision | Mapping[str, Decision]) -> RunResult:
        """Go on with a suspended run: `decision` is `Approve()`, `Edit(args)` or `Deny(reason)`, or one of them for each call id.

        Raises `RunError` for a decision that does not fit, and `UnknownRun` when no such run waits here (or somebody else has resumed it).
        """
        run, outcome = self._claim(run_id, decision)
        return _last(self._run(run, Trace(run.job.config, run.job.traced), outcome))

    async def aresume(self, run_id: str, *, decision: Decision | Mapping[str, Decision]) -> RunResult:
        """`resume` on the event loop."""
        run, outcome = self._claim(run_id, decision)
        return await _alast(self._arun(run, Trace(run.job.config, run.job.traced), outcome))

    def cancel(self, run_id: str, why: str = "cancelled by the caller") -> bool:
        """Stop a run, from any thread: one that waits for a model, tool or backoff stops at once. False when no such run is under way."""
        with self._lock:
            job, run = self._active.get(run_id), self._suspended.pop(run_id, None)
        if run is not None:
            run.stop(Cancelled(why, run.job.now()))
            self._close(run)
        if job is not None:
            job.cancel(why)
        return job is not None or run is not None

    def _start(self, given: AgentInput, config: RunnableConfig | None, *, streaming: bool) -> Iterator[StreamItem]:
        full = ensure_config(config)
        run = self._open(given, full, streaming=streaming)
        trace = Trace.begin(full, self.name or "agent", given)
        run.job.config, run.job.traced = trace.config, trace.traced
        yield from self._run(run, trace, None)

    async def _astart(
        self, given: AgentInput, config: RunnableConfig | None, *, streaming: bool
    ) -> AsyncIterator[StreamItem]:
        full = ensure_config(config)
        run = self._open(given, full, streaming=streaming)
        trace = await Trace.abegin(full, self.name or "agent", given)
        run.job.config, run.job.traced = trace.config, trace.traced
        async for item in self._arun(run, trace, None):
            yield item

    def _open(self, given: AgentInput, config: RunnableConfig, *, streaming: bool) -> Run:
        """A new run for `given`, with the thread's history when the config names a thread."""
        task = read_input(given)
        configurable = config.get("configurable") or {}
        run_id = str(config.get("run_id") or configurable.get("run_id") or uuid.uuid4())
        thread_id = configurable.get("thread_id")
        language = self._language or detect_language(task.text)
        brought = earlier_blocks(task, self._setup.dialect, texts_for(language))
        earlier = brought if thread_id is None else self._store.open(str(thread_id), run_id) or brought
        turn = earlier[-1].turn + 1 if earlier else 0
        ctx = Context(
            setup=self._setup,
            run_id=run_id,
            task=task.text,
            language=language,
            thread_id=None if thread_id is None else str(thread_id),
            turn=turn,
            system=task.system,
            history=(*earlier, block("task", task.message, turn=turn)),
            call_ids=call_ids(earlier),
        )
        job = Job(
            run_id=run_id, clock=self._clock, started=self._clock.monotonic(), language=language, streaming=streaming
        )
        return Run(ctx=ctx, job=job, machine=DEFAULT_MACHINE, observers=self._observers)

    def _run(self, run: Run, trace: Trace, outcome: Outcome | None) -> Generator[StreamItem, None, None]:
        """Drive `run` on this thread. `outcome` is what a suspended run waits for."""
        core = drive(run)
        self._enter(run)
        try:
            item: Transitioned | Effect | None = next(core, None)
            while item is not None:
                if isinstance(item, Transitioned):
                    yield item
                    item = next(core, None)
                    continue
                if outcome is None:
                    outcome = yield from self._perform(run, item)
                item, outcome = _send(core, outcome), None
            result = self._finish(run, trace)
        except BaseException as error:
            self._broken_off(run, error)
            trace.fail(error)
            raise
        finally:
            self._leave(run)
        yield result

    def _perform(self, run: Run, effect: Effect) -> Generator[Token, None, Outcome | None]:
        performing = self._performer.perform(effect, run.job)
        while True:
            try:
                text = next(performing)
            except StopIteration as done:
                outcome: Outcome | None = done.value
                return outcome
            except FsmAgentError:
                raise
            except Exception as error:
                return _broke(run, error)
            yield Token(run.job.run_id, text)

    async def _arun(self, run: Run, trace: Trace, outcome: Outcome | None) -> AsyncIterator[StreamItem]:
        """Drive `run` on the event loop."""
        core = drive(run)
        self._enter(run)
        try:
            item: Transitioned | Effect | None = next(core, None)
            while item is not None:
                if isinstance(item, Transitioned):
                    yield item
                    item = next(core, None)
                    continue
                if outcome is None:
                    try:
                        async for piece in self._performer.aperform(item, run.job):
                            if isinstance(piece, str):
                                yield Token(run.job.run_id, piece)
                            else:
                                outcome = piece
                    except FsmAgentError:
                        raise
                    except Exception as error:
                        outcome = _broke(run, error)
                item, outcome = _send(core, outcome), None
            result = self._finish(run, None)
            await trace.aend(result)
        except BaseException as error:
            self._broken_off(run, error)
            await trace.afail(error)
            raise
        finally:
            self._leave(run)
        yield result

    def _enter(self, run: Run) -> None:
        with self._lock:
            self._active[run.job.run_id] = run.job

    def _leave(self, run: Run) -> None:
        with self._lock:
            self._active.pop(run.job.run_id, None)
        if run.asking is None:
            self._close(run)

    def _finish(self, run: Run, trace: Trace | None) -> RunResult:
        """The result; a run that waits for a person is kept until it is resumed or cancelled."""
        if run.state not in TERMINAL:
            with self._lock:
                self._suspended[run.job.run_id] = run
        result = run.result()
        if trace is not None:
            trace.end(result)
        return result

    def _broken_off(self, run: Run, error: BaseException) -> None:
        """Leave a terminal, consistent run behind, whatever broke it off."""
        if isinstance(error, Exception):
            run.stop(_broke(run, error))
        else:
            why = "the stream was closed" if isinstance(error, GeneratorExit) else type(error).__name__
            run.stop(Cancelled(why, run.job.now()))

    def _close(self, run: Run) -> None:
        """Give the thread back. A turn that ended without an answer is kept only when its tools may have changed something."""
        ctx = run.ctx
        if ctx.thread_id is None or run.state not in TERMINAL:
            return
        keep = ctx.answer is not None or ctx.tool_calls > 0 or run.stopped_while_executing
        self._store.close(ctx.thread_id, ctx.run_id, run.closed_history() if keep else None)

    def _claim(self, run_id: str, decision: Decision | Mapping[str, Decision]) -> tuple[Run, Outcome]:
        """Take the suspended run: exactly one caller gets it."""
        with self._lock:
            run = self._suspended.get(run_id)
        if run is None or run.asking is None:
            raise UnknownRun(
                f"no run {run_id!r} waits for a person here: it was never suspended by this agent, or was already resumed or cancelled"
            )
        decisions = decisions_for(run.asking, decision, self.tools)
        with self._lock:
            if self._suspended.pop(run_id, None) is None:
                raise UnknownRun(f"run {run_id!r} was resumed or cancelled by somebody else in this moment")
        now = run.job.now()
        waited = now - run.transitions[-1].at
        if run.asking.expires_in is not None and waited > run.asking.expires_in:
            return run, Expired(waited, now)
        return run, Answered(decisions=decisions, waited=waited, at=now)


def _send(
    core: Generator[Transitioned | Effect, Outcome | None, None], outcome: Outcome | None
) -> Transitioned | Effect | None:
    try:
        return core.send(outcome)
    except StopIteration:
        return None


def _broke(run: Run, error: Exception) -> Broke:
    return Broke(error=type(error).__name__, message=str(error), at=run.job.now())


def _last(items: Iterator[StreamItem]) -> RunResult:
    result: RunResult | None = None
    for item in items:
        result = item if isinstance(item, RunResult) else None
    assert result is not None, "the last item is the result"
    return result


async def _alast(items: AsyncIterator[StreamItem]) -> RunResult:
    result: RunResult | None = None
    async for item in items:
        result = item if isinstance(item, RunResult) else None
    assert result is not None, "the last item is the result"
    return result
