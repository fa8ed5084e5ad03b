"""Diagrams of a tool policy: the machine that its rules are, drawn like the loop's own. Pure functions of the rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, overload

from fsm_agent.diagrams.formats import check_format, drawn
from fsm_agent.diagrams.graphviz import Engine
from fsm_agent.diagrams.parts import Arrow, Box, Line, Picture, Place, Way
from fsm_agent.diagrams.tables import in_cell, quoted
from fsm_agent.diagrams.value import Format, PngDiagram, TextDiagram, TextFormat
from fsm_agent.policy import ToolPolicy
from fsm_agent.policy.machine import Move, PolicyMachine, machines

__all__ = ["policy_diagram", "policy_markdown"]

_COLUMNS = ("where", "may be called", "call", "leads to")


@overload
def policy_diagram(policy: ToolPolicy, format: Literal["png"], *, engine: Engine | None = ...) -> PngDiagram: ...
@overload
def policy_diagram(policy: ToolPolicy, format: TextFormat = ..., *, engine: Engine | None = ...) -> TextDiagram: ...
def policy_diagram(
    policy: ToolPolicy, format: Format = "mermaid", *, engine: Engine | None = None
) -> TextDiagram | PngDiagram:
    """The policy as "mermaid", "dot", "svg", "markdown" or "csv" (a str that a notebook shows), or as "png" (bytes that it shows).

    A box is a position, with the tools of the policy that may be called there; an arrow is a call that leads on. Calls that change nothing
    have none. Rules that share no tool are machines beside each other, as are the rules of a group with more than 40 positions.

    Raises `fsm_agent.errors.DefinitionError` for a format that there is not, or cannot be drawn here.
    """
    check_format(format)
    if format == "markdown":
        return TextDiagram(policy_markdown(policy), format)
    found = machines(policy.rules)
    if format == "csv":
        return TextDiagram(_as_csv(found), format)
    return drawn(_pictured(found), format, engine)


def policy_markdown(policy: ToolPolicy) -> str:
    """The rules in words, and a table of positions and calls."""
    lines = ["Tool policy:", "", *(f"- {in_cell(rule.sentence())}" for rule in policy.rules), ""]
    lines += [f"| {' | '.join(_COLUMNS)} |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(map(in_cell, row))} |" for one in machines(policy.rules) for row in _rows(one)]
    return "\n".join(lines) + "\n"


def _as_csv(found: Sequence[PolicyMachine]) -> str:
    rows = [_COLUMNS, *(row for one in found for row in _rows(one))]
    return "".join(f"{','.join(map(quoted, row))}\n" for row in rows)


def _rows(machine: PolicyMachine) -> list[tuple[str, str, str, str]]:
    """A row for each move; for a position that none leaves, one without a call."""
    rows = []
    for number, name in enumerate(machine.names):
        free = ", ".join(machine.free[number]) or "none of them"
        leaving = [move for move in machine.moves if move.source == number]
        rows += [(name, free, move.label, machine.names[move.target]) for move in leaving] or [(name, free, "", "")]
    return rows


def _pictured(found: Sequence[PolicyMachine]) -> Picture:
    starts, boxes, arrows = [], [], []
    for turn, machine in enumerate(found):
        ids = [f"s_{turn}_{number}" for number in range(len(machine.names))]
        starts.append(ids[0])
        boxes += [_box(ids[number], machine, number) for number in range(len(ids))]
        between: dict[tuple[int, int], list[Move]] = {}
        for move in machine.moves:
            between.setdefault((move.source, move.target), []).append(move)
        arrows += [_arrow(ids, moves, machine) for moves in between.values()]
    return Picture(starts=tuple(starts), boxes=tuple(boxes), arrows=tuple(arrows))


def _box(name: str, machine: PolicyMachine, number: int) -> Box:
    free = machine.free[number]
    told = f"may be called: {', '.join(free)}" if free else "nothing may be called"
    return Box(id=name, name=machine.names[number], place=Place.STATE if free else Place.END, told=(told,))


def _arrow(ids: Sequence[str], moves: Sequence[Move], machine: PolicyMachine) -> Arrow:
    failed = all(move.outcome == "failed" for move in moves)
    return Arrow(
        source=ids[moves[0].source],
        target=ids[moves[0].target],
        lines=tuple(Line((move.label,)) for move in moves),
        way=Way.DETOUR if failed else Way.MAIN,
        hint="\n".join(rule.sentence() for rule in machine.rules if any(move.tool in rule.tools for move in moves)),
    )
