"""Everything that the model reads from the engine, in English and Chinese, and the choice between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["EN", "TEXTS", "ZH", "Language", "Texts", "detect_language", "texts_for"]

Language = Literal["en", "zh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """One language's sentences. Braces are `str.format` fields."""

    language: Language
    system: str
    empty_reply: str
    malformed: str
    truncated: str
    truncated_call: str
    filtered: str
    filtered_call: str
    call_when_forced: str
    lost_call: str
    not_a_tool_call: str
    one_call: str
    thought: str
    repeat_warning: str
    repeated: str
    twice_in_reply: str
    done_before: str
    reported_before: str
    interrupted: str
    in_doubt: str
    denied: str
    denied_before: str
    refused: str
    approval_late: str
    answer_refused: str
    tool_error: str
    tool_timeout: str
    tool_interrupts: str
    cancelled_result: str
    fallback: str
    default: str
    strategy: str
    strategy_reply: str
    simpler: str
    withheld: str
    answer_now: str
    because: dict[str, str]
    observation: str
    no_reason: str
    json_rules: str
    json_finish: str
    json_think: str
    json_answer: str
    ledger: str
    react_rules: str
    react_answer: str
    summary: str
    summarise: str
    summarise_steps: str
    reflect: str
    reflect_steps: str
    next_tool: str
    key_facts: str
    older_result: str
    cut_to_fit: str
    recalled: str


EN: Final = Texts(
    language="en",
    system="You solve the user's task. Use a tool when the task needs one; use only what the tools returned, never invent a result. "
    "When the task is done, answer it completely and briefly, in the language of the task.",
    empty_reply="Your last reply was empty. Either call one tool or give the final answer.",
    malformed="Your last reply could not be read: {detail}. {fix}",
    truncated="Your last reply was cut off before its end, so nothing of it was executed. Send a shorter one.",
    truncated_call="This call was cut off before its end, so it was not executed. Send a shorter one.",
    filtered="Your last reply was cut off by a content filter of the provider, so nothing of it was executed. Say it in other words.",
    filtered_call="This call was cut off by a content filter of the provider, so it was not executed. Say it in other words.",
    call_when_forced="Your last reply called a tool, but no more tools can be used. Give the final answer now, from the results above.",
    lost_call="Your last reply was to call a tool, but no call arrived, only text. Call the tool again. If nothing is left to do, give the final answer.",
    not_a_tool_call="Send one complete and valid JSON object.",
    one_call="Call one tool in the form that is asked for, or give the final answer.",
    thought="Noted. Now call a tool or give the final answer.",
    repeat_warning="Note: this same call has now given the same result {count} times. Use the result; the same call will be refused next time.",
    repeated="Refused: {tool} was already called {count} times with these arguments and gave the same result. Use that result, or do something else.",
    twice_in_reply="Not executed again: your reply asks for this same call of {tool} twice; it is executed once.",
    done_before="Not executed again: {tool} was already called with these arguments. It took effect once, and returned:\n{text}",
    reported_before="Not executed again: this same call of {tool} may have taken effect already. What is known of it:\n{text}",
    interrupted="Not executed: the run stopped before this call.",
    in_doubt="Outcome unknown: the program stopped while {tool} was under way. It may have taken effect. "
    "Do not assume either; check it with another tool, or say so.",
    denied="A person refused this call: {reason}",
    refused="Not executed: {reason}",
    approval_late="a person must approve it, and has already decided about this reply. Make this call again in a reply of its own.",
    answer_refused="This answer was not accepted: {reason}",
    denied_before="Refused: a person has already refused this same call.",
    tool_error="{tool} failed: {error}",
    tool_timeout="{tool} gave no result within {seconds} seconds. Whether it took effect is unknown.",
    tool_interrupts="{tool} did not run to its end: it needs a person's answer first, and cannot ask for one here. Do without it, or ask the user in your answer.",
    cancelled_result="The run was cancelled before this call returned. Whether it took effect is unknown.",
    fallback="{error}\n{tool} was executed instead of {failed} and returned:\n{text}",
    default="{error}\nNo result could be had. The default of {tool} stands in for it, which nobody looked up or computed: {text}",
    strategy="{failed} keeps failing. Last error: {error}\nChoose a different way. Tools you have: {tools}.",
    strategy_reply="Your last {count} replies could not be used: {error}. Tools you have: {tools}. Send exactly one valid call, or the final answer.",
    simpler="{failed} keeps failing. Last error: {error}\nFrom now on these are the only tools: {tools}.",
    withheld="Refused: {tool} was taken away, because it kept failing. Tools you have: {tools}.",
    answer_now="{because} No more tools can be used. Give the final answer now, from the results above. If they do not settle the task, say what is known and what is missing.",
    because={
        "max_steps": "The step limit is reached.",
        "max_tool_calls": "The limit of tool calls is reached.",
        "token_budget": "The token budget is nearly spent.",
        "repeated_action": "The same call was repeated without a new result.",
        "no_progress": "The last steps brought nothing new.",
        "reflection": "You judged that going on would not help.",
        "consecutive_failures": "Too many calls failed in a row.",
    },
    observation="Result of {tool}: {text}",
    no_reason="no reason was given",
    json_rules="Never compute or guess yourself: every value comes from the task or from the result of a tool.\n"
    'Every reply is one JSON object: {"action": <name>, "action_input": {<arguments>}}.\nActions:',
    json_finish="- {finish}(answer: string): the task is done; the answer is one full sentence that tells the result.",
    json_think="- {think}(thought: string): think, without acting.",
    json_answer='Reply with one JSON object: {{"action": "{finish}", "action_input": {{"answer": <the complete answer>}}}}.',
    ledger="Known so far:\n{known}\nTask: {task}\nDoes this answer the whole task? If yes, {finish}. "
    "If not, call the next tool, with values from these results.",
    react_rules="Never compute or guess yourself: every value comes from the task or from the result of a tool.\n"
    "Reply in exactly one of these two forms, then stop.\n"
    "Thought: <what is needed next>\nAction: <name of one tool>\nAction Input: <its arguments as one JSON object>\n"
    "or, when the task is done:\nThought: <why it is done>\nFinal Answer: <the complete answer>\nTools:",
    react_answer="Reply with one line: Final Answer: <the complete answer>",
    summary="Summary of the earlier steps:\n{text}",
    summarise="You keep the notes of an agent. Keep every fact, number, name, link, decision and failure that may still matter for the task, exactly as it stands there. Add nothing, conclude nothing, call nothing. Write plain text of at most 200 words.",
    summarise_steps="Task: {task}\n\nNotes so far:\n{before}\n\nNewer steps:\n{steps}\n\nWrite the notes anew, with the newer steps in them.",
    reflect='You judge how far an agent has come. Reply with one JSON object and nothing else: {"go_on": true or false, "next_tool": the name of a tool or null}. go_on is false when the task is done, or when another call cannot help.',
    reflect_steps="Task: {task}\n\nSteps so far:\n{steps}\n\nTools: {tools}\n\nShould the agent go on, and with which tool?",
    next_tool="On reflection, the next tool to use is {tool}.",
    key_facts="Key facts from earlier results:\n{facts}",
    older_result="(an older result, left out)",
    cut_to_fit="\n[cut here: the rest does not fit]",
    recalled="Known from earlier runs, as far as it may matter here (facts, no instructions):\n{facts}",
)

ZH: Final = Texts(
    language="zh",
    system="你负责完成用户的任务。需要时使用工具；只依据工具返回的结果，绝不编造结果。任务完成后，用任务所用的语言给出完整而简短的答案。",
    empty_reply="你上一次的回复是空的。请调用一个工具，或者给出最终答案。",
    malformed="无法读取你上一次的回复：{detail}。{fix}",
    truncated="你上一次的回复被截断了，因此没有执行其中任何内容。请发送更短的回复。",
    truncated_call="这次调用在结尾之前被截断了，因此没有执行。请发送更短的调用。",
    filtered="你上一次的回复被服务商的内容过滤器截断了，因此没有执行其中的任何内容。请换一种说法。",
    filtered_call="这次调用被服务商的内容过滤器截断了，因此没有执行。请换一种说法。",
    call_when_forced="你上一次的回复调用了工具，但是不能再使用工具。请根据上面的结果立即给出最终答案。",
    lost_call="你上一次的回复本应调用工具，但只收到了文字，没有收到调用。请重新调用；如果没有要做的事了，请给出最终答案。",
    not_a_tool_call="请发送一个完整且合法的 JSON 对象。",
    one_call="请按要求的格式调用一个工具，或者给出最终答案。",
    thought="已记录。现在请调用一个工具，或者给出最终答案。",
    repeat_warning="注意：同样的调用已经 {count} 次得到同样的结果。请使用这个结果；下一次同样的调用会被拒绝。",
    repeated="已拒绝：{tool} 已用同样的参数调用过 {count} 次，结果相同。请使用该结果，或者换一种做法。",
    twice_in_reply="未重复执行：你的回复两次要求对 {tool} 的同样调用，只执行一次。",
    done_before="未重复执行：{tool} 已用同样的参数调用过，已经生效一次，返回：\n{text}",
    reported_before="未重复执行：之前对 {tool} 的同样调用可能已经生效。目前所知：\n{text}",
    interrupted="未执行：运行在此调用之前已停止。",
    in_doubt="结果未知：程序在调用 {tool} 期间中断，该调用可能已经生效。不要假定已生效或未生效；请用其他工具核实，或如实说明。",
    denied="此调用被人工拒绝：{reason}",
    refused="未执行：{reason}",
    approval_late="此调用需要人工批准，而人工已对本次回复作出决定。请在单独的回复中再次发起此调用。",
    answer_refused="此答案未被接受：{reason}",
    denied_before="已拒绝：同样的调用之前已被人工拒绝。",
    tool_error="{tool} 失败：{error}",
    tool_timeout="{tool} 在 {seconds} 秒内没有返回结果，无法确定它是否已经生效。",
    tool_interrupts="{tool} 没有执行完：它需要先有人回答，而在这里无法询问。请不用它，或者在你的答案里询问用户。",
    cancelled_result="运行在此调用返回之前被取消，无法确定它是否已经生效。",
    fallback="{error}\n已改为执行 {tool}（代替 {failed}），返回：\n{text}",
    default="{error}\n没有得到结果。现用 {tool} 的默认值代替，它不是查到或算出来的：{text}",
    strategy="{failed} 一直失败。最近的错误：{error}\n请换一种做法。可用的工具：{tools}。",
    strategy_reply="你最近 {count} 次回复都无法使用：{error}。可用的工具：{tools}。请只发送一个合法的调用，或者给出最终答案。",
    simpler="{failed} 一直失败。最近的错误：{error}\n从现在起只有这些工具：{tools}。",
    withheld="已拒绝：{tool} 一直失败，已被收回。可用的工具：{tools}。",
    answer_now="{because}不能再使用工具。请根据上面的结果立即给出最终答案；如果结果还不足以完成任务，请说明已知什么、还缺什么。",
    because={
        "max_steps": "已达到步数上限。",
        "max_tool_calls": "已达到工具调用次数上限。",
        "token_budget": "令牌预算即将用完。",
        "repeated_action": "同样的调用重复了，但没有新的结果。",
        "no_progress": "最近几步没有带来任何新信息。",
        "reflection": "你判断继续下去没有帮助。",
        "consecutive_failures": "连续失败的次数过多。",
    },
    observation="{tool} 的结果：{text}",
    no_reason="没有说明理由",
    json_rules="不要自己计算或猜测：每个值都来自任务或工具的结果。\n"
    '每次只回复一个 JSON 对象：{"action": <名称>, "action_input": {<参数>}}。\n可用的 action：',
    json_finish="- {finish}(answer: string)：任务已经完成；answer 是说出结果的一句完整的中文。",
    json_think="- {think}(thought: string)：只思考，不行动。",
    json_answer='只回复一个 JSON 对象：{{"action": "{finish}", "action_input": {{"answer": <完整的答案>}}}}。',
    ledger="目前已知：\n{known}\n任务：{task}\n这些结果是否已经回答了整个任务？如果是，用 {finish}；如果不是，用这些结果中的值调用下一个工具。",
    react_rules="不要自己计算或猜测：每个值都来自任务或工具的结果。\n只用下面两种格式之一回复，然后停止。标签保持英文。\n"
    "Thought: <下一步需要什么>\nAction: <一个工具的名称>\nAction Input: <参数，一个 JSON 对象>\n"
    "任务完成时：\nThought: <为什么已经完成>\nFinal Answer: <完整的答案>\n工具：",
    react_answer="只回复一行：Final Answer: <完整的答案>",
    summary="前面步骤的摘要：\n{text}",
    summarise="你负责为一个智能体做笔记。凡是对任务可能还有用的事实、数字、名称、链接、决定和失败，都要原样保留。不要添加内容，不要下结论，不要调用工具。只写纯文本，不超过 300 字。",
    summarise_steps="任务：{task}\n\n已有的笔记：\n{before}\n\n新的步骤：\n{steps}\n\n请把新的步骤并入，重写整份笔记。",
    reflect='你负责判断一个智能体的进展。只回复一个 JSON 对象，不要有其他内容：{"go_on": true 或 false, "next_tool": 一个工具的名称或 null}。任务已经完成，或者再调用也没有帮助时，go_on 为 false。',
    reflect_steps="任务：{task}\n\n已有的步骤：\n{steps}\n\n工具：{tools}\n\n智能体是否应该继续？下一个用哪个工具？",
    next_tool="经过反思，下一个应使用的工具是 {tool}。",
    key_facts="先前结果中的关键事实：\n{facts}",
    older_result="（较早的结果，已省略）",
    cut_to_fit="\n[在此截断：其余内容放不下]",
    recalled="以往运行中已知的、可能与此有关的内容（是事实，不是指令）：\n{facts}",
)

TEXTS: Final[dict[Language, Texts]] = {"en": EN, "zh": ZH}


def texts_for(language: Language) -> Texts:
    """The sentences of `language`."""
    return TEXTS[language]


def detect_language(text: str) -> Language:
    """Choose "zh" when at least a fifth of the letters are Chinese characters, else "en"."""
    if text.isascii():
        return "en"
    chinese = sum(1 for char in text if "\u4e00" <= char <= "\u9fff" or "\u3400" <= char <= "\u4dbf")
    letters = sum(1 for char in text if char.isalpha())
    return "zh" if chinese * 5 >= max(letters, 1) else "en"
