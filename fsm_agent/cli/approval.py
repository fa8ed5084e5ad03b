"""A person at the terminal decides about a call: tool and arguments are shown exactly as they would run."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final

from rich.text import Text

from fsm_agent.cli.console import err
from fsm_agent.cli.going import Policy
from fsm_agent.effects import Approve, Call, Decision, Deny, Edit
from fsm_agent.tools.problems import render
from fsm_agent.tools.registry import Registry
from fsm_agent.tools.spec import Invalid
from fsm_agent.visible import safe

try:
    import termios
except ImportError:
    termios = None  # type: ignore[assignment]  # Windows has none, and mypy knows the name as a module

__all__ = ["approver_for"]

_QUESTION: Final = "[y] run it  [n] refuse  [e] edit  [q] refuse and stop, or a reason to refuse: "


def approver_for(
    policy: Policy,
    tools: Registry,
    *,
    paused: Callable[[], AbstractContextManager[None]],
    interrupted: Callable[[], object],
) -> Callable[[Call], Decision] | None:
    """Who decides: all is approved, all is denied, or a person is asked. None where nobody can be: the run suspends.

    `paused` leaves the terminal to the question; `interrupted` is called on Ctrl-C at the prompt, which denies.
    """
    if policy == "yes":
        return lambda call: Approve()
    if policy == "no":
        return lambda call: Deny("calls that need approval are refused in this session")
    if policy == "defer" or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None

    def ask(call: Call) -> Decision:
        with paused(), _interruptible():
            try:
                return _decide(call, tools)
            except KeyboardInterrupt:
                interrupted()
                return Deny("the person cancelled the run")

    return ask


def _decide(call: Call, tools: Registry) -> Decision:
    _show(call)
    _forget_typed()
    while True:
        answer = _read(_QUESTION)
        match answer.lower() if answer is not None else "q":
            case "y" | "yes":
                return Approve()
            case "n" | "no":
                return Deny()
            case "q":
                return Deny("the person stopped the run", stop=True)
            case "e" | "edit":
                edited = _edited(call, tools)
                if edited is not None:
                    return Edit(edited)
            case "":
                continue
            case _:
                return Deny(answer or "")


def _show(call: Call) -> None:
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False, indent=2, default=str)
    console = err()
    console.print(Text.assemble(("approve? ", "bold yellow"), (call.tool, "bold")))
    console.print(Text(safe(arguments)))


def _forget_typed() -> None:
    """What was typed before the call was shown is no answer to it."""
    if termios is not None:
        with suppress(termios.error, OSError, ValueError):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _edited(call: Call, tools: Registry) -> dict[str, Any] | None:
    """New arguments as JSON, checked against the tool; None when the person gives up."""
    text = _read("arguments as one line of JSON, nothing to go back: ")
    if not text:
        return None
    tool = tools.resolve(call.tool)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        err().print(Text(f"not JSON: {error}", style="red"))
        return None
    if not isinstance(value, dict):
        err().print(Text("the arguments are a JSON object, {...}", style="red"))
        return None
    checked = tool.validate(value) if tool is not None else None
    if tool is not None and isinstance(checked, Invalid):
        err().print(Text(safe(render(checked.problems, tool, "en")), style="red"))
        return None
    return value


def _read(prompt: str) -> str | None:
    """A line from the person; None at the end of input."""
    err().print(Text(prompt, style="yellow"), end="")
    line = sys.stdin.readline()
    return line.strip() if line else None


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C break off the reading of a line, whatever it does while the run goes on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
