"""What the model and people read of a policy, in English and Chinese."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fsm_agent.language import Language

__all__ = ["counted", "listed", "phrased"]

_EN: Final[Mapping[str, str]] = {
    "order": "{tool} only after {before} has succeeded",
    "order.missing": "{tool} may be called only after {before} has succeeded; missing, in this order: {missing}",
    "order.together": "{tool} may be called only after {before} has succeeded, which this reply calls too; "
    "call {tool} in a later reply",
    "at_most": "{tool} at most {times}",
    "at_most.used": "{tool} may be called at most {times} in a run, and that is used up; a call that failed counts",
    "never_after": "{tool} never once {after} was called",
    "never_after.late": "{tool} may not be called any more, because {after} was called",
    "never_after.together": "{tool} and {other} may not run at the same time; call {tool} in a later reply",
    "one_of": "only one of {tools}",
    "one_of.other": "only one of {tools} may be used in a run, and {other} was",
    "stages": "{tools} by stages: {rows}",
    "stages.row": "in {stage} {tool} leads to {target}",
    "stages.elsewhere": '{tool} may not be called in the stage "{stage}"; there it is {allowed}',
    "stages.together": "{tool} may not run at the same time as {other}; call {tool} in a later reply",
    "once": "once",
    "times": "{count} times",
    "none": "none of them",
    "refused": "Refused by the tool policy: {why}. {now}",
    "now": "Tools that may be called now: {tools}.",
    "nothing": "No tool may be called now: give the final answer.",
    "told": "Rules for the tools, for the whole task: {rules}. A call that breaks one is refused.",
    "and": ", ",
    "end": "; ",
}
_ZH: Final[Mapping[str, str]] = {
    "order": "{before} 成功之后才能调用 {tool}",
    "order.missing": "{before} 成功之后才能调用 {tool}；还缺（按此顺序）：{missing}",
    "order.together": "{before} 成功之后才能调用 {tool}，而这次回复同时调用了它；请在之后的回复中再调用 {tool}",
    "at_most": "{tool} 最多 {times}",
    "at_most.used": "一次运行中 {tool} 最多调用 {times}，已经用完；失败的调用也算",
    "never_after": "调用过 {after} 之后不能再调用 {tool}",
    "never_after.late": "已经调用过 {after}，不能再调用 {tool}",
    "never_after.together": "{tool} 和 {other} 不能同时运行；请在之后的回复中再调用 {tool}",
    "one_of": "{tools} 只能用其中一个",
    "one_of.other": "一次运行中 {tools} 只能用其中一个，已经用了 {other}",
    "stages": "{tools} 按阶段调用：{rows}",
    "stages.row": "在 {stage} 阶段 {tool} 进入 {target}",
    "stages.elsewhere": "在“{stage}”阶段不能调用 {tool}；该阶段可以调用：{allowed}",
    "stages.together": "{tool} 不能和 {other} 同时运行；请在之后的回复中再调用 {tool}",
    "once": "1 次",
    "times": "{count} 次",
    "none": "无",
    "refused": "工具规则拒绝了此调用：{why}。{now}",
    "now": "现在可以调用的工具：{tools}。",
    "nothing": "现在不能调用任何工具：请给出最终答案。",
    "told": "工具的使用规则（对整个任务有效）：{rules}。违反规则的调用会被拒绝。",
    "and": "、",
    "end": "；",
}


def phrased(language: Language, key: str, **values: str) -> str:
    """The sentence of that key. Names are put in as they are, whatever they look like."""
    return (_EN if language == "en" else _ZH)[key].format(**values)


def listed(language: Language, names: Iterable[str]) -> str:
    """Names one after the other; "none of them" for no name."""
    return phrased(language, "and").join(names) or phrased(language, "none")


def counted(language: Language, count: int) -> str:
    """As "once", "3 times"."""
    return phrased(language, "once") if count == 1 else phrased(language, "times", count=str(count))
