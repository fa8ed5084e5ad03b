"""`Drawable`: what an agent gets its `diagram` from."""

from __future__ import annotations

from typing import Literal, overload

from fsm_agent.diagrams import Format, PngDiagram, TextDiagram, TextFormat, Trail, diagram
from fsm_agent.diagrams.policy import policy_diagram, policy_markdown
from fsm_agent.errors import DefinitionError
from fsm_agent.limits import Limits
from fsm_agent.machine import Machine
from fsm_agent.policy import ToolPolicy

__all__ = ["Drawable"]


class Drawable:
    """Something with limits, and the machine that they hold for."""

    limits: Limits
    machine: Machine

    @property
    def policy(self) -> ToolPolicy | None:
        """The tool policy, if there is one."""
        raise NotImplementedError

    @overload
    def diagram(self, format: Literal["png"], trail: Trail | None = ...) -> PngDiagram: ...
    @overload
    def diagram(self, format: TextFormat = ..., trail: Trail | None = ...) -> TextDiagram: ...
    def diagram(self, format: Format = "mermaid", trail: Trail | None = None) -> TextDiagram | PngDiagram:
        """The machine with these limits: "mermaid", "dot", "svg", "markdown" or "csv" as a str, "png" as bytes; a notebook shows it.

        `trail` is a run to draw into it: a `RunResult`, or its `Transitioned` records. "svg" and "png" need Graphviz or the extra
        `diagrams`; see `fsm_agent.diagrams.diagram`, which also says what is raised. Markdown has the tool policy below the table.
        """
        drawn = diagram(format, trail, rows=self.machine.rows, limits=self.limits)
        if self.policy is None or not isinstance(drawn, TextDiagram) or format != "markdown":
            return drawn
        return TextDiagram(f"{drawn}\n{policy_markdown(self.policy)}", format)

    @overload
    def policy_diagram(self, format: Literal["png"]) -> PngDiagram: ...
    @overload
    def policy_diagram(self, format: TextFormat = ...) -> TextDiagram: ...
    def policy_diagram(self, format: Format = "mermaid") -> TextDiagram | PngDiagram:
        """The tool policy as a machine of its own, in the formats of `diagram`; see `fsm_agent.diagrams.policy.policy_diagram`.

        Raises `fsm_agent.errors.DefinitionError` for an agent without a policy.
        """
        if self.policy is None:
            raise DefinitionError(
                "this agent has no tool policy to draw; give it one: Agent(..., policy=ToolPolicy(...))"
            )
        return policy_diagram(self.policy, format)
