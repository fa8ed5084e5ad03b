"""Feeds mutated model replies to every reader of text and checks that each keeps its promises.

    python -m tests.benchmarks.fuzz_replies --n 1000000 --seed 1

Promises: no text raises; valid JSON is read as `json` reads it, without repairs; what is read was written and closed in
the text; an object that was cut is never read; a fault can be shown. A broken promise is printed and exits with 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from fsm_agent.dialects.react_text import parse_react
from fsm_agent.dialects.repair import Malformed, Parsed, parse_arguments, parse_call_text, parse_object, split_thinking

NAMES: Final = frozenset({"lookup", "now", "pay"})

OBJECTS: Final = (
    "{}",
    '{"q":1}',
    '{"city": "Oslo", "days": 3, "units": null}',
    '{"a": [1, 2.5, -3e2, {"b": [true, false, null]}], "c": {"d": {}}}',
    '{"code": "use `print` here", "text": "```json\\n{}\\n```"}',
    '{"html": "</tool_call> } {", "quote": "She said “hi”", "path": "C:\\\\temp"}',
    '{"think": "<think>x</think>", "label": "\\nObservation: no\\nFinal Answer: no"}',
    '{"u": "\\u00e9\\ud83d\\ude00", "zh": "查询，天气：北京", "n": 12345678901234567890}',
    '{\n  "name": "lookup",\n  "arguments": {"q": "x", "limit": 10}\n}',
    '{"action": "lookup", "action_input": {"q": "it\'s"}}',
    '{"function": {"name": "pay", "arguments": "{\\"to\\": \\"bob\\", \\"amount\\": 1}"}}',
    '{"tool_calls": [{"name": "now", "arguments": {}}, {"name": "pay", "parameters": {"amount": 1e3}}]}',
    "{'a': 'b', 'c': True, 'd': None, 'e': \"it's\", 'f': 'say \"hi\"'}",
    "{“city”: “Oslo”, “n”: 1,}",
    '{city: "Oslo", "raw": "two\nlines", "esc": "it\\\'s"}',
    '{"a"：1，"b"：[1, 2,],} ',
    '{"a": 1 /* one */, // two\n "b": 2}',
)
WRAPPINGS: Final = (
    *[("", "")] * 4,
    ("```json\n", "\n```"),
    ("```\r\n", "\r\n```  "),
    ("Sure! ", " Hope that helps."),
    ("Use {x} and `y`.\n```sh\nls ${HOME}\n```\n", "}} or {so"),
    ("<think>First { then\n</think>\n", ""),
    ("reasoning\n</think>\n\n", ""),
    ("<tool_call>", "</tool_call>"),
    ("[TOOL_CALLS][", "]"),
    ("<function=lookup>", "</function>"),
    ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>lookup\n```json\n", "\n```<｜tool▁call▁end｜>"),
    ("<|tool_call_begin|>functions.pay:0<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    ("<tool_call>lookup\n<arg_key>q</arg_key>\n<arg_value>", "</arg_value></tool_call>"),
    ('<function_calls><invoke name="pay"><parameter name="to">', "</parameter></invoke></function_calls>"),
    ("Thought: so\nAction: lookup\nAction Input: ", "\nObservation: made up\nFinal Answer: no"),
    ("**Action:** pay\n**Action Input:** ```json\n", "\n```"),
    ("\ufeff", "}"),
)
PIECES: Final = (
    *"{}[]\",:'“”„‘’«»＂\\\n\r\t `~<>/*#;，：.-+0123456789eE",
    *(
        "```",
        "```json\n",
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "//",
        "/*",
        "*/",
    ),
    *(
        "true",
        "null",
        "None",
        "NaN",
        "Infinity",
        "1e999",
        "9" * 450,
        "\\u",
        "\\ud800",
        "\\x41",
        "\\'",
        '\\"',
        "\x00",
        "\x1b",
    ),
    *(
        "\ud800",
        "\ufeff",
        "\u00a0",
        "\u200b",
        "\u2028",
        "Thought:",
        "\nAction:",
        "\nAction Input:",
        "\nObservation:",
        "{{",
        "}}",
    ),
    *(
        '"name":',
        '"arguments":',
        '"lookup"',
        '{"name":"pay","arguments":{}}',
        '{"a":',
        "{'a':",
        "{“a”:",
        "[" * 70,
        '{"a":' * 70,
    ),
)

Read = Parsed | Malformed


def accepts(value: dict[str, Any]) -> bool:
    """The call shape that is looked for in prose."""
    return "name" in value or "action" in value or "q" in value


def readings(text: str, label: bool) -> Iterator[tuple[str, Read]]:
    """What every reader makes of a text."""
    yield "arguments", parse_arguments(text, truncated=label)
    yield "object", parse_object(text, accept=accepts, truncated=label)
    for call in parse_call_text(text, registered=NAMES) or ():
        yield "call_text", call.arguments
    reply = parse_react(text, truncated=label)
    if (reply.action is not None and reply.answer is not None) or (
        reply.action is not None and reply.arguments is None
    ):
        raise AssertionError("a reply is an action with arguments, or an answer")
    if reply.arguments is not None:
        yield "react", reply.arguments
    split_thinking(text)


def mutated(chance: random.Random) -> str:
    """A wrapped object with up to four changes, any of which may cut, repeat, splice or insert."""
    before, after = chance.choice(WRAPPINGS)
    text = before + chance.choice(OBJECTS) + after
    for _ in range(chance.randrange(5)):
        at = chance.randrange(len(text) + 1)
        to = min(len(text), at + chance.randrange(12))
        change = chance.randrange(6)
        if change == 0:
            text = text[:at] + text[to:]
        elif change == 1:
            text = text[:at] + text[at:to] + text[at:]
        elif change == 2:
            text = text[:at]
        elif change == 3:
            text = text[:at] + chance.choice(OBJECTS) + text[at:]
        else:
            text = text[:at] + chance.choice(PIECES) + text[to if change == 4 else at :]
    return text


def cut(chance: random.Random) -> str:
    """A wrapped object that stops before its own last bracket."""
    before, _ = chance.choice(WRAPPINGS)
    written = chance.choice(OBJECTS).rstrip()
    return before + written[: chance.randrange(1, len(written))]


def leaves(value: Any) -> Iterator[Any]:
    """The keys and scalars of a value, and one None for each object and list."""
    if isinstance(value, dict):
        yield None
        for key, item in value.items():
            yield key
            yield from leaves(item)
    elif isinstance(value, list):
        yield None
        for item in value:
            yield from leaves(item)
    elif value is not None and not isinstance(value, bool):
        yield value


def broken_promise(text: str, found: Read) -> str | None:
    """Which promise a reading breaks, if any."""
    if isinstance(found, Malformed):
        shown = found.detail.isprintable() and len(found.detail.encode()) <= 240
        return None if shown else "the detail cannot be shown"
    json.dumps(found.value, ensure_ascii=False, allow_nan=False).encode()
    written = list(leaves(found.value))
    if found.value and written.count(None) > text.count("}") + text.count("]"):
        return "something was closed that was not closed"
    escaped = "\\u" in text or "\\x" in text
    plain = text.replace("\\'", "'")
    for leaf in () if escaped else written:
        if isinstance(leaf, str) and leaf.isalnum() and leaf.isascii() and leaf not in plain:
            return "a word was invented"
        if isinstance(leaf, int) and str(leaf) not in text:
            return "a number was invented"
    return None


def differs_from_json(text: str, found: Read) -> bool:
    """Whether arguments that `json` reads as an object were read as another one, or changed on the way."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return isinstance(found, Parsed) and not found.repairs and bool(text.strip())
    if isinstance(found, Malformed):
        return isinstance(value, dict) and found.kind in {"truncated", "missing", "ambiguous", "not_object"}
    return isinstance(value, dict) and (found.repairs != () or repr(found.value) != repr(value))


def check(text: str, label: bool, was_cut: bool, counts: Counter[str]) -> Iterator[str]:
    """The promises that the readers break on one text."""
    for reader, found in readings(text, label):
        kind = found.kind if isinstance(found, Malformed) else "repaired" if found.repairs else "strict"
        counts[f"{reader:10} {kind}"] += 1
        for repair in found.repairs:
            counts[f"{'repair':10} {repair}"] += 1
        promise = broken_promise(text, found)
        if promise is not None:
            yield f"{reader}: {promise}"
        if was_cut and isinstance(found, Parsed):
            yield f"{reader}: an object that was cut was read"
        if reader == "arguments" and differs_from_json(text, found):
            yield f"{reader}: not what json reads"


def run(n: int, seed: int, say: Callable[[str], object] = print) -> tuple[int, Counter[str]]:
    """Check `n` texts made from `seed`. Returns how many promises were broken, and what was counted."""
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    faults = 0
    for index in range(n):
        was_cut = index % 4 == 0
        text = cut(chance) if was_cut else mutated(chance)
        label = chance.random() < 0.2
        try:
            broken = list(check(text, label, was_cut, counts))
        except Exception as error:  # that none escapes is what is checked
            broken = [f"raised {type(error).__name__}: {error}"]
        for promise in broken:
            faults += 1
            say(f"#{index} {promise}\n    label={label} {text!r}")
    return faults, counts


def main() -> int:
    """Run from the command line."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--n", type=int, default=100_000, help="how many texts (default: 100000)")
    options.add_argument("--seed", type=int, default=1, help="what they are made from (default: 1)")
    given = options.parse_args()
    begin = time.perf_counter()
    faults, counts = run(given.n, given.seed)
    for name, count in sorted(counts.items()):
        print(f"{name:40} {count:>10}")
    print(f"{given.n} texts, seed {given.seed}, {faults} broken promises, {time.perf_counter() - begin:.0f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
