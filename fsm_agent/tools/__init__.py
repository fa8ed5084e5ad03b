"""Tools: what one is, the registry, strict validation, fingerprints of calls, and the built-in ones.

Importing this package imports pydantic and nothing of LangChain; `as_tool` does when it is given a LangChain tool.
"""

from __future__ import annotations

from fsm_agent.tools.builtin import calculator, files, query_order, web_search
from fsm_agent.tools.call import CallInfo, ToolRefusal, calling, current_call
from fsm_agent.tools.problems import render, unknown_tool
from fsm_agent.tools.registry import Registry, ToolStats
from fsm_agent.tools.results import SHORT_MARKER, Rendered, ToolResult, cut, render_result
from fsm_agent.tools.signature import canonical, digest
from fsm_agent.tools.spec import Invalid, Problem, Tool, Valid, as_tool, tool

__all__ = [
    "SHORT_MARKER",
    "CallInfo",
    "Invalid",
    "Problem",
    "Registry",
    "Rendered",
    "Tool",
    "ToolRefusal",
    "ToolResult",
    "ToolStats",
    "Valid",
    "as_tool",
    "calculator",
    "calling",
    "canonical",
    "current_call",
    "cut",
    "digest",
    "files",
    "query_order",
    "render",
    "render_result",
    "tool",
    "unknown_tool",
    "web_search",
]
