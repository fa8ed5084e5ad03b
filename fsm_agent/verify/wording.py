"""The sentences of a certificate."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from fsm_agent.verify.certificate import PolicyProof, WorstCase
from fsm_agent.verify.configuration import Bounds

__all__ = ["ASSUMED", "ASSUMED_OF_POLICY", "PROVED", "proved_of_policy", "ranking"]

PROVED: Final[Mapping[str, str]] = {
    "endless": "every run ends",
    "refused": "in every configuration that a run can come to, a row is enabled for whatever happens",
    "dead": "every row can fire, if not under these limits then under others",
    "unchecked": "EXECUTE is entered only after VALIDATE or REVIEW let its calls run, or to retry them",
    "approval": "no call runs that waits for a person's approval",
    "repeat": "no call is executed again once it was executed repeat_threshold times (as repeats counts them) with the same result, but to "
    "retry it",
    "tool_calls": "no batch runs that would pass max_tool_calls",
    "steps": "no step begins once max_steps were taken",
    "failures": "the model is not asked again after abort_after failures in a row",
    "nudges": "the model is not asked again after more than max_nudges empty replies, but for the forced answer",
    "progress": "no step begins after no_progress_steps in a row without anything new, but to change the strategy",
    "deadline": "no step, retry or batch is decided on once the deadline has passed",
    "tokens": "no model call or retry is decided on that the token budget has no room for",
    "reason": "every ABORT has a reason",
    "untrue": "no run is stopped or cut short for a limit that it has not reached",
    "unasked": "no run is aborted at max_steps, max_tool_calls, token_budget, repeat_threshold or no_progress_steps "
    "where an answer could still be asked for",
    "lost": "every reply that is not the answer is observed, with what became of its calls, unless the run is stopped or degrades",
    "answer": "every FINISH has an answer",
    "forced": "an answer is forced at most once",
}
"""By the kind of fault that takes it away."""

ASSUMED: Final = (
    "a program crashes finitely often, and a person who is asked decides, lets it expire or leaves the run suspended",
    "a memory asks for one summary of a round, not for the same one again",
    "states of your own return; their guards may answer either way",
    "where a guard of your own stands beside a reason, the reason is true",
    "nobody changes the limits, memory or arguments of a run that is paused",
    "a call that a crash left in doubt counts once, whether or not it took effect before it runs again",
    "tools that are added to a running agent have no more retries than those it has now",
)

ASSUMED_OF_POLICY: Final = (
    "for the tool policy a call counts once, however often the engine, or a person after a crash, has it tried again",
    "a tool does no more than its name says: the policy is about names",
)


def proved_of_policy(policy: PolicyProof, kinds: Collection[str]) -> tuple[str, ...]:
    """What holds of a policy, but for the kinds of faults that were found; nothing where the loop runs calls that nobody checked."""
    broken = not {"policy", "unchecked"}.isdisjoint(kinds)
    held = () if broken else tuple(f"in every run: {rule}" for rule in policy.rules)
    turns = ("each tool of the policy can be called in some run",) if "uncallable" not in kinds else ()
    return held + turns


def ranking(bounds: Bounds, worst: WorstCase) -> tuple[str, ...]:
    """The counters that grow on cycles, with their bounds; without them the graph has no cycle."""
    return (
        f"steps, up to {bounds.limits.step_bound}",
        f"prompts sent again, smaller or without what was refused, up to {worst.sent_again}",
        "summaries, for each round up to one that is kept and one that failed",
        "crashes",
        f"else at most {worst.within_step} transitions follow each other",
    )
