"""A state of one's own between VALIDATE and EXECUTE: no call with the number of a bank card is ever executed.

`fsm-agent verify --table fsm_agent.examples.compliance:TABLE`
"""

from __future__ import annotations

import json
import re
from typing import Final

from fsm_agent import table
from fsm_agent.context import Context
from fsm_agent.custom import Said

__all__ = ["TABLE", "compliance"]

_CARD: Final = re.compile(r"\d(?:[ -]?\d){12,18}")


@table.state("COMPLIANCE", events=["cleared", "flagged"])
def compliance(ctx: Context) -> Said:
    """Refuse each call with a card number in its arguments, and let the others through."""
    held = [call for call in table.open_calls(ctx) if _CARD.search(json.dumps(dict(call.arguments)))]
    after = table.refuse(ctx, "card numbers must not be sent to tools", *held) if held else ctx
    return "cleared" if table.open_calls(after) else "flagged", after


TABLE: Final = table.extend(
    states=[compliance],
    instead={
        "VALIDATE --accepted--> EXECUTE": "VALIDATE --accepted--> COMPLIANCE",
        "REVIEW --approved--> EXECUTE": "REVIEW --approved--> COMPLIANCE",
    },
    rows=["COMPLIANCE --cleared--> EXECUTE", "COMPLIANCE --flagged--> OBSERVE"],
)
