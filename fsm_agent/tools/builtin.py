"""Tools that come with the package: a calculator, files below a root, and demo data that needs no network."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from fsm_agent.tools.arithmetic import MAX_CHARS, evaluate
from fsm_agent.tools.file_tools import files
from fsm_agent.tools.spec import tool

__all__ = ["calculator", "files", "query_order", "web_search"]


@tool(idempotent=True, not_for="anything but numbers, nor for a sum that needs no tool")
def calculator(
    expression: Annotated[str, Field(min_length=1, max_length=MAX_CHARS, examples=["(1.5 + 2) * 3 ** 2"])],
    precision: Annotated[int | None, Field(ge=0, le=10)] = None,
) -> str:
    """Compute an arithmetic expression exactly.

    Args:
        expression: Numbers with + - * / // % ** and parentheses; abs, round, floor, ceil, min, max, sqrt, ln, log10,
            exp, sin, cos, tan; pi, e. No units, no thousands separators.
        precision: Decimal places to round to.
    """
    return evaluate(expression, precision)


_ORDERS: Final[dict[str, dict[str, Any]]] = {
    "SO-2024-001": {
        "status": "shipped",
        "customer": "Lin Wei",
        "total": "129.90",
        "currency": "EUR",
        "shipped_on": "2024-03-05",
        "items": [
            {"sku": "KB-87", "name": "keyboard", "quantity": 1, "price": "89.90"},
            {"sku": "MP-01", "name": "mouse pad", "quantity": 2, "price": "20.00"},
        ],
    },
    "SO-2024-002": {
        "status": "processing",
        "customer": "Ana Sousa",
        "total": "45.00",
        "currency": "EUR",
        "shipped_on": None,
        "items": [{"sku": "CB-2M", "name": "cable, 2 m", "quantity": 3, "price": "15.00"}],
    },
    "SO-2024-003": {
        "status": "cancelled",
        "customer": "Omar Haddad",
        "total": "310.00",
        "currency": "EUR",
        "shipped_on": None,
        "items": [{"sku": "MN-24", "name": "monitor, 24 inch", "quantity": 1, "price": "310.00"}],
    },
}


@tool(idempotent=True, not_for="changing an order, or finding one by customer")
def query_order(
    order_id: Annotated[str, Field(pattern=r"^SO-[0-9]{4}-[0-9]{3}$", examples=["SO-2024-001"])],
    include_items: bool = False,
) -> dict[str, Any]:
    """Look up one order: status, customer, total and, on request, its items (demo data).

    Args:
        order_id: SO-, the year, and three digits.
        include_items: Return the items too.
    """
    order = _ORDERS.get(order_id)
    if order is None:
        return {"order_id": order_id, "found": False}
    shown = {key: value for key, value in order.items() if include_items or key != "items"}
    return {"order_id": order_id, "found": True, **shown}


_PAGES: Final = (
    (
        "finite-state machine",
        "https://example.org/fsm",
        "A finite-state machine has 1 current state out of a fixed set.",
    ),
    ("paris population", "https://example.org/paris", "Paris had 2,102,650 inhabitants in 2023."),
    ("mount everest height", "https://example.org/everest", "Mount Everest is 8,849 m high (survey of 2020)."),
    ("speed of light", "https://example.org/light", "Light travels 299,792,458 m in a second in vacuum."),
)


@tool(idempotent=True, not_for="arithmetic; use calculator")
def web_search(
    query: Annotated[str, Field(min_length=1, max_length=200)],
    engine: Literal["google", "bing"] = "google",
    limit: Annotated[int, Field(ge=1, le=10)] = 3,
) -> list[dict[str, str]]:
    """Search a handful of stored pages (demo data, no network).

    Args:
        query: What to look for.
        engine: Kept for the shape of the call; both give the same.
        limit: Results at most.
    """
    words = set(query.lower().split())
    scored = sorted(
        ((len(words & set(title.split())), title, url, text) for title, url, text in _PAGES),
        key=lambda page: -page[0],
    )
    found = [{"title": title, "url": url, "text": text} for score, title, url, text in scored if score]
    return found[:limit]
