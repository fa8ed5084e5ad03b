"""Every exception that `fsm_agent` raises.

```
FsmAgentError
├── DefinitionError            a table, tool, limit or agent is wrong; raised when it is built, before any run
│   ├── TableError             a row breaks a law of the table; `.row` names it
│   ├── PolicyError            a tool policy contradicts itself or names a tool that there is not; `.rule` names the rule
│   ├── ToolDefinitionError    a tool cannot be described, or its name is taken; `.tool` names it
│   └── ModelError             the model (or local model) cannot be found, downloaded or started
└── RunError                   wrong use of a run; what a model or a tool did never raises, it ends the run
    ├── IllegalTransition      no row of the table has this (source, event)
    ├── GuardFailed            a guard of one's own raised when it was asked; it ends the run as internal_error
    ├── UnknownRun             no run of that id is suspended or running here
    ├── RunBusy                the run, or its thread, is already being driven elsewhere
    ├── TrailError             a stored trail cannot be used
    │   ├── TrailDamaged       it is not what was written; `.seq` is the first bad entry
    │   ├── TrailLocked        it is encrypted, and no key that is given opens it (of `fsm_agent.trail`)
    │   ├── TrailVersion       it was written by another version of this package, or another agent
    │   └── RunHeld            another writer has the run; `.owner` and `.until` say who, and how long
    ├── ConversationError      a conversation cannot be read from its store or written to it
    │   └── ConversationDamaged   what is stored is not what was written; `.thread_id` and `.position` say where
    └── ScriptError            a scripted model was asked more, or less, than its script says
```
"""

from __future__ import annotations

from time import gmtime, strftime

__all__ = [
    "ConversationDamaged",
    "ConversationError",
    "DefinitionError",
    "FsmAgentError",
    "GuardFailed",
    "IllegalTransition",
    "ModelError",
    "PolicyError",
    "RunBusy",
    "RunError",
    "RunHeld",
    "ScriptError",
    "TableError",
    "ToolDefinitionError",
    "TrailDamaged",
    "TrailError",
    "TrailVersion",
    "UnknownRun",
]


class FsmAgentError(Exception):
    """Base of every error that this package raises."""


class DefinitionError(FsmAgentError, ValueError):
    """A definition (table, tool, limits, agent) is wrong. Raised at construction, before anything has happened."""


class TableError(DefinitionError):
    """A transition table breaks a law; `row` is the offending row as text, "" when the fault is a missing row."""

    def __init__(self, message: str, *, row: str = "") -> None:
        super().__init__(f"{message} (row: {row})" if row else message)
        self.row = row


class PolicyError(DefinitionError):
    """A tool policy is wrong; `rule` is the offending rule in words, "" when it could not even be made."""

    def __init__(self, message: str, *, rule: str = "") -> None:
        super().__init__(f"{message} (rule: {rule})" if rule else message)
        self.rule = rule


class ToolDefinitionError(DefinitionError):
    """A tool cannot be described or registered; `tool` is its name."""

    def __init__(self, message: str, *, tool: str = "") -> None:
        super().__init__(message)
        self.tool = tool


class ModelError(DefinitionError):
    """A model cannot be found, downloaded, verified or started. The message names the ways out."""


class RunError(FsmAgentError, RuntimeError):
    """A run was used wrongly. What a model or a tool does never raises: it ends the run with a typed reason."""


class IllegalTransition(RunError):
    """No row of the table has this (source, event)."""


class GuardFailed(RunError):
    """A guard of one's own raised when it was asked, or did not say whether it holds. The message names it."""


class UnknownRun(RunError):
    """No run of that id is known here."""


class RunBusy(RunError):
    """The run or its conversation thread is already being driven; try again when it has ended."""


class TrailError(RunError):
    """A stored trail cannot be read, written or folded. Nothing was changed."""


class TrailDamaged(TrailError):
    """The stored entries are not what was written: cut, changed, reordered. `seq` is the first bad one, `run_id` whose it is."""

    def __init__(self, message: str, *, run_id: str, seq: int) -> None:
        super().__init__(f"trail of run {run_id!r}, entry {seq}: {message}")
        self.run_id = run_id
        self.seq = seq


class TrailVersion(TrailError):
    """The trail was written by another version of this package, or by an agent with another table, tools or dialect."""


class RunHeld(TrailError):
    """Another writer has the run. `owner` is host:process:token, `until` when its lease ends (seconds since the epoch)."""

    def __init__(self, run_id: str, *, owner: str, until: float, message: str = "") -> None:
        held = f"run {run_id!r} is held by {owner}; wait for it to end, or for its lease to run out{_at(until)}"
        super().__init__(message or held)
        self.run_id = run_id
        self.owner = owner
        self.until = until


def _at(until: float) -> str:
    """When that is, if nobody renews it; "" for what a damaged store may hold in its place."""
    try:
        return strftime(" (%Y-%m-%d %H:%M:%S UTC, if its process is gone)", gmtime(until))
    except (OverflowError, ValueError, OSError):
        return ""


class ConversationError(RunError):
    """A conversation cannot be read or written: its store is out of reach, or a message holds what JSON cannot. Nothing was changed."""


class ConversationDamaged(ConversationError):
    """What is stored of a conversation is not what was written. `position` is the first bad block of `thread_id`, from 0."""

    def __init__(self, message: str, *, thread_id: str, position: int) -> None:
        super().__init__(
            f"conversation {thread_id!r}, block {position}: {message}; "
            f"restore the store from a copy, or start this thread anew with `store.delete({thread_id!r})`"
        )
        self.thread_id = thread_id
        self.position = position


class ScriptError(RunError):
    """A scripted model or tool was used against its script: asked too often, or left with replies unused."""
