"""`fsm-agent run`: one task, watched to its end."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from langchain_core.runnables import RunnableConfig

from fsm_agent.agent import Agent
from fsm_agent.alphabet import Event, Status
from fsm_agent.cli.approval import approver_for
from fsm_agent.cli.choice import Choice
from fsm_agent.cli.console import err, note, put_json, put_raw, stdout_reserved
from fsm_agent.cli.endings import EXIT_CODES, BrokenOff
from fsm_agent.cli.going import Policy
from fsm_agent.cli.interrupt import cancelling_on_interrupt
from fsm_agent.cli.live import LiveView, View, view_for
from fsm_agent.cli.summary import document, footer, headline, newest_results
from fsm_agent.cli.threads import conversation_store
from fsm_agent.cli.trail_lines import call_text
from fsm_agent.cli.weights import start
from fsm_agent.errors import DefinitionError, FsmAgentError, ModelError, RunError
from fsm_agent.language import Language
from fsm_agent.limits import Limits
from fsm_agent.memory import Conversations, DualBuffer, Full, KeyFacts, Memory, MessageWindow, SummaryWindow, Window
from fsm_agent.observe import Logger, json_logger, silent_logger
from fsm_agent.policy import ToolPolicy
from fsm_agent.records import RunResult, Token, Transitioned
from fsm_agent.table import Table
from fsm_agent.tools.registry import Registry
from fsm_agent.trail import TrailStore

__all__ = ["Order", "Watch", "carry_out", "memory_of", "read_task", "report"]

_MAX_TASK_CHARS: Final = 1_000_000
_MEMORIES: Final[Mapping[str, tuple[Callable[[], Memory], Callable[[int], Memory] | None]]] = {
    "full": (Full, None),
    "window": (Window, lambda rounds: Window(rounds=rounds)),
    "messages": (MessageWindow, lambda messages: MessageWindow(messages=messages)),
    "dual": (DualBuffer, None),
    "summary": (SummaryWindow, lambda rounds: SummaryWindow(rounds=rounds)),
    "facts": (KeyFacts, lambda rounds: KeyFacts(inner=Window(rounds=rounds))),
}
"""By its name on the command line: the memory as it is by default, and with a number of rounds or messages where it has one."""
_LOST: Final = (
    "Nobody can be asked here, so the run ends. Run it at a terminal, decide with --approve yes|no, or keep it with "
    "--store FILE."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How much of a run is shown. `streaming` None: the reply is streamed where a person sees it arrive.

    `calls`: where nobody watches, a line says when the model is asked and when tools are run.
    """

    quiet: bool = False
    log: bool = False
    streaming: bool | None = None
    calls: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be run: a task, the model, and all that an agent is made of. None: as the profile says, else the default."""

    task: str
    choice: Choice
    tools: Registry
    limits: Limits
    dialect: str | None = None
    system: str | None = None
    language: Language | None = None
    memory: Memory | None = None
    profile: str | None = None
    thread: str | None = None
    conversations: str | None = None
    approve: Policy = "ask"
    policy: ToolPolicy | None = None
    table: Table | None = None
    store: TrailStore | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)


def read_task(given: str) -> str:
    """The task; `-` reads it from standard input. Raises `RunError` when there is none."""
    if given == "-":
        if sys.stdin.isatty():
            note("reading the task from the terminal; end it with Ctrl-D")
        given = sys.stdin.read(_MAX_TASK_CHARS + 1)
    given = given.encode(errors="replace").decode()  # what Python made of bytes that are no text
    if not given.strip():
        raise RunError("the task is empty; say what the agent should do")
    if len(given) > _MAX_TASK_CHARS:
        raise RunError(f"the task is longer than {_MAX_TASK_CHARS:,} characters")
    return given


def memory_of(text: str | None) -> Memory | None:
    """What `--memory` names: `full`, `window:N`, `messages:N`, `dual`, `summary:N` or `facts:N`; None for None.

    N is the newest rounds (or messages) that are shown whole, by default what the memory itself has. Raises `DefinitionError` for all else.
    """
    if text is None:
        return None
    kind, colon, count = text.partition(":")
    made = _MEMORIES.get(kind)
    if made is not None and not colon:
        return made[0]()
    if made is not None and made[1] and count.isascii() and count.isdigit():
        return made[1](int(count))
    raise DefinitionError(
        f"--memory {text!r}: write full, window:N (the newest N rounds), messages:N, dual, summary:N (older rounds summarised), "
        "or facts:N (key facts of older rounds kept)"
    )


def carry_out(
    order: Order, watch: Watch, *, run_id: str | None = None, act: Callable[[Agent], RunResult] | None = None
) -> RunResult:
    """Run the order and show it on standard error; standard output stays untouched.

    With `act` an earlier run, `run_id`, is gone on with instead. Raises `FsmAgentError` when the agent cannot be built or the run cannot
    begin, and `BrokenOff` for what happens after that.
    """
    choice = order.choice
    if not watch.quiet:
        at = f" at {choice.place}" if choice.place else ""
        asked = f"; its chat template has no tools: asked as {choice.dialect}" if choice.dialect else ""
        note(f"model {choice.model}{at} ({choice.why}{asked})")
    shown = watch.quiet or watch.log
    view = view_for(order.limits, quiet=shown, streaming=bool(watch.streaming), calls=watch.calls)
    own = uuid.uuid4()
    run_id = run_id or str(own)
    logger = json_logger(sys.stderr) if watch.log else silent_logger()

    def announce_cancel() -> None:
        view.stopping()
        note("cancelling; Ctrl-C again kills", "yellow")

    streaming = watch.streaming if watch.streaming is not None else isinstance(view, LiveView)
    with conversation_store(order.thread, order.conversations, order.profile) as threads:
        if choice.local:
            start(choice.model, quiet=watch.quiet)
        begun = _Begun(run_id)
        agent = _agent(order, view, begun, logger, threads)
        with (
            begun.breaking_off(),
            cancelling_on_interrupt(lambda: agent.cancel(run_id, "Ctrl-C"), announce_cancel),
            stdout_reserved(),
            view,
        ):
            if act is not None:
                return act(agent)
            view.began()
            config = RunnableConfig(run_id=own)
            if order.thread is not None:
                config["configurable"] = {"thread_id": order.thread}
            if not streaming:
                return agent.invoke(order.task, config)
            for item in agent.stream(order.task, config):
                if isinstance(item, Token):
                    view.said(item.text)
                elif isinstance(item, RunResult):
                    return item
    raise RunError("the run ended without a result")


@dataclass(slots=True)
class _Begun:
    """Whether anything of the run has happened, which no later error may be told as wrong usage."""

    run_id: str
    yet: bool = False

    def moved(self, record: Transitioned) -> None:
        """A transition has happened; that the run broke off at once is none."""
        self.yet = self.yet or record.event not in (Event.BROKE, Event.CANCELLED)

    @contextmanager
    def breaking_off(self) -> Iterator[None]:
        """Raise `BrokenOff` for an error that comes after that."""
        try:
            yield
        except FsmAgentError as error:
            if not self.yet:
                raise
            raise BrokenOff(self.run_id, error) from error


def _agent(order: Order, view: View, begun: _Begun, logger: Logger, threads: Conversations) -> Agent:
    """The agent. What the client library of a provider refuses is a wrong definition too."""
    built: list[Agent] = []
    approve = approver_for(
        order.approve, order.tools, paused=view.paused, interrupted=lambda: built[0].cancel(begun.run_id, "Ctrl-C")
    )
    make = Agent if order.profile is None else partial(Agent.from_profile, order.profile)
    try:
        agent = make(
            order.choice.model,
            order.tools,
            base_url=order.choice.base_url,
            limits=order.limits,
            dialect=order.dialect,
            system=order.system,
            language=order.language,
            memory=order.memory,
            policy=order.policy,
            approve=approve,
            table=order.table,
            logger=logger,
            observers=(view.moved, begun.moved),
            store=order.store,
            conversations=threads,
            origin=order.origin,
        )
    except FsmAgentError:
        raise
    except Exception as error:
        raise ModelError(f"model {order.choice.model!r} cannot be used: {type(error).__name__}: {error}") from error
    built.append(agent)
    return agent


def report(result: RunResult, *, model: str, as_json: bool, quiet: bool, go_on: str = "") -> int:
    """Write the answer, or the document, to standard output, the summary to standard error; return the exit code.

    `go_on` says how to go on with a suspended run; "" for a run that no store keeps.
    """
    code = EXIT_CODES[result.status]
    if not quiet:
        for line in newest_results(result):
            err().print(line)
    if not quiet or result.status is not Status.COMPLETED:
        err().print(headline(result))
        if result.status is Status.SUSPENDED:
            for one in result.requests:
                note(f"  {one.call_id}  {call_text(one.tool, one.arguments)}", "yellow")
            note(go_on or _LOST, "yellow")
    if as_json:
        put_json(document(result, model=model, exit_code=code))
    elif result.answer is not None:
        put_raw(result.answer)
    if not quiet:
        err().print(footer(result))
    return code
