"""`--env-file`: settings and keys from a file, for what the environment does not set already."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from fsm_agent.errors import DefinitionError

__all__ = ["load_env_file", "parse_env"]

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DOUBLE_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}


def parse_env(text: str, *, source: str = "env file") -> dict[str, str]:
    r"""The variables in `text`: `NAME=value` lines, blank lines and comments.

    `export ` may stand before the name, `#` after a blank begins a comment. 'Single quotes' keep everything as it is,
    "double quotes" know `\n`, `\r`, `\t`, `\"` and `\\`. Nothing is expanded, and a value ends with its line.
    The last of two equal names counts.

    Raises `DefinitionError` that names `source` and the line, but never a value, which may be a key.
    """
    found: dict[str, str] = {}
    for number, raw in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        where = f"{source}, line {number}"
        name, equals, rest = re.sub(r"^export\s+", "", line).partition("=")
        if not equals or not _NAME.fullmatch(name.strip()):
            raise DefinitionError(f"{where}: not of the form NAME=value")
        found[name.strip()] = _value(rest.strip(), where)
    return found


def _value(text: str, where: str) -> str:
    if text.startswith("'"):
        value, quote, after = text[1:].partition("'")
        closed = bool(quote)
    elif text.startswith('"'):
        match = _DOUBLE_QUOTED.match(text)
        closed = match is not None
        value = _ESCAPE.sub(lambda one: _ESCAPES.get(one[1], one[1]), match[1]) if match else ""
        after = text[match.end() :] if match else ""
    else:
        return re.split(r"(?:^|\s)#", text, maxsplit=1)[0].rstrip()
    if not closed:
        raise DefinitionError(f"{where}: the quote is not closed")
    if after.strip() and not after.strip().startswith("#"):
        raise DefinitionError(f"{where}: something follows the closing quote")
    return value


def load_env_file(path: Path, environ: MutableMapping[str, str]) -> tuple[str, ...]:
    """Put the variables of `path` into `environ`, unless they are set there, and return the names that were put.

    A variable that is empty counts as one that is not set, as for `Limits.from_env`.

    Raises `DefinitionError` for a file that cannot be read, or a line that is none of `NAME=value`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise DefinitionError(f"--env-file {path}: {why}") from error
    new = {name: value for name, value in parse_env(text, source=str(path)).items() if not environ.get(name)}
    environ.update(new)
    return tuple(new)
