"""Two scripted runs, drawn into the machine, and the certificates of the profiles.

`python -m tests.diagram_examples` writes what is made here below `diagrams/` anew.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from fsm_agent import Agent, Limits, RunResult, tool
from fsm_agent.diagrams import diagram, diff
from fsm_agent.observe import silent_logger
from fsm_agent.profiles import NAMES
from fsm_agent.testing import FakeClock, ScriptedModel, call

FOLDER: Final = Path(__file__).resolve().parents[1] / "diagrams"
CERTIFICATES: Final = "certificates.md"
LIMITS: Final = Limits(max_steps=6, jitter=0.0)


def files() -> dict[str, str]:
    """The contents of each file, by name."""
    good, bad = answered(), failed()
    return {
        "run.svg": diagram("svg", bad, limits=LIMITS, engine="graphviz-pure"),
        "diff.svg": diff(good, bad, "svg", limits=LIMITS, engine="graphviz-pure"),
    }


def certificates() -> str:
    """What is proved of each profile, without the seconds that it took."""
    parts = [
        "# Certificates",
        "",
        (
            "What `agent.verify()` proves of the agent that each profile makes: each behaviour of model, tools, people and clock was tried "
            "against the real table. Written by `python -m tests.diagram_examples`; do not edit."
        ),
        "",
    ]
    for name in NAMES:
        found = Agent.from_profile(name, ScriptedModel([]), logger=silent_logger()).verify()
        told = re.sub(r", [\d.]+ s$", "", str(found), count=1, flags=re.MULTILINE)
        parts += [f"## {name}", "", "```text", told, "```", ""]
    return "\n".join(parts)


def answered() -> RunResult:
    """A run that asks for two orders and answers."""
    return _run([call("order", number=1), call("order", number=2), "Both are paid."], 1)


def failed() -> RunResult:
    """A run that asks for one order, and then only for some that there are not, until the circuit opens."""
    return _run([call("order", number=1), call("order", number=7), call("order", number=8)], 2)


def _run(script: list[object], turn: int) -> RunResult:
    clock = FakeClock()

    @tool
    def order(number: int) -> str:
        """Look an order up; only 1 and 2 are there."""
        clock.sleep(0.25)
        if number > 2:
            raise RuntimeError(f"no order {number}")
        return f"order {number} is paid"

    agent = Agent(ScriptedModel(script, clock=clock), [order], limits=LIMITS, clock=clock, logger=silent_logger())
    return agent.invoke("Are my orders paid?", {"configurable": {"run_id": f"example-{turn}"}})


def main() -> None:
    """Write the pictures and the certificates."""
    for name, text in {**files(), CERTIFICATES: certificates()}.items():
        (FOLDER / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
