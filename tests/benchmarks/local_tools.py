"""Plain typed functions over small data in memory: the tools of the small tasks for local models.

The data is invented, so that no model can answer from what it has read.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from datetime import date
from typing import Any, TypeVar

_V = TypeVar("_V")

_STOCK = {"keyboard": 14, "mouse": 52, "monitor": 7, "lamp": 31, "desk": 3, "chair": 19}
_PRICES = {"keyboard": 45.0, "mouse": 18.5, "monitor": 210.0, "lamp": 27.0, "desk": 340.0, "chair": 125.0}
_ORDERS = {
    "A17": {"status": "shipped", "customer": "Nadia Brandt"},
    "B42": {"status": "cancelled", "customer": "Tom Okafor"},
    "C08": {"status": "waiting for payment", "customer": "Iris Holm"},
}
_EMAILS = {
    "nadia brandt": "nadia@brandt.example",
    "tom okafor": "tokafor@mail.example",
    "iris holm": "iris@holm.example",
}
_CAPITALS = {"veloria": "Tamsin", "ostrava republic": "Kellmar", "norland": "Brightwater", "sundra": "Palewa"}
_WEATHER = {"tamsin": "rain, 11 C", "kellmar": "snow, -4 C", "brightwater": "sunny, 23 C", "palewa": "fog, 16 C"}
_POPULATION = {"tamsin": 412_000, "kellmar": 88_500, "brightwater": 1_250_000, "palewa": 67_300}
_RATES = {"EUR": 1.0, "USD": 1.1, "GBP": 0.8, "CNY": 8.0}
_MANAGERS = {"nadia brandt": "Olga Reyes", "tom okafor": "Sam Lindqvist", "iris holm": "Olga Reyes"}
_ROOMS = {"design": "4.12", "finance": "2.07", "support": "1.33"}
_LEADERS = {"design": "Pia Moreau", "finance": "Karl Voss", "support": "Lena Abiola"}
_PHONES = {"pia moreau": "555-0143", "karl voss": "555-0178", "lena abiola": "555-0191"}
_STOCK_ZH = {"苹果": 36, "香蕉": 58, "牛奶": 12, "面包": 25}
_PRICES_ZH = {"苹果": 4.5, "香蕉": 3.0, "牛奶": 12.0, "面包": 8.0}
_WEATHER_ZH = {"杭州": "小雨,18度", "成都": "多云,22度", "哈尔滨": "大雪,零下15度"}
_ORDERS_ZH = {"D100": "已发货", "D200": "待付款", "D300": "已取消"}
_PHONES_ZH = {"王芳": "8801", "李强": "8815", "赵敏": "8842"}
_CHIEFS_ZH = {"财务部": "李强", "市场部": "赵敏", "研发部": "王芳"}
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def look_up(table: dict[str, _V], key: str, kind: str) -> _V:
    """The value under `key`, without regard to case. Raises `ValueError`, which names the keys that there are."""
    for name, value in table.items():
        if name.casefold() == key.strip().casefold():
            return value
    raise ValueError(f"unknown {kind} {key!r}; known: {', '.join(table)}")


def tidy(value: float) -> float:
    """A number without the noise of floats, whole where it is whole."""
    rounded = round(value, 6)
    return int(rounded) if rounded == int(rounded) else rounded


def add(a: float, b: float) -> float:
    """Add two numbers."""
    return tidy(a + b)


def subtract(a: float, b: float) -> float:
    """Subtract b from a."""
    return tidy(a - b)


def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return tidy(a * b)


def divide(a: float, b: float) -> float:
    """Divide a by b."""
    return tidy(a / b)


def calculate(expression: str) -> float:
    """Evaluate an arithmetic expression with + - * / and parentheses."""

    def value(part: ast.expr) -> float:
        if isinstance(part, ast.Constant) and isinstance(part.value, int | float):
            return part.value
        if isinstance(part, ast.BinOp) and type(part.op) in _OPERATORS:
            return float(_OPERATORS[type(part.op)](value(part.left), value(part.right)))
        if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.USub):
            return -value(part.operand)
        raise ValueError(f"not an arithmetic expression: {expression!r}")

    return tidy(value(ast.parse(expression, mode="eval").body))


def get_stock(product: str) -> int:
    """Number of pieces of a product in the warehouse."""
    return look_up(_STOCK, product, "product")


def get_price(product: str) -> float:
    """Price of one piece of a product, in EUR."""
    return look_up(_PRICES, product, "product")


def get_order(order_id: str) -> dict[str, str]:
    """Status and customer of an order."""
    return look_up(_ORDERS, order_id, "order")


def get_email(person: str) -> str:
    """Email address of a person."""
    return look_up(_EMAILS, person, "person")


def get_manager(person: str) -> str:
    """Name of the manager of a person."""
    return look_up(_MANAGERS, person, "person")


def get_capital(country: str) -> str:
    """Capital city of a country."""
    return look_up(_CAPITALS, country, "country")


def get_weather(city: str) -> str:
    """Current weather in a city."""
    return look_up(_WEATHER, city, "city")


def get_population(city: str) -> int:
    """Number of inhabitants of a city."""
    return look_up(_POPULATION, city, "city")


def convert_currency(amount: float, source: str, target: str) -> float:
    """Convert an amount of money from one currency to another; currencies are codes of three letters."""
    rate = look_up(_RATES, target, "currency") / look_up(_RATES, source, "currency")
    return tidy(amount * rate)


def get_room(team: str) -> str:
    """Room number of a team."""
    return look_up(_ROOMS, team, "team")


def get_leader(team: str) -> str:
    """Name of the person who leads a team."""
    return look_up(_LEADERS, team, "team")


def get_phone(person: str) -> str:
    """Phone number of a person."""
    return look_up(_PHONES, person, "person")


def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


def reverse_text(text: str) -> str:
    """Reverse a text, letter by letter."""
    return text[::-1]


def days_between(start: str, end: str) -> int:
    """Number of days from one date to another, both written as YYYY-MM-DD."""
    return (date.fromisoformat(end) - date.fromisoformat(start)).days


def query_stock(product: str) -> int:
    """查询商品的库存数量."""
    return look_up(_STOCK_ZH, product, "商品")


def query_price(product: str) -> float:
    """查询商品的单价(元)."""
    return look_up(_PRICES_ZH, product, "商品")


def query_weather(city: str) -> str:
    """查询城市的天气."""
    return look_up(_WEATHER_ZH, city, "城市")


def query_order(order_id: str) -> str:
    """查询订单的状态."""
    return look_up(_ORDERS_ZH, order_id, "订单")


def query_chief(department: str) -> str:
    """查询部门的负责人姓名."""
    return look_up(_CHIEFS_ZH, department, "部门")


def query_phone(name: str) -> str:
    """查询员工的分机号."""
    return look_up(_PHONES_ZH, name, "员工")
