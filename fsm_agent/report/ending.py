"""How a run stands, in sentences for whoever has not read the table."""

from __future__ import annotations

from typing import Final

from fsm_agent.alphabet import TERMINAL, State, Status, StopReason
from fsm_agent.records import Transitioned
from fsm_agent.report.parts import Ending
from fsm_agent.states import ENDINGS
from fsm_agent.trail.fold import Folded
from fsm_agent.trail.story import Story

__all__ = ["ending_of"]

_SENTENCES: Final[dict[str, str]] = {
    StopReason.ANSWERED: "The model gave its answer.",
    StopReason.FORCED_ANSWER: "A limit was reached, so the model was asked once for an answer without further tools, and gave it.",
    StopReason.MAX_STEPS: "The run took as many steps as it may.",
    StopReason.MAX_TOOL_CALLS: "The calls that the model asked for would have been more than the run may make.",
    StopReason.TOKEN_BUDGET: "The next prompt would not have fitted the token budget.",
    StopReason.DEADLINE: "The time that the run may last was over.",
    StopReason.CONSECUTIVE_FAILURES: "Too many calls or replies in a row failed.",
    StopReason.REPEATED_ACTION: "The model asked again and again for calls whose results it had.",
    StopReason.NO_PROGRESS: "Several steps in a row brought nothing new.",
    StopReason.REFLECTION: "Asked whether to go on, the model said no.",
    StopReason.EMPTY_REPLY: "The model kept sending empty replies.",
    StopReason.MODEL_FAILED: "A model call failed, and trying again did not help or was not allowed.",
    StopReason.DENIED: "A person denied a call, and asked to stop.",
    StopReason.EXPIRED: "Nobody decided in time about a call that needs a person.",
    StopReason.CANCELLED: "Somebody cancelled the run.",
    StopReason.IN_DOUBT: "A crash left open whether a call took effect, and a person has to say.",
    StopReason.INTERNAL_ERROR: "The engine itself failed, or code that it was given.",
}
_WAITS: Final = "The run waits for a person."


def ending_of(story: Story, last: Transitioned | None, folded: Folded | None, *, running: bool) -> Ending:
    """How the run stands: by what it was folded to where that is its end, else by what its entries say.

    `last` is the newest transition; `running` says that somebody drives it now.
    """
    if folded is not None and folded.ended:
        ending = ENDINGS[folded.state](folded.ctx)
        reason = str(ending.reason)
        return Ending(
            status=str(ending.status),
            reason=reason,
            sentence=_sentence(reason),
            detail=ending.detail,
            answer=ending.answer,
        )
    if last is not None and last.target in TERMINAL:
        reason = str(story.reason or "")
        detail = "; ".join(
            f"{one.guard}: {', '.join(f'{name} = {value}' for name, value in one.values.items())}"
            for one in last.guards
            if one.result
        )
        return Ending(status=_status(last.target, reason), reason=reason, sentence=_sentence(reason), detail=detail)
    return _open(story, str(last.target) if last is not None else "", running=running)


def _open(story: Story, state: str, *, running: bool) -> Ending:
    where = f"in {state}" if state else "before its first transition"
    if running:
        return Ending(status="running", sentence=f"The run goes on; here it is {where}.")
    if story.waiting:
        tools = ", ".join(one.tool for one in story.waiting)
        doubt = any(one.why == "in_doubt" for one in story.waiting)
        sentence = _sentence(StopReason.IN_DOUBT) if doubt else f"{_WAITS} It needs a decision about {tools}."
        return Ending(status=str(Status.SUSPENDED), reason="in_doubt" if doubt else "", sentence=sentence)
    if story.paused:
        return Ending(status="paused", sentence=f"The run was paused {where}, as a person had asked.")
    return Ending(
        status="broken off", sentence=f"The run broke off {where}: nobody drives it, and it can be gone on with."
    )


def _status(target: str, reason: str) -> str:
    if target == State.FINISH:
        return str(Status.PARTIAL if reason == StopReason.FORCED_ANSWER else Status.COMPLETED)
    return str(Status.CANCELLED if reason == StopReason.CANCELLED else Status.FAILED)


def _sentence(reason: str) -> str:
    return _SENTENCES.get(reason, f"The run stopped: {reason.replace('_', ' ')}." if reason else "The run has ended.")
