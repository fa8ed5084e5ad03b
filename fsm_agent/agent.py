"""`Agent`: the composition root, and a LangChain `Runnable`. What drives a run is `fsm_agent.runs.drive`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, get_args

from langchain_core.runnables import Runnable, RunnableConfig

from fsm_agent.alphabet import TERMINAL, State
from fsm_agent.clock import Clock, SystemClock
from fsm_agent.context import Context, Setup
from fsm_agent.definition import (
    check_types,
    checked_names,
    limits_of,
    memory_of,
    reflect_of,
    rungs_of,
    simpler_of,
    temperature_of,
)
from fsm_agent.diagrams.drawable import Drawable
from fsm_agent.dialects import Dialect, check_names, dialect_for
from fsm_agent.driver import Driven, adriven_to_end, driven_to_end, relayed
from fsm_agent.effects import Decision
from fsm_agent.errors import DefinitionError, RunError
from fsm_agent.history import Block, block, call_ids
from fsm_agent.inputs import AgentInput, Ids, NewRun, aconfig_of, config_of, ids_of, new_run, read_input
from fsm_agent.jobs import Job
from fsm_agent.language import Language, texts_for
from fsm_agent.limits import Limits
from fsm_agent.machine import DEFAULT_MACHINE, Machine
from fsm_agent.memory import Conversations, Memory, Recall
from fsm_agent.memory.recall import with_recalled
from fsm_agent.memory.tokens import counter_for, fitted
from fsm_agent.models import name_of, prepare, resolve, with_local_timeout
from fsm_agent.observe import Logger, Observer, StructlogObserver
from fsm_agent.perform import Approver, Performer
from fsm_agent.perform_model import ModelPerformer
from fsm_agent.perform_tools import ToolPerformer
from fsm_agent.policy import ToolPolicy
from fsm_agent.policy_state import checked_policy
from fsm_agent.profiles.named import Named
from fsm_agent.prompt import opening_texts
from fsm_agent.recollect import aremembering, remembering
from fsm_agent.records import RunResult
from fsm_agent.recovery import Resumption
from fsm_agent.reflection import Reflect
from fsm_agent.runner import Runner, StreamItem
from fsm_agent.runs import NO_PAUSES, Pauses, Run
from fsm_agent.slots import Slot
from fsm_agent.stores import Store, journal_of, stores_of
from fsm_agent.table import Table
from fsm_agent.temperature import Temperature
from fsm_agent.tools import Registry, Tool
from fsm_agent.tracing import Trace
from fsm_agent.trail import Chain
from fsm_agent.trail.changes import Change
from fsm_agent.trail.cipher import Cipher
from fsm_agent.trail.journal import Journal
from fsm_agent.verify.verifiable import Verifiable

if TYPE_CHECKING:  # its import takes a second, which an agent without LangChain tools never pays
    from langchain_core.tools import BaseTool

__all__ = ["Agent", "StreamItem"]


class Agent(Named, Drawable, Verifiable, Runnable[AgentInput, RunResult]):
    """An agent whose loop is the table. Safe to share: runs of one agent never share state.

    A trail of this agent is read by its `journal`, `setup` and `machine`: `audit(agent.journal, run_id, agent.setup)`.

    Args:
        model: A LangChain chat model, or its name: "openai:gpt-4o-mini", "local:1.5b".
        tools: Typed functions, `Tool`s and LangChain tools, or a `Registry` that may change while runs go on.
        limits: Every number that guards compare with. Default: `Limits.from_env()`.
        system: The system text; what a task brings follows it. Default: a general one, in the language of the run.
        dialect: "native", "json_action", "react", "guided_json" or a `Dialect`. Default: "guided_json" for a local model, else "native".
        memory: What the model sees of the history. Default: `Window(rounds=5)`.
        recall: Long-term memory. Default: none.
        store: Where runs are written down, so that they survive their process: a path (an SQLite file, with one for conversations beside
            it), "postgresql://..." or a `TrailStore`; or a store of conversations, as `conversations`. Default: nowhere.
        conversations: Where those of `config["configurable"]["thread_id"]` are kept. Default: in memory.
        chain: How trails are sealed. Default: as the environment says (`chain_from_env`).
        cipher: How trails are encrypted. Default: as the environment says (`cipher_from_env`).
        approve: Decides in place about calls that need approval. Default: nobody does, and such a run is suspended.
        language: "en" or "zh", in which the model is addressed. Default: by the script of the task.
        ladder: What may be tried, in this order, when calls keep failing or a limit is reached: "fallback" and "default" (of the tool),
            "strategy" (the model is told to choose another way), "simpler" (only the tools of `simpler` are left), "answer" (from what is
            known, without tools). "stop" at its end stops the run where no rung is left, before `abort_after`. Default: all but "stop".
        simpler: The tools, or their names, that the rung "simpler" leaves.
        withhold: Whether the rung "strategy" takes away the tool that keeps failing.
        temperature: That of model calls, or `Cooling(0.3)`, which falls while steps succeed. Default: the model's own.
        policy: Which tool may be called where in a run (`fsm_agent.policy`). Default: any anywhere.
        table: A table of your own, made by `fsm_agent.table.extend`. Default: the built-in one.
        reflect: When the model is asked whether to go on: `Reflect(every=3, most=2)`. Default: never.
        base_url: The OpenAI-compatible server of a model that is named. Default: its provider's, or one started for a local model.
        name: What tracers call a run.
        clock: The time of day, the stopwatch and the sleep of the runs. Default: the system's.
        logger: A structlog logger. Default: the host's.
        observers: Each is called with each transition.
        origin: JSON data for the header of each trail, to find again how the agent was made; the name of the model is added.
        cut_marker: What stands behind a result that was cut. Default: a line that tells its original size.

    Raises:
        DefinitionError: What is given is wrong.

    What a model or a tool does never raises: it ends the run, typed. A run raises `RunError` for what is no task, `RunBusy` while another
    has its thread, and what its store raises.
    """

    def __init__(
        self,
        model: str | Runnable[Any, Any],
        tools: Registry | Iterable[Tool | BaseTool | Callable[..., Any]] | None = (),
        *,
        limits: Limits | None = None,
        system: str | None = None,
        dialect: str | Dialect | None = None,
        memory: Memory | None = None,
        recall: Recall | None = None,
        store: Store | None = None,
        conversations: Conversations | None = None,
        chain: Chain | None = None,
        cipher: Cipher | None = None,
        approve: Approver | None = None,
        language: Language | None = None,
        ladder: Iterable[str] | None = None,
        simpler: Iterable[str | Tool] = (),
        withhold: bool = False,
        temperature: Temperature = None,
        policy: ToolPolicy | None = None,
        table: Table | None = None,
        reflect: Reflect | None = None,
        base_url: str | None = None,
        name: str = "agent",
        clock: Clock | None = None,
        logger: Logger | None = None,
        observers: Sequence[Observer] = (),
        origin: Mapping[str, Any] | None = None,
        cut_marker: str | None = None,
    ) -> None:
        check_types(tools=tools, system=system, recall=recall, ladder=ladder, simpler=simpler, withhold=withhold)
        check_types(table=table, conversations=conversations, chain=chain, cipher=cipher, approve=approve)
        check_types(base_url=base_url, name=name, clock=clock, logger=logger, observers=observers)
        check_types(origin=origin, cut_marker=cut_marker)
        self.name = name
        self.limits = with_local_timeout(model, limits_of(limits))
        self.tools = tools if isinstance(tools, Registry) else Registry(tools or ())
        self.model = chosen = resolve(model, base_url=base_url)
        fewer = simpler_of(simpler, self.tools)
        self.setup = Setup(
            limits=self.limits,
            tools=self.tools,
            dialect=dialect_for(dialect, model),
            memory=fitted(memory_of(memory), chosen),
            system=system,
            ladder=rungs_of(ladder, fewer, withhold=withhold),
            simpler=fewer,
            withhold=withhold,
            temperature=temperature_of(temperature),
            policy=checked_policy(policy, self.tools),
            reflect=reflect_of(reflect),
        )
        check_names(self.setup.dialect, self.tools.names())
        self.machine = DEFAULT_MACHINE if table is None else Machine(table)
        self._begun = self.setup
        self._counter = counter_for(chosen)
        self._recall = recall
        prepared = prepare(chosen, timeout=self.limits.model_timeout)
        native = self.setup.dialect.native_tools
        asking = ModelPerformer(prepared, self.tools, native_tools=native, counter=self._counter)
        asking.check(self.tools.names())
        performer = Performer(asking, ToolPerformer(self.tools, cut_marker), approve)
        if language is not None:
            checked_names("language", [language], get_args(Language))
        self._language = language
        self._clock: Clock = SystemClock() if clock is None else clock
        self._observers: tuple[Observer, ...] = (StructlogObserver(logger), *observers)
        self._pauses = NO_PAUSES
        self.trails, self.conversations = stores_of(store, conversations)
        origin = {"model": name_of(model, prepared), **(origin or {})}
        self._journal = journal_of(
            self.trails, clock=self._clock, chain=chain, cipher=cipher, origin=origin, machine=self.machine
        )
        self._runner = Runner(
            performer,
            self.conversations,
            self.setup,
            journal=self._journal,
            observers=self._observers,
            pauses=lambda: self._pauses,
        )

    def _setup_now(self) -> Setup:
        """The setup with the tools as they are now. Raises `DefinitionError` for one that came later, with a name of the dialect."""
        tools = self.tools.snapshot()
        if self._begun.tools is not tools:
            check_names(self.setup.dialect, tools.names())
            self._begun = replace(self.setup, tools=tools, memo={})
        return self._begun

    @property
    def policy(self) -> ToolPolicy | None:
        """Which tool may be called where in a run; None for any anywhere."""
        return self.setup.policy

    @property
    def token_counter(self) -> str:
        """Who counts tokens where the server does not: "model" (its own counter), "tiktoken:<encoding>", or "estimate" (by script)."""
        return self._counter.name

    def invoke(self, input: AgentInput, config: RunnableConfig | None = None, **kwargs: Any) -> RunResult:
        """Run the task (text, messages, a mapping with `task`, `input` or `messages`) to its end, or until a person is needed."""
        return driven_to_end(self._start(input, config, kwargs, streaming=False))

    async def ainvoke(self, input: AgentInput, config: RunnableConfig | None = None, **kwargs: Any) -> RunResult:
        """`invoke` on the event loop. Cancelling the await stops the run at once; the run ends as cancelled."""
        return await adriven_to_end(self._astart(input, config, kwargs, streaming=False))

    def stream(self, input: AgentInput, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        """Run the task and yield each `Transitioned` as it happens, `Token`s while the model writes, and last the `RunResult`."""
        yield from relayed(self._start(input, config, kwargs, streaming=True))

    async def astream(
        self, input: AgentInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """`stream` on the event loop."""
        async with aclosing(self._astart(input, config, kwargs, streaming=True)) as items:
            async for item in items:
                yield item

    def resume(
        self,
        run_id: str,
        *,
        decision: Decision | Mapping[str, Decision] | None = None,
        change: Change | None = None,
        by: str = "",
        config: RunnableConfig | None = None,
    ) -> RunResult:
        """Go on with a run that is suspended or paused, or that a crash broke off; with a store, in any process and after any restart.

        `decision` is for a run that waits for a person: `Approve()`, `Edit(args)`, `Deny(reason)` or `Answer(text)`, one for all calls or
        a mapping by call id; calls left out of the mapping go on waiting, and the result is `suspended` again. `change` gives a paused run
        other limits, arguments or memory. `by` names who decided, for the trail. `config` has callbacks and what tools read of it, as for
        `invoke`, for no trail keeps them; without it a run that is in no store goes on with those that it began with.

        After a crash, calls that have a result are not made again; a call whose outcome is unknown is made again when its tool is
        idempotent (with the same idempotency key), else a person is asked, or the model told (`Limits.in_doubt`).

        Raises `UnknownRun` for a run that nobody knows or that has ended, `RunHeld` while another process has it, `RunError` for a decision
        or change that does not fit, `TrailDamaged`, `TrailVersion` when the agent is another than the one that began the run.
        """
        slot = Slot(run_id)
        try:
            taken = self._runner.take(slot, Resumption(decision=decision, change=change, by=by))
            if isinstance(taken, RunResult):
                return taken
            run, outcome = taken
            items = self._runner.run(run, Trace.again(run.job, config, self.name or "agent"), outcome)
            return driven_to_end(remembering(self._recall, run, items))
        except BaseException:
            # Ctrl-C, or a callback, may come before the run goes on, so that nothing of it can let go.
            self._runner.put_back(slot)
            raise

    async def aresume(
        self,
        run_id: str,
        *,
        decision: Decision | Mapping[str, Decision] | None = None,
        change: Change | None = None,
        by: str = "",
        config: RunnableConfig | None = None,
    ) -> RunResult:
        """`resume` on the event loop."""
        slot = Slot(run_id)
        taken = await self._runner.atake(slot, Resumption(decision=decision, change=change, by=by))
        if isinstance(taken, RunResult):
            return taken
        run, outcome = taken
        try:
            trace = await Trace.aagain(run.job, config, self.name or "agent")
        except BaseException:
            self._runner.put_back(slot)
            raise
        items = self._runner.arun(run, trace, outcome)
        return await adriven_to_end(aremembering(self._recall, run, items))

    @property
    def journal(self) -> Journal:
        """The store of this agent with the keys to it, for `fsm_agent.trail.audit`, `replay` and `fork`. Raises `RunError` without one."""
        if self._journal is None:
            raise RunError('this agent keeps no trails; give it a store: Agent(..., store="runs.db")')
        return self._journal

    def pause_at(self, *states: State | str, after_step: int | Sequence[int] = ()) -> Self:
        """Have the runs of this agent stop for a person before each of `states`, and after each step of `after_step` (counted from 1).

        A paused run is `suspended`; `resume(run_id, change=Change(...))` goes on. Holds for runs that begin or are resumed from now on;
        without arguments, nothing pauses any more. Returns the agent.
        """
        steps: tuple[Any, ...] = (after_step,) if isinstance(after_step, int) else tuple(after_step)
        wanted = frozenset(State.named(state) for state in checked_names("state", states, self.machine.states))
        if wanted & TERMINAL or not all(isinstance(step, int) and step >= 1 for step in steps):
            raise DefinitionError("pause before a state that is not terminal, or after a step (counted from 1)")
        self._pauses = Pauses(wanted, frozenset(steps)) if wanted or steps else NO_PAUSES
        return self

    def cancel(self, run_id: str, why: str = "cancelled by the caller") -> bool:
        """Stop a run, from any thread: one that waits for a model, a tool or a retry stops at once.

        False when no such run is under way.
        """
        return self._runner.cancel(run_id, why)

    def _start(
        self, given: AgentInput, config: RunnableConfig | None, more: Mapping[str, Any], *, streaming: bool
    ) -> Driven:
        full = config_of(config, more)
        recalled = () if self._recall is None else self._recall.recall(read_input(given).text)
        setup, new = self._setup_now(), self._new_run(given, ids_of(given, config, full))
        slot = Slot(new.run_id)
        try:
            stored = self._runner.open(slot, new.thread_id)
            run = self._begin(setup, new, stored, recalled, streaming=streaming)
            trace = Trace.begin(full, self.name or "agent", given)
            run.job.config, run.job.traced = trace.config, trace.traced
            yield from remembering(self._recall, run, self._runner.run(run, trace, None))
        except BaseException:
            # Ctrl-C, or a callback, may come before the run goes on, so that nothing of it can let go.
            self._runner.release(slot, new.thread_id)
            raise

    async def _astart(
        self, given: AgentInput, config: RunnableConfig | None, more: Mapping[str, Any], *, streaming: bool
    ) -> AsyncGenerator[StreamItem]:
        full = aconfig_of(config, more)
        recalled = () if self._recall is None else await self._recall.arecall(read_input(given).text)
        setup, new = self._setup_now(), self._new_run(given, ids_of(given, config, full))
        slot = Slot(new.run_id)
        stored = await self._runner.aopen(slot, new.thread_id)
        try:
            run = self._begin(setup, new, stored, recalled, streaming=streaming)
            trace = await Trace.abegin(full, self.name or "agent", given)
        except BaseException:
            await self._runner.arelease(slot, new.thread_id)
            raise
        run.job.config, run.job.traced = trace.config, trace.traced
        async with aclosing(aremembering(self._recall, run, self._runner.arun(run, trace, None))) as items:
            async for item in items:
                yield item

    def _new_run(self, given: AgentInput, ids: Ids) -> NewRun:
        checked_policy(self.policy, self.tools)
        return new_run(given, ids, language=self._language, dialect=self.setup.dialect)

    def _begin(
        self, setup: Setup, new: NewRun, stored: Sequence[Block], recalled: Sequence[str], *, streaming: bool
    ) -> Run:
        earlier = stored or new.brought
        turn = earlier[-1].turn + 1 if earlier else 0
        ctx = Context(
            setup=setup,
            run_id=new.run_id,
            task=new.task.text,
            language=new.language,
            thread_id=new.thread_id,
            turn=turn,
            system=with_recalled(new.task.system, recalled, texts_for(new.language)),
            history=(*earlier, block("task", new.task.message, turn=turn)),
            call_ids=call_ids(earlier),
        )
        ctx = ctx.change(prompt_factor=self._counter.factor(lambda: opening_texts(ctx)))
        job = Job(
            run_id=new.run_id,
            clock=self._clock,
            started=self._clock.monotonic(),
            language=new.language,
            streaming=streaming,
            observed=len(self._observers) > 1,
        )
        return Run(
            ctx=ctx,
            job=job,
            machine=self.machine,
            tools=self.tools,
            tools_seen=ctx.setup.tools.version,
            observers=self._observers,
            pauses=self._pauses,
            trail=None if self._journal is None else self._journal.begin(ctx),
        )
