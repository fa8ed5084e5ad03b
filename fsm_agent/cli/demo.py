"""`fsm-agent demo`: the main job. A task with real tools on a model of this machine, checked at the end."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

from rich.text import Text

from fsm_agent import demo
from fsm_agent.alphabet import Status
from fsm_agent.cli.choice import LOCAL_DEFAULT, Choice, choose, with_dialect
from fsm_agent.cli.console import err, note
from fsm_agent.cli.endings import EXIT_CODES
from fsm_agent.cli.example import say_checks
from fsm_agent.cli.run import Order, Watch, carry_out, report
from fsm_agent.dialects import dialect_for
from fsm_agent.errors import DefinitionError
from fsm_agent.language import Language
from fsm_agent.limits import Limits

__all__ = ["demo_choice", "show_demo"]


def show_demo(
    *,
    model: str | None,
    base_url: str | None,
    dialect: str | None,
    language: Language,
    directory: Path | None,
    limits: Limits,
    watch: Watch,
) -> int:
    """Run the demo, say what came out and whether it is right. Returns the exit code."""
    if directory is not None and not directory.is_dir():
        raise DefinitionError(f"--dir {directory}: there is no such directory")
    dialect_for(dialect)  # a wrong name is told before a server is asked
    choice = demo_choice(model, base_url)
    if dialect is None:
        choice = with_dialect(choice, os.environ)
    with nullcontext(str(directory)) if directory is not None else tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        order = Order(
            task=demo.TASKS[language],
            choice=choice,
            tools=demo.demo_tools(folder),
            limits=limits,
            dialect=dialect or choice.dialect,
            system=demo.SYSTEMS[language],
            language=language,
        )
        _introduce(order)
        result = carry_out(order, watch)
        code = report(result, model=choice.model, as_json=False, quiet=False)
        right = say_checks(demo.check(result, folder))
    _go_on(choice, right=right)
    return code if right or code else EXIT_CODES[Status.FAILED]


def demo_choice(model: str | None, base_url: str | None) -> Choice:
    """The demo needs no key, so it does not take one that happens to be set: local unless asked for another."""
    if model or base_url or os.environ.get("FSM_AGENT_MODEL"):
        return choose(model, base_url, os.environ)
    return Choice(LOCAL_DEFAULT, None, "the demo's own; --model takes another")


def _introduce(order: Order) -> None:
    console = err()
    console.print(Text.assemble(("task   ", "bold"), order.task))
    console.print(Text.assemble(("tools  ", "bold"), ", ".join(order.tools.names())))


def _go_on(choice: Choice, *, right: bool) -> None:
    """Where to go next, or what to make of a failure."""
    if not right:
        text = "The model did not solve the task; what it did stands above. The run itself ended as the table says."
        if choice.local:
            text += " Small models fail now and then: run it again, or take a larger one with --model or --base-url."
        note(text, "yellow")
    name = _command()
    commands = (
        ("a task of your own", f'{name} run "What is 17% of 2349.50?"'),
        ("with your files", f'{name} run "Which files are here?" --files .'),
        ("with your tools", f"{name} run TASK --tools my_module:my_function"),
        ("every transition", f"{name} table"),
        ("everything else", f"{name} run --help"),
    )
    err().print(Text("\nNext:", style="bold"))
    for what, command in commands:
        err().print(Text.assemble(f"  {what:<20}", (command, "cyan")))


def _command() -> str:
    """How this program can be started again from here."""
    program = Path(sys.argv[0])
    if program.name != "fsm-agent":
        return "python -m fsm_agent"
    try:
        return str(program.absolute().relative_to(Path.cwd()))
    except ValueError:
        return program.name
