"""Reads the object that a text is, or holds: strictly if it can, else with repairs that are named."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from fsm_agent.dialects.repair.reader import Break, Span, read_value
from fsm_agent.dialects.repair.scan import objects, starts_json
from fsm_agent.dialects.repair.strict import Value, checked, strict_value
from fsm_agent.dialects.repair.thinking import split_thinking
from fsm_agent.dialects.repair.vocabulary import MAX_CHARS, Fault, Malformed, Parsed, Repair

__all__ = ["parse_arguments", "parse_object", "value_of"]


def parse_arguments(text: object, *, truncated: bool = False, max_chars: int = MAX_CHARS) -> Parsed | Malformed:
    """The arguments of one call: from their text, from a mapping that a client library already parsed, or from None.

    `truncated` says that the reply was cut (its label, or the token cap reached). A complete text is read all the same,
    and the caller flags it; an empty one is then not "no arguments". A mapping is taken at its word: pass the text
    wherever it exists, because clients complete cut streams without telling.
    """
    if isinstance(text, Mapping):
        if truncated and not text:
            return Malformed(Fault.TRUNCATED, "the reply was cut off before the arguments")
        return checked(text)
    if text is not None and not isinstance(text, str):
        return Malformed(Fault.NOT_OBJECT, f"the arguments must be a JSON object, not {_shape(text)}")
    if text is None or not text.strip():
        return Malformed(Fault.TRUNCATED, "the reply was cut off before the arguments") if truncated else Parsed({})
    if len(text) > max_chars:
        return _too_large(text, max_chars)
    return _relabelled(_arguments(text), truncated)


def parse_object(
    text: str, *, accept: Callable[[dict[str, Any]], bool], truncated: bool = False, max_chars: int = MAX_CHARS
) -> Parsed | Malformed:
    """The first complete object of a text that `accept` takes, whatever prose, fences or objects are around it.

    An object inside another one, or inside the thinking, is never taken. `truncated` as for `parse_arguments`.
    """
    if not text.strip():
        return _relabelled(Malformed(Fault.MISSING, "the reply is empty"), truncated)
    if len(text) > max_chars:
        return _too_large(text, max_chars)
    return _relabelled(_object(text, accept), truncated)


def _arguments(text: str) -> Parsed | Malformed:
    strict = strict_value(text)
    if isinstance(strict, Malformed):
        return strict
    if strict is not None:
        return _as_arguments(strict.value, ())
    body, passed = _body(text)
    if not body:
        return Malformed(Fault.MISSING, "beside thinking and space there is no JSON object", passed)
    if body == "None":
        return Parsed({}, (*passed, Repair.PYTHON_LITERAL))
    if starts_json(body) and not body.startswith("{"):
        return _whole_value(body, passed)
    return _only_object(body, passed)


def _as_arguments(value: Any, repairs: tuple[str, ...]) -> Parsed | Malformed:
    if isinstance(value, dict):
        return Parsed(value, repairs)
    if value is None:
        return Parsed({}, repairs)
    if isinstance(value, str) and value.lstrip().startswith("{"):
        inner = _arguments(value)
        return replace(inner, repairs=(*repairs, Repair.DOUBLE_ENCODED, *inner.repairs))
    return Malformed(Fault.NOT_OBJECT, f"the arguments must be a JSON object, not {_shape(value)}", repairs)


def _whole_value(body: str, passed: tuple[str, ...]) -> Parsed | Malformed:
    """A list or a string that is all there is: an object inside a list is not the arguments."""
    found = read_value(body)
    if isinstance(found, Break):
        return _broken(found, passed)
    if body[found.end :].strip() and body.startswith('"'):
        return Malformed(Fault.NOT_JSON, "the text goes on after a JSON string", passed)
    decoded = value_of(found)
    if isinstance(decoded, Malformed):
        return decoded
    return _as_arguments(decoded.value, (*passed, *found.repairs))


def _only_object(body: str, passed: tuple[str, ...]) -> Parsed | Malformed:
    """The one object of a text. Several that are the same count as one; several that differ are refused."""
    found = list(objects(body))
    if body.startswith("{") and not (found and found[0].start == 0):
        return _nothing(body, passed)
    spans = [one for one in found if isinstance(one, Span)]
    for one in found:
        if isinstance(one, Break):
            return _broken(one, passed)
    if not spans:
        return _nothing(body, passed)
    if any(span.json != spans[0].json for span in spans):
        return Malformed(Fault.AMBIGUOUS, f"{len(spans)} different JSON objects where one is expected", passed)
    decoded = value_of(spans[0])
    if isinstance(decoded, Malformed):
        return decoded
    repeated = (Repair.REPEATED_OBJECT,) if len(spans) > 1 else ()
    repairs = (*passed, *spans[0].repairs, *_around(body, spans[0], spans[1:]), *repeated)
    return Parsed(decoded.value, repairs)


def _object(text: str, accept: Callable[[dict[str, Any]], bool]) -> Parsed | Malformed:
    strict = strict_value(text)
    if isinstance(strict, Malformed):
        return strict
    if strict is not None and isinstance(strict.value, dict) and accept(strict.value):
        return Parsed(strict.value)
    if strict is not None and isinstance(strict.value, str) and strict.value.lstrip().startswith("{"):
        inner = _object(strict.value, accept)
        return replace(inner, repairs=(Repair.DOUBLE_ENCODED, *inner.repairs))
    body, passed = _body(text)
    if body.startswith("[") and starts_json(body):
        whole = read_value(body)
        if isinstance(whole, Break) and whole.kind is Fault.TRUNCATED:
            return _broken(whole, passed)
    return _first_accepted(body, passed, accept)


def _first_accepted(body: str, passed: tuple[str, ...], accept: Callable[[dict[str, Any]], bool]) -> Parsed | Malformed:
    found = list(objects(body))
    for index, one in enumerate(found):
        if isinstance(one, Break):
            return _broken(one, passed)
        decoded = value_of(one)
        if isinstance(decoded, Malformed):
            return decoded
        if accept(decoded.value):
            later = [other for other in found[index + 1 :] if isinstance(other, Span)]
            repairs = [*passed, *one.repairs, *_around(body, one, later)]
            if later:
                same = all(other.json == one.json for other in later)
                repairs.append(Repair.REPEATED_OBJECT if same else Repair.FIRST_OF_SEVERAL)
            return Parsed(decoded.value, tuple(repairs))
    if found:
        return Malformed(Fault.MISSING, "no JSON object of the text has the expected keys", passed)
    nothing = _nothing(body, passed)
    return nothing if nothing.kind is Fault.TRUNCATED else replace(nothing, kind=Fault.MISSING)


_FENCE_HEAD: Final = re.compile(r"(`{3,}|~{3,}|`)[ \t]*[A-Za-z0-9_+.-]*")
_CLOSING: Final = "}])>;,. \t\r\n"


def _body(text: str) -> tuple[str, tuple[str, ...]]:
    """The text without its thinking and outer space, and the repairs that this was."""
    rest = split_thinking(text)[1]
    passed: tuple[str, ...] = () if rest == text else (Repair.THINKING,)
    body = rest.strip(" \t\r\n")
    bare = body.strip().strip("\ufeff\u200b\u2060").strip()
    return bare, passed if bare == body else (*passed, Repair.ODD_SPACE)


def _around(body: str, first: Span, later: Sequence[Span]) -> list[Repair]:
    """Names what stands before and behind the objects of a text."""
    before = body[: first.start].strip()
    ends = [first.end, *(span.end for span in later)]
    starts = [*(span.start for span in later), len(body)]
    after = "".join(body[end:start] for end, start in zip(ends, starts, strict=True)).strip()
    repairs: list[Repair] = []
    head = _FENCE_HEAD.fullmatch(before)
    if head is not None:
        closed = after.endswith(head.group(1))
        repairs.append(Repair.FENCE if closed else Repair.OPEN_FENCE)
        before, after = "", after.removesuffix(head.group(1)).strip() if closed else after
    if after and not before and not after.strip(_CLOSING):
        repairs.append(Repair.EXTRA_CLOSING)
        after = ""
    if before or after:
        repairs.append(Repair.PROSE)
    return repairs


def _broken(found: Break, passed: tuple[str, ...]) -> Malformed:
    return Malformed(found.kind, found.detail, passed)


def _nothing(body: str, passed: tuple[str, ...]) -> Malformed:
    first = read_value(body) if body.startswith("{") else None
    if isinstance(first, Break):
        return _broken(first, passed)
    head = _FENCE_HEAD.match(body)
    if head is not None and head.group(1) not in body[head.end() :]:
        return Malformed(Fault.TRUNCATED, "the text stops inside a code fence, before any JSON object", passed)
    return Malformed(Fault.NOT_JSON, f"there is no JSON object in the text of {len(body)} characters", passed)


def _relabelled(result: Parsed | Malformed, truncated: bool) -> Parsed | Malformed:
    """Of a reply known to be cut, a text that cannot be read is cut too: what is asked for next is a shorter one."""
    if truncated and isinstance(result, Malformed) and result.kind in _CUT_SHOWS_AS:
        return replace(result, kind=Fault.TRUNCATED, detail=f"the reply was cut off: {result.detail}")
    return result


_CUT_SHOWS_AS: Final = frozenset({Fault.NOT_JSON, Fault.AMBIGUOUS, Fault.MISSING})


def _too_large(text: str, max_chars: int) -> Malformed:
    return Malformed(Fault.TOO_LARGE, f"the text has {len(text)} characters, more than {max_chars}")


def _shape(value: Any) -> str:
    names = {list: "a list", str: "a string", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "a value of another type")


def value_of(span: Span) -> Value | Malformed:
    """The value of a span; its strict spelling is read by the strict reader, so the same bounds hold."""
    found = strict_value(span.json)
    return Malformed(Fault.NOT_JSON, "the text is not JSON") if found is None else found
