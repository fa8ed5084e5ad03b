"""Every number that a guard compares with: one frozen, validated model, readable from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from fsm_agent.errors import DefinitionError

__all__ = ["ALIKE", "CALLED_ELSEWHERE", "ENV_PREFIX", "Limits"]

ENV_PREFIX: Final = "FSM_AGENT_"
CALLED_ELSEWHERE: Final[Mapping[str, str]] = {
    "max_execution_time": "deadline",
    "max_iterations": "max_steps",
    "max_seconds": "deadline",
    "max_tokens": "token_budget",
    "max_total_tokens": "token_budget",
    "max_turns": "max_steps",
    "recursion_limit": "max_steps",
    "time_limit": "deadline",
    "total_tokens_limit": "token_budget",
}
"""Limits by the names that other libraries give them."""
ALIKE: Final = 0.7
"""How much a name is like another, of 1, that was meant by it: `timeout` is like `tool_timeout`, `max_token` no more like `max_steps`."""
_NONE_WORDS: Final = frozenset({"none", "null", "off"})
_ADAPTIVE: Final = "adaptive"
_Steps = Annotated[
    Annotated[int, Field(ge=1, le=100_000), Tag("number")] | Annotated[Literal["adaptive"], Tag("word")],
    # By kind, so that a wrong number is refused in one sentence, not in one for each kind.
    Discriminator(lambda value: "word" if value == _ADAPTIVE else "number"),
]


class Limits(BaseModel):
    """The limits of a run. Frozen; `Limits(max_steps=5)` overrides one, `Limits.from_env()` reads `FSM_AGENT_MAX_STEPS` and so on.

    What each means is printed by `fsm-agent limits`, and stands in `Limits.model_fields[name].description`.

    Raises `fsm_agent.errors.DefinitionError` for an unknown name or a value out of range.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    max_steps: _Steps = Field(
        10,
        description='Plan-to-decide rounds a run may take; "adaptive": base_steps, and more for each that taught something.',
    )
    base_steps: int = Field(5, ge=1, le=100_000, description="Steps of an adaptive max_steps to begin with.")
    earned_steps: int = Field(
        1, ge=0, le=100, description="Steps that each step with a new tool result adds to an adaptive max_steps."
    )
    most_steps: int = Field(
        30, ge=1, le=100_000, description="Steps that an adaptive max_steps never grants more than."
    )
    max_tool_calls: int = Field(
        50, ge=0, description="Tool calls a run may execute; a batch that would pass it runs none."
    )
    token_budget: int | None = Field(
        100_000,
        ge=1,
        description="Prompt and reply tokens a run may spend, checked before each call with its prompt counted; none = no budget.",
    )
    deadline: float | None = Field(
        None, gt=0, description="Seconds a run may last, waiting for a person not counted; none = no deadline."
    )
    degrade_after: int = Field(2, ge=1, description="Consecutive failures after which the run degrades.")
    abort_after: int = Field(3, ge=1, description="Consecutive failures after which the run aborts.")
    repeat_threshold: int = Field(
        2, ge=1, description="Times one call may be executed with the same result; the next is refused."
    )
    repeats: Literal["any", "in_a_row"] = Field(
        "any",
        description='Which executions repeat_threshold counts: "any" of the same call, "in_a_row" those since the last other call.',
    )
    no_progress_steps: int = Field(3, ge=1, description="Steps in a row that may pass without anything new learned.")
    max_retries: int = Field(1, ge=0, le=100, description="Automatic retries of one failed model call or tool call.")
    backoff: float = Field(1.0, ge=0, description="Seconds before the first retry.")
    backoff_factor: float = Field(2.0, ge=1, description="What the wait is multiplied by for each further retry.")
    backoff_max: float = Field(
        30.0, ge=0, description="Longest wait in seconds; a server that asks for longer is not retried."
    )
    jitter: float = Field(
        0.1, ge=0, le=1, description="Share of the wait that is added at random, so that runs do not retry together."
    )
    max_nudges: int = Field(2, ge=0, description="Times a run tells the model that its reply was empty.")
    max_degradations: int = Field(3, ge=0, description="Times a run may degrade, a forced answer not counted.")
    model_timeout: float = Field(
        60.0, gt=0, description="Seconds one model call may take; 600 for a local model unless it is set."
    )
    tool_timeout: float = Field(30.0, gt=0, description="Seconds one tool call may take, unless the tool has its own.")
    approval_timeout: float | None = Field(
        None, gt=0, description="Seconds a person has to decide before the run expires; none = for ever."
    )
    max_result_chars: int = Field(
        8_000, ge=1, description="Characters of a tool result that the model sees, unless the tool has its own cap."
    )
    max_parallel: int = Field(8, ge=1, description="Tool calls of one batch that run at the same time.")
    on_limit: Literal["answer", "stop"] = Field(
        "answer", description='At a limit: "answer" asks once for an answer without tools, "stop" ends the run.'
    )

    in_doubt: Literal["review", "tell"] = Field(
        "review",
        description='A call that may or may not have run before a crash, and is not idempotent: "review" asks a person, "tell" tells the '
        "model that its outcome is unknown.",
    )

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_yes_or_no(cls, value: Any) -> Any:
        """Python takes true for 1: `max_steps: yes` of a YAML file would be one step."""
        if isinstance(value, bool):
            raise PydanticCustomError("limit_bool", "No limit is true or false; give a number")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.degrade_after > self.abort_after:
            raise ValueError(
                f"degrade_after ({self.degrade_after}) is greater than abort_after ({self.abort_after}), so the run would abort before "
                "it could degrade: lower degrade_after or raise abort_after"
            )
        if self.base_steps > self.most_steps:
            raise ValueError(
                f"base_steps ({self.base_steps}) is greater than most_steps ({self.most_steps}), which bounds it: lower base_steps or "
                "raise most_steps"
            )
        return self

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise DefinitionError(_explain(error)) from error

    def replace(self, **changes: Any) -> Limits:
        """A copy with `changes`, validated again."""
        return Limits(**{**self.model_dump(exclude_unset=True), **changes})

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] | None = None, beneath: Mapping[str, Any] | None = None, /, **overrides: Any
    ) -> Limits:
        """Limits from `FSM_AGENT_<NAME>` variables, with `overrides` on top; "none" switches an optional limit off.

        A variable that is empty counts as one that is not set. `beneath` are limits for what neither of them says (those of a profile).

        Raises `DefinitionError` naming the variable when a value is not of its kind.
        """
        source = os.environ if environ is None else environ
        found: dict[str, Any] = {}
        for name in cls.model_fields:
            text = source.get(ENV_PREFIX + name.upper(), "").strip()
            if text and name not in overrides:
                found[name] = None if text.lower() in _NONE_WORDS else text
        try:
            return cls(**{**(beneath or {}), **found, **overrides})
        except DefinitionError as error:
            named = ", ".join(ENV_PREFIX + name.upper() for name in found)
            raise DefinitionError(f"{error} (read from the environment: {named})" if found else str(error)) from error

    def step_cap(self, useful_steps: int) -> int:
        """Steps that a run may take when `useful_steps` of them gave a tool result that was new."""
        if self.max_steps != _ADAPTIVE:
            return self.max_steps
        return min(self.base_steps + self.earned_steps * useful_steps, self.most_steps)

    @property
    def step_bound(self) -> int:
        """Steps that no run under these limits takes more than, however useful they are."""
        return self.most_steps if self.max_steps == _ADAPTIVE else self.max_steps

    @property
    def steps_text(self) -> str:
        """`max_steps` for a person: "10", or "5 (and 1 more for each that taught something, up to 30)"."""
        if self.max_steps != _ADAPTIVE:
            return str(self.max_steps)
        return (
            f"{self.base_steps} (and {self.earned_steps} more for each that taught something, up to {self.most_steps})"
        )

    @property
    def answer_reserve(self) -> int:
        """Tokens of the budget kept for one forced answer: a tenth, 0 without a budget or with `on_limit="stop"`."""
        return self.token_budget // 10 if self.token_budget is not None and self.on_limit == "answer" else 0


def _explain(error: ValidationError) -> str:
    lines, unknown = [], False
    for item in error.errors(include_url=False):
        where = str(item["loc"][0]) if item["loc"] else ""
        if item["type"] == "extra_forbidden":
            unknown = True
            near = CALLED_ELSEWHERE.get(where) or "".join(
                get_close_matches(where, Limits.model_fields, n=1, cutoff=ALIKE)
            )
            lines.append(f"limits: there is no limit {where!r}" + (f", did you mean {near}?" if near else ""))
        else:
            lines.append(
                f"limits: {where + ': ' if where else ''}{item['msg']}, got {item['input']!r}"
                if where
                else f"limits: {item['msg']}"
            )
    if unknown:
        lines.append(f"the limits are {', '.join(Limits.model_fields)}")
    return "; ".join(lines)
