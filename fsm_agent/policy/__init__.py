"""Tool policies: a second, small, declared machine over tool names that says which tool may be called where in a run.

```python
from fsm_agent import Agent
from fsm_agent.policy import AtMost, Order, ToolPolicy

policy = ToolPolicy(Order("query_order", "discount", "pay"), AtMost("pay", 1))
agent = Agent(model, tools=[query_order, discount, pay], policy=policy)
```

VALIDATE asks it about each call. A violation is never executed and asks nobody: it is a result that tells the model what is missing, and
counts as a failure. Tools that no rule names are free. A policy is of one run: the next turn of a conversation begins at its start.
"""

from __future__ import annotations

from fsm_agent.policy.rules import AtMost, NeverAfter, OneOf, Order, Rule
from fsm_agent.policy.stages import Stages
from fsm_agent.policy.tool_policy import Position, ToolPolicy

__all__ = ["AtMost", "NeverAfter", "OneOf", "Order", "Position", "Rule", "Stages", "ToolPolicy"]
