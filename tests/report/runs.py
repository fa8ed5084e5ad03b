"""Runs to report about, of every kind, each in a store of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from fsm_agent import Agent, Approve, Deny, Limits, tool
from fsm_agent.observe import silent_logger
from fsm_agent.report import report
from fsm_agent.testing import FakeClock, ScriptedModel, call, reply
from fsm_agent.trail import Journal, MemoryTrail, Sha256Chain
from fsm_agent.trail.chain import GENESIS
from fsm_agent.trail.entries import Stored

__all__ = ["ENDINGS", "HOSTILE", "RUN", "asks", "journal_over", "long_run", "page", "ran", "resealed", "run_of"]

RUN: Final = "r"
HOSTILE: Final = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    '" onmouseover="window.hacked = 1',
    "'><svg/onload=window.hacked=1>",
    "</style><style>body { display: none }</style>",
    "<!-- --><![CDATA[ ]]></pre></details></main>",
    "javascript:window.hacked=1 &lt;b&gt; &#60;i&#62;",
    "<a href='https://example.org/?leak'>here</a><base href='https://example.org/'>",
    "<meta http-equiv='refresh' content='0;url=https://example.org/'>",
    "מחיר \u202eelbisivni\u202c العربية",
    "我的订单：<b>付款</b>了吗？",
    "lines\n\n\twith tabs \x00 \x1b[31m \ud800 \u2028 ﷐",
    "x" * 50_000,
)
"""What a model, a tool or a person may write."""


def ran(script: Iterable[object], *, task: str = "Are my orders paid?", **given: Any) -> tuple[Agent, MemoryTrail]:
    """A run of this script that was driven as far as it goes. `given` are arguments of `Agent` and limits."""
    clock = FakeClock()

    @tool
    def order(number: int, api_key: str = "") -> str:
        """Look an order up; only 1 and 2 are there."""
        clock.sleep(0.25)
        if number > 2:
            raise ValueError(f"no order {number}")
        return f"order {number} is paid, with the password: hunter2"

    @tool
    def say(text: str) -> str:
        """Say something back."""
        return f"said {text}"

    @tool
    def square(number: int) -> str:
        """Multiply a number by itself."""
        clock.sleep(0.1 + number % 7 / 10)
        return str(number * number)

    @tool(requires_approval=True)
    def send(to: str) -> str:
        """Send a letter."""
        return f"sent to {to}"

    trails = MemoryTrail()
    limits = {name: given.pop(name) for name in list(given) if name in Limits.model_fields}
    agent = Agent(
        ScriptedModel(list(script), clock=clock),
        [order, say, square, send],
        store=trails,
        limits=Limits(**limits),
        clock=clock,
        logger=silent_logger(),
        origin={"model": "openai:small", "base_url": "http://127.0.0.1:8080/v1"},
        **given,
    )
    agent.invoke(task, {"configurable": {"run_id": RUN}})
    return agent, trails


def page(script: Iterable[object], **given: Any) -> str:
    """The report of such a run."""
    return run_of(ran(script, **given)[0])


def run_of(agent: Agent, **given: Any) -> str:
    """The report of the run of `agent`."""
    return report(agent.journal, RUN, **given)


def asks(number: int) -> Any:
    """A reply that asks for an order."""
    return reply(f"I look up {number}.", call("order", number=number, api_key="k-12345678"), usage=(400 + number, 31))


ENDINGS: Final[dict[str, Callable[[], str]]] = {
    "completed": lambda: page([asks(1), reply("It is paid.", usage=(600, 12))]),
    "partial": lambda: page([asks(1), asks(2), "It is paid, as far as I know."], max_steps=2),
    "failed": lambda: page([asks(1), asks(7), asks(8), asks(9)]),
    "model failed": lambda: page([RuntimeError("no model here"), RuntimeError("nor here")]),
    "empty": lambda: page([""] * 5),
    "repeated": lambda: page([asks(1)] * 6),
    "suspended": lambda: page([asks(1), call("send", to="Ana")]),
    "denied": lambda: page([call("send", to="Ana"), "No."], approve=lambda _: Deny("not to Ana")),
    "approved": lambda: page([call("send", to="Ana"), "Sent."], approve=lambda _: Approve()),
    "refused": lambda: page([call("nothing", to="Ana"), call("say", text=5), "I cannot."]),
}
"""Runs that end in every way that a page shows differently."""


def long_run(steps: int) -> str:
    """The report of a run of many steps, some of which fail."""
    script: list[object] = [
        reply(f"Number {turn}.", call("order", number=turn + 10) if turn % 50 == 25 else call("square", number=turn))
        for turn in range(steps - 1)
    ]
    free: dict[str, Any] = dict.fromkeys(("max_steps", "max_tool_calls"), steps * 2)
    return page([*script, "Done."], token_budget=None, **free)


def resealed(entries: Iterable[str]) -> list[Stored]:
    """These texts with seals that hold, as somebody would write them who can write the store."""
    chain, seal, found = Sha256Chain(), GENESIS, []
    for seq, text in enumerate(entries):
        seal = chain.seal(seal, text)
        found.append(Stored(seq, text, seal))
    return found


def journal_over(agent: Agent, trails: MemoryTrail, entries: list[Stored]) -> Journal:
    """The journal of `agent`, with these entries for those of the run."""
    trails._entries[RUN] = entries
    return agent.journal
