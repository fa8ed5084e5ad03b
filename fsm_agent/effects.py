"""What a state asks for (effects) and what came of it (outcomes): frozen data, no behaviour; outcomes are JSON both ways.

Times: `at` is seconds since the run began, read from the injected clock by whoever performed the effect.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from langchain_core.messages import AnyMessage
from pydantic import Field, TypeAdapter

from fsm_agent.frozen import fast_init

__all__ = [
    "CAP_REACHED",
    "FILTERED",
    "Answer",
    "Answered",
    "Approve",
    "AskHuman",
    "Broke",
    "Call",
    "CallModel",
    "CallTools",
    "Cancelled",
    "Decision",
    "Deny",
    "Doubted",
    "Edit",
    "Effect",
    "Expired",
    "ModelFailed",
    "Omittable",
    "Outcome",
    "RawCall",
    "Replied",
    "Result",
    "Returned",
    "Usage",
    "Wait",
    "Waited",
    "from_data",
    "to_data",
]


@fast_init
@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens. `estimated` is how many of `total` were estimated because the server did not say."""

    input: int = 0
    output: int = 0
    total: int = 0
    estimated: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.total + other.total,
            self.estimated + other.estimated,
        )


NO_USAGE: Final = Usage()
Omittable = Literal["response_format", "temperature", "stream_usage", "thoughts", "order"]
"""What a server may refuse of a request, and can be asked without. "order": a user's message right after a result."""
CAP_REACHED: Final = "cap_reached"
"""Among the repairs of a reply: it is as long as its cap, and no label says that it was cut."""
FILTERED: Final = frozenset(
    {
        *("content_filter", "content_filtered", "refusal"),
        *("safety", "recitation", "prohibited_content", "blocklist", "spii"),
    }
)
"""What providers say, in small letters, of a reply that a filter of theirs has cut off."""


def _in_order(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _in_order(value[name]) for name in sorted(value, key=str)}
    return [_in_order(item) for item in value] if isinstance(value, list) else value


@fast_init
@dataclass(frozen=True, slots=True)
class RawCall:
    """A tool call as the model (or a person, or the ladder) asked for it. `arguments` is text where the text is known.

    Arguments that are no text come in the order of their names, at every depth: a trail keeps no other, and the model reads them so.
    """

    id: str
    name: str
    arguments: str | Mapping[str, Any] | None

    def __post_init__(self) -> None:
        if isinstance(self.arguments, Mapping):
            object.__setattr__(self, "arguments", _in_order(self.arguments))


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call after VALIDATE. With `refusal` set it is never executed: the refusal is its result.

    `tool` is what will run; `name` is what the model asked for (they differ for a fallback and a stripped prefix).
    `arguments` are JSON-safe, defaults filled; `signature` identifies (tool, arguments) with volatile parts normalised.
    `doubt`: a crash left open whether it ran.
    """

    id: str
    name: str
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    signature: str = ""
    refusal: str = ""
    refusal_kind: str = ""
    needs_approval: bool = False
    approved: bool = False
    repeated: bool = False
    doubt: bool = False
    repairs: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """What a decision of a person is bound to: SHA-256 over id, tool and arguments, in hexadecimal."""
        shown = json.dumps([self.id, self.tool, self.arguments], sort_keys=True, separators=(",", ":"), default=str)
        return hashlib.sha256(shown.encode()).hexdigest()


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one call gave. `text` is what the model reads (capped); `full` is the whole text when `text` was cut, else None.

    `metadata` are facts about the call that the tool gave beside its content (`fsm_agent.ToolResult`): plain JSON data.
    """

    call_id: str
    tool: str
    ok: bool
    text: str
    digest: str = ""
    full: str | None = None
    error: str = ""
    retryable: bool = False
    executed: bool = True
    seconds: float = 0.0
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Approve:
    """Let the call run exactly as it was shown. With `digest` (of the request) it counts for those arguments only."""

    digest: str = ""
    kind: Literal["approve"] = "approve"


@dataclass(frozen=True, slots=True)
class Edit:
    """Let the call run with these arguments in the place of its own; they are validated again, and bound to this decision."""

    args: Mapping[str, Any]
    kind: Literal["edit"] = "edit"


@dataclass(frozen=True, slots=True)
class Deny:
    """Refuse the call; the model reads `reason`. With `stop=True` the run ends as `denied`."""

    reason: str = ""
    stop: bool = False
    kind: Literal["deny"] = "deny"


@dataclass(frozen=True, slots=True)
class Answer:
    """Do not run the call: this is its result, as the model reads it. For a call in doubt that did take effect, say."""

    text: str
    kind: Literal["answer"] = "answer"


Decision = Approve | Edit | Deny | Answer


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class CallModel:
    """Ask the model. `tools` are the names offered; `purpose` "answer" offers none.

    "summary" asks for notes of earlier steps, "reflect" whether to go on.
    `estimate` is the prompt in tokens; `temperature` None leaves it to the model.
    """

    messages: tuple[AnyMessage, ...]
    tools: tuple[str, ...] = ()
    response_format: Mapping[str, Any] | None = None
    purpose: Literal["plan", "answer", "summary", "reflect"] = "plan"
    timeout: float = 60.0
    estimate: int = 0
    attempt: int = 1
    temperature: float | None = None
    kind: Literal["call_model"] = "call_model"


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class CallTools:
    """Execute these calls, at most `parallel` at a time, none longer than `timeout` nor than `time_left` seconds.

    Of a result the model sees `max_chars` characters. A tool's own time-out and cap come before those.
    """

    calls: tuple[Call, ...]
    parallel: int = 8
    timeout: float = 30.0
    max_chars: int = 8_000
    time_left: float | None = None
    attempt: int = 1
    kind: Literal["call_tools"] = "call_tools"


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait before a retry; cancellable."""

    seconds: float
    kind: Literal["wait"] = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskHuman:
    """Ask a person about each of these calls. Without somebody to ask at once, the run is suspended here."""

    calls: tuple[Call, ...]
    expires_in: float | None = None
    kind: Literal["ask_human"] = "ask_human"


Effect = CallModel | CallTools | Wait | AskHuman


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """The model's finished reply, strictly re-read.

    `truncated`: the server says that it was cut. `refusal`: the model's own words for declining.
    `unreadable`: why the client library could make nothing of the reply. `prompt_tokens`: what the server reported, None when it did not.
    `opaque`: what the provider wants back with the calls (`fsm_agent.opaque`), as JSON data; None for most.
    `id`: of the message, "" for none: who has shown its pieces knows it by that.
    """

    text: str
    calls: tuple[RawCall, ...] = ()
    usage: Usage = NO_USAGE
    prompt_tokens: int | None = None
    finish: str = ""
    truncated: bool = False
    refusal: str = ""
    unreadable: str = ""
    repairs: tuple[str, ...] = ()
    opaque: Mapping[str, Any] | None = None
    id: str = ""
    at: float = 0.0
    kind: Literal["replied"] = "replied"

    @property
    def may_be_cut(self) -> bool:
        """True when the server says that it was cut, and when it is as long as its cap: then arguments that are missing were cut off."""
        return self.truncated or CAP_REACHED in self.repairs

    @property
    def filtered(self) -> bool:
        """True when the server says that a filter of the provider cut it off."""
        return self.finish.lower() in FILTERED


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFailed:
    """The model call failed. `retry_after` is the server's wish in seconds, None when it had none.

    `overflow`: the prompt was too large for the model's context; `context_tokens` fit, `prompt_tokens` were sent, where the server says so.
    `gives_way`: the server refused what it can be asked without, and the next request leaves that out.
    """

    error: str
    message: str
    retryable: bool
    retry_after: float | None = None
    status: int | None = None
    overflow: bool = False
    context_tokens: int | None = None
    prompt_tokens: int | None = None
    gives_way: bool = False
    usage: Usage = NO_USAGE
    at: float = 0.0
    kind: Literal["model_failed"] = "model_failed"


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The results of a batch, in the order of its calls."""

    results: tuple[Result, ...]
    at: float = 0.0
    kind: Literal["returned"] = "returned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubted:
    """After a crash: `results` are those that are known, `calls` the ids of calls that may or may not have run."""

    calls: tuple[str, ...]
    results: tuple[Result, ...] = ()
    at: float = 0.0
    kind: Literal["doubted"] = "doubted"


@dataclass(frozen=True, slots=True)
class Waited:
    """The wait before a retry is over."""

    at: float = 0.0
    kind: Literal["waited"] = "waited"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a person decided, by call id. `waited` is how long that took, in seconds; it does not count for the deadline."""

    decisions: Mapping[str, Decision]
    waited: float = 0.0
    at: float = 0.0
    kind: Literal["answered"] = "answered"


@dataclass(frozen=True, slots=True)
class Expired:
    """Nobody decided in time."""

    waited: float = 0.0
    at: float = 0.0
    kind: Literal["expired"] = "expired"


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Somebody cancelled the run while this state's effect was due or under way. `results` are of the calls that had ended before."""

    why: str = ""
    at: float = 0.0
    results: tuple[Result, ...] = ()
    kind: Literal["cancelled"] = "cancelled"


@dataclass(frozen=True, slots=True)
class Broke:
    """The engine itself failed (a bug in a state, dialect or memory): `error` is the class, `message` its text."""

    error: str
    message: str
    at: float = 0.0
    kind: Literal["broke"] = "broke"


Outcome = Replied | ModelFailed | Returned | Doubted | Waited | Answered | Expired | Cancelled | Broke


@functools.cache
def _adapter(which: str) -> TypeAdapter[Any]:
    if which == "result":
        return TypeAdapter(Result)
    kind: Any = {"outcome": Outcome, "decision": Decision}[which]
    return TypeAdapter(Annotated[kind, Field(discriminator="kind")])


def to_data(value: Outcome | Result | Decision) -> dict[str, Any]:
    """`value` as JSON data; `from_data` gives an equal value back."""
    which = "result" if isinstance(value, Result) else "decision" if isinstance(value, Decision) else "outcome"
    data: dict[str, Any] = _adapter(which).dump_python(value, mode="json")
    return data


def from_data(which: Literal["outcome", "result", "decision"], data: Mapping[str, Any]) -> Outcome | Result | Decision:
    """The value that `to_data` wrote. Raises `ValueError` for anything else."""
    value: Outcome | Result | Decision = _adapter(which).validate_python(dict(data))
    return value
