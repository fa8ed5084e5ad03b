"""The 200 tasks of the reliability benchmark: what is asked, the calls that a competent model makes, and the world they act on.

Everything is drawn from one seed. Four kinds, fifty of each: arithmetic, look-ups (some read a catalogue of 500 KB), files in several
steps, and orders. Writing a line and refunding an order are effects that count: doing them twice is as wrong as not doing them.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

__all__ = ["ADDING_UP", "BACKUPS", "HANG", "KINDS", "SIZES", "Step", "Stuck", "Task", "Trouble", "World", "tasks"]

KINDS: Final = ("arithmetic", "lookup", "files", "orders")
HANG: Final = 1.2
"""Seconds after which a call that hangs, and that nobody has given up, counts as stuck for ever."""
HUGE: Final = "\n".join(f"item {number:06d}: in stock, no remarks" for number in range(14_000))
PRICES: Final = {
    "tea": 37,
    "coffee": 52,
    "milk": 19,
    "bread": 44,
    "butter": 61,
    "rice": 28,
    "sugar": 17,
    "salt": 9,
    "pepper": 33,
    "honey": 85,
    "jam": 46,
    "oats": 23,
}
BACKUPS: Final = {
    "add": "add_offline",
    "price": "price_from_cache",
    "read_file": "read_copy",
    "find_order": "find_in_archive",
}
"""The tool that gives the same where the first one is down."""
ADDING_UP: Final = frozenset({"append_line", "refund"})
"""The tools whose effects add up: twice is not the same as once."""


SIZES: Final[Mapping[int, int]] = {1: 15, 2: 25, 3: 30, 4: 20, 5: 10}
"""One to five calls with their weights; about three on average."""
_PLACES: Final = ("north", "south", "east", "west", "hub", "dock", "yard", "pier", "gate", "depot", "annex")


class Trouble(StrEnum):
    """What is wrong with one tool for the time of one run."""

    NONE = "none"
    ONCE = "fails once"
    BACKED = "always fails, has a backup"
    HOPELESS = "always fails, and its backup too"
    HANGS = "hangs once"
    HANGS_BACKED = "always hangs, has a backup"


_CHANCES: Final = {
    Trouble.ONCE: 0.12, Trouble.BACKED: 0.05, Trouble.HOPELESS: 0.025, Trouble.HANGS: 0.04, Trouble.HANGS_BACKED: 0.015,
}  # fmt: skip


class Stuck(BaseException):
    """A call hung, and who made it was still waiting: without a time-out it would wait for ever."""


@dataclass(frozen=True)
class Step:
    """A call, and the text by which its result is known."""

    tool: str
    args: Mapping[str, Any]
    mark: str


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task. `chain`: a later result holds what the earlier ones gave, so that only the newest is needed.

    `files` and `orders` are the world before; `after` the files after, `refunds` the refunds that are due.
    """

    number: int
    kind: str
    text: str
    steps: tuple[Step, ...]
    value: str
    chain: bool
    files: Mapping[str, str] = field(default_factory=dict)
    orders: Mapping[str, int] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    refunds: tuple[tuple[str, int], ...] = ()
    trouble: Trouble = Trouble.NONE
    broken: str = ""

    @property
    def possible(self) -> bool:
        """Whether there is any way to do it."""
        return self.trouble is not Trouble.HOPELESS

    @property
    def huge(self) -> bool:
        """Whether one of its results has 500 KB."""
        return any(step.tool == "catalogue" for step in self.steps)

    @property
    def backup(self) -> str | None:
        """The way around the tool that is broken for good."""
        backed = self.trouble in {Trouble.BACKED, Trouble.HANGS_BACKED}
        return BACKUPS[self.broken] if backed else None


class World:
    """What the tools of one run act on, and what they did to it. `close` lets calls that still hang go."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.files = dict(task.files)
        self.refunds: list[tuple[str, int]] = []
        self._failed: set[str] = set()
        self._closed = threading.Event()

    def close(self) -> None:
        """The run is over."""
        self._closed.set()

    def right(self) -> bool:
        """Whether the world is as the task wants it, each effect there once."""
        return self.files == {**self.task.files, **self.task.after} and sorted(self.refunds) == sorted(
            self.task.refunds
        )

    def doubled(self) -> bool:
        """Whether a refund was made twice, or a line written twice."""
        effects: list[list[Any]] = [self.refunds, *(text.splitlines() for text in self.files.values())]
        return any(len(set(one)) < len(one) for one in effects)

    def tools(self) -> list[Callable[..., Any]]:
        """The functions of this kind of task, the backup among them."""
        made = {"arithmetic": self._sums, "lookup": self._look_ups, "files": self._files, "orders": self._orders}
        return made[self.task.kind]()

    def _troubled(self, tool: str) -> None:
        if tool == BACKUPS.get(self.task.broken) and self.task.trouble is Trouble.HOPELESS:
            raise ConnectionError(f"{tool} is down")
        if tool != self.task.broken:
            return
        first, trouble = tool not in self._failed, self.task.trouble
        self._failed.add(tool)
        if trouble is Trouble.HANGS_BACKED or (trouble is Trouble.HANGS and first):
            if not self._closed.wait(HANG):
                raise Stuck(tool)
        elif trouble in {Trouble.BACKED, Trouble.HOPELESS} or (trouble is Trouble.ONCE and first):
            raise ConnectionError(f"{tool} is down")

    def _sums(self) -> list[Callable[..., Any]]:
        def add(a: int, b: int) -> str:
            """Add two whole numbers."""
            self._troubled("add")
            return f"{a} + {b} = {a + b}"

        def add_offline(a: int, b: int) -> str:
            """Add two whole numbers when add is down."""
            self._troubled("add_offline")
            return f"{a} + {b} = {a + b}"

        def subtract(a: int, b: int) -> str:
            """Subtract b from a."""
            return f"{a} - {b} = {a - b}"

        def multiply(a: int, b: int) -> str:
            """Multiply two whole numbers."""
            return f"{a} * {b} = {a * b}"

        return [add, add_offline, subtract, multiply]

    def _look_ups(self) -> list[Callable[..., Any]]:
        def price(item: str) -> str:
            """The price of an item in cents."""
            self._troubled("price")
            return f"{item} costs {PRICES[item]} cents"

        def price_from_cache(item: str) -> str:
            """The price of an item in cents when price is down."""
            self._troubled("price_from_cache")
            return f"{item} costs {PRICES[item]} cents"

        def catalogue() -> str:
            """The whole catalogue: how many items it has, then each of them."""
            return f"the catalogue has 14000 items\n{HUGE}"

        return [price, price_from_cache, catalogue]

    def _files(self) -> list[Callable[..., Any]]:
        def read_file(name: str) -> str:
            """Read a text file."""
            self._troubled("read_file")
            return f"{name} holds: {self.files[name]}"

        def read_copy(name: str) -> str:
            """Read the copy of a text file when read_file is down."""
            self._troubled("read_copy")
            return f"{name} holds: {self.files[name]}"

        def write_file(name: str, content: str) -> str:
            """Write a text file, in place of what it held."""
            self.files[name] = content
            return f"wrote {name}"

        def append_line(name: str, line: str) -> str:
            """Add one line to the end of a text file."""
            self._troubled("append_line")
            self.files[name] = f"{self.files.get(name, '')}{line}\n"
            return f"added a line to {name}"

        return [read_file, read_copy, write_file, append_line]

    def _orders(self) -> list[Callable[..., Any]]:
        def find_order(order: str) -> str:
            """Look up an order: what was paid for it, in euros."""
            self._troubled("find_order")
            return f"order {order}: paid {self.task.orders[order]} euros"

        def find_in_archive(order: str) -> str:
            """Look up an order in the archive when find_order is down."""
            self._troubled("find_in_archive")
            return f"order {order}: paid {self.task.orders[order]} euros"

        def refund(order: str, euros: int) -> str:
            """Pay money back for an order."""
            self._troubled("refund")
            self.refunds.append((order, euros))
            return f"refunded {euros} euros for {order}"

        return [find_order, find_in_archive, refund]


def tasks(seed: int = 1, count: int = 200, sizes: Mapping[int, int] = SIZES) -> tuple[Task, ...]:
    """The tasks of `seed`, the four kinds in turn. `sizes` are the numbers of calls, up to 12, each with its weight."""
    makers = {"arithmetic": _arithmetic, "lookup": _lookup, "files": _filework, "orders": _ordering}
    found = []
    for number in range(count):
        draw = random.Random(f"{seed}/{number}")
        kind = KINDS[number % len(KINDS)]
        size = draw.choices(tuple(sizes), tuple(sizes.values()))[0]
        given = makers[kind](draw, size)
        trouble, broken = _trouble(draw, given["steps"])
        found.append(Task(number=number, kind=kind, trouble=trouble, broken=broken, **given))
    return tuple(found)


def _trouble(draw: random.Random, steps: tuple[Step, ...]) -> tuple[Trouble, str]:
    trouble = draw.choices((*_CHANCES, Trouble.NONE), (*_CHANCES.values(), 1 - sum(_CHANCES.values())))[0]
    used = [step.tool for step in steps]
    # What fails once may be an effect, which then has not happened; what fails for good is something with a backup.
    fit = [tool for tool in used if tool in BACKUPS or (trouble is Trouble.ONCE and tool in ADDING_UP)]
    return (trouble, draw.choice(fit)) if trouble is not Trouble.NONE and fit else (Trouble.NONE, "")


def _arithmetic(draw: random.Random, size: int) -> dict[str, Any]:
    value = draw.randrange(11, 90)
    said, steps = [f"Start with {value}."], []
    for place in range(size):
        tool = "add" if place == 0 else draw.choice(("add", "subtract", "multiply"))
        by = draw.randrange(2, 9) if tool == "multiply" else draw.randrange(11, 90)
        sign, result = {
            "add": ("+", value + by), "subtract": ("-", value - by), "multiply": ("*", value * by)
        }[tool]  # fmt: skip
        steps.append(Step(tool, {"a": value, "b": by}, f"{value} {sign} {by} = {result}"))
        said.append({"add": f"Add {by}.", "subtract": f"Subtract {by}.", "multiply": f"Multiply by {by}."}[tool])
        value = result
    text = f"{' '.join(said)} Use a tool for each step, and tell the last value."
    return {"text": text, "steps": tuple(steps), "value": str(value), "chain": True}


def _lookup(draw: random.Random, size: int) -> dict[str, Any]:
    items = draw.sample(sorted(PRICES), size)
    steps = [Step("price", {"item": item}, f"{item} costs {PRICES[item]} cents") for item in items]
    dearest = max(items, key=lambda item: PRICES[item])
    text = f"Which is the dearest of {', '.join(items)}, and what does it cost in cents?"
    value = str(PRICES[dearest])
    if draw.random() < 0.25:
        steps.insert(0, Step("catalogue", {}, "the catalogue has 14000 items"))
        text = f"How many items does the catalogue have? {text}"
    return {"text": text, "steps": tuple(steps), "value": value, "chain": False}


def _filework(draw: random.Random, size: int) -> dict[str, Any]:
    names = draw.sample(_PLACES[: max(size - 1, 5)], max(size - 1, 1))
    counts = {f"{name}.txt": draw.randrange(11, 90) for name in names}
    steps = [Step("read_file", {"name": name}, f"{name} holds: {count} parcels") for name, count in counts.items()]
    files, total = {name: f"{count} parcels" for name, count in counts.items()}, sum(counts.values())
    text = f"How many parcels are there in {', '.join(counts)} together?"
    after: dict[str, str] = {}
    if size > 1:
        line = f"total {total}"
        if draw.random() < 0.5:
            steps.append(Step("append_line", {"name": "log.txt", "line": line}, "added a line to log.txt"))
            text = f"{text} Add the line 'total <number>' to log.txt, and tell the number."
            files["log.txt"], after["log.txt"] = "opened\n", f"opened\n{line}\n"
        else:
            steps.append(Step("write_file", {"name": "total.txt", "content": line}, "wrote total.txt"))
            text = f"{text} Write 'total <number>' to total.txt, and tell the number."
            after["total.txt"] = line
    return {
        "text": text, "steps": tuple(steps), "value": str(total), "chain": False, "files": files, "after": after
    }  # fmt: skip


def _ordering(draw: random.Random, size: int) -> dict[str, Any]:
    numbers = [f"SO-{draw.randrange(1000, 9999)}" for _ in range(max((size + 1) // 2, 1))]
    orders = {number: draw.randrange(11, 90) for number in numbers}
    steps, refunds = [], []
    for number, paid in orders.items():
        steps.append(Step("find_order", {"order": number}, f"order {number}: paid {paid} euros"))
        if len(steps) < size:
            steps.append(Step("refund", {"order": number, "euros": paid}, f"refunded {paid} euros for {number}"))
            refunds.append((number, paid))
    back = [number for number, _ in refunds]
    text = f"What was paid for {', '.join(orders)} together?"
    if back:
        text = f"{text} Pay all of it back for {', '.join(back)}. Tell the sum of what was paid."
    return {
        "text": text, "steps": tuple(steps), "value": str(sum(orders.values())), "chain": False, "orders": orders,
        "refunds": tuple(refunds),
    }  # fmt: skip
