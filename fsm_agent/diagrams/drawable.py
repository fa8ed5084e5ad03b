"""`Drawable`: what an agent gets its `diagram` from."""

from __future__ import annotations

from typing import Literal, overload

from fsm_agent.context import Setup
from fsm_agent.diagrams import Format, PngDiagram, TextDiagram, TextFormat, Trail, diagram
from fsm_agent.diagrams.policy import policy_diagram, policy_markdown
from fsm_agent.errors import DefinitionError
from fsm_agent.machine import Machine

__all__ = ["Drawable"]


class Drawable:
    """Something that runs a machine with a setup."""

    setup: Setup
    machine: Machine

    @overload
    def diagram(self, format: Literal["png"], trail: Trail | None = ...) -> PngDiagram: ...
    @overload
    def diagram(self, format: TextFormat = ..., trail: Trail | None = ...) -> TextDiagram: ...
    def diagram(self, format: Format = "mermaid", trail: Trail | None = None) -> TextDiagram | PngDiagram:
        """The machine with these limits: "mermaid", "dot", "svg", "markdown" or "csv" as a str, "png" as bytes; a notebook shows it.

        `trail` is a run to draw into it: a `RunResult`, or its `Transitioned` records. "svg" and "png" need Graphviz or the extra
        `diagrams`; see `fsm_agent.diagrams.diagram`, which also says what is raised. Markdown has the tool policy below the table.
        """
        drawn = diagram(format, trail, rows=self.machine.rows, limits=self.setup.limits)
        policy = self.setup.policy
        if policy is None or not isinstance(drawn, TextDiagram) or format != "markdown":
            return drawn
        return TextDiagram(f"{drawn}\n{policy_markdown(policy)}", format)

    @overload
    def policy_diagram(self, format: Literal["png"]) -> PngDiagram: ...
    @overload
    def policy_diagram(self, format: TextFormat = ...) -> TextDiagram: ...
    def policy_diagram(self, format: Format = "mermaid") -> TextDiagram | PngDiagram:
        """The tool policy as a machine of its own, in the formats of `diagram`; see `fsm_agent.diagrams.policy.policy_diagram`.

        Raises `fsm_agent.errors.DefinitionError` for an agent without a policy.
        """
        if self.setup.policy is None:
            raise DefinitionError(
                "this agent has no tool policy to draw; give it one: Agent(..., policy=ToolPolicy(...))"
            )
        return policy_diagram(self.setup.policy, format)
