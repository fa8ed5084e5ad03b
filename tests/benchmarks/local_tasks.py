"""Forty small tasks for local models, eight of each of five kinds, and twenty held-out ones, with a strict checker of the answer.

A checker never sees how the answer came about: the right number or word must occur, and no wrong candidate may.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fsm_agent import Tool, tool
from tests.benchmarks import local_more_tools as m
from tests.benchmarks import local_tools as t

__all__ = ["HELD_OUT", "KINDS", "TASKS", "Task"]

KINDS = ("arithmetic", "look-up", "choose", "two-step", "chinese")

Function = Callable[..., Any]
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w]|\.\d)")


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task: `functions` are what the model may call, all pure; `right` judges the final answer."""

    kind: str
    text: str
    functions: tuple[Function, ...]
    right: Callable[[str], bool]

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The functions as tools, declared to be the look-ups that they are."""
        return tuple(tool(idempotent=True)(one) for one in self.functions)


def numbers_in(text: str) -> set[float]:
    """The numbers written in a text; commas between thousands are ignored, dates and codes do not count."""
    plain = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
    spaced = re.sub(r"([一-鿿])", r" \1 ", plain)
    return {float(found) for found in _NUMBER.findall(spaced)}


def _number(expected: float, task: str, *, also: tuple[float, ...] = ()) -> Callable[[str], bool]:
    """The expected number occurs, and every other number is one of the task's or a correct one on the way."""
    harmless = numbers_in(task) | set(also) | {expected}

    def right(answer: str) -> bool:
        found = numbers_in(answer)
        return expected in found and found <= harmless

    return right


def _words(*accepted: str, wrong: tuple[str, ...] = ()) -> Callable[[str], bool]:
    """One of the accepted wordings occurs and none of the wrong ones, without regard to case."""

    def right(answer: str) -> bool:
        text = answer.casefold()
        return any(word.casefold() in text for word in accepted) and not any(word.casefold() in text for word in wrong)

    return right


def _numeric(
    kind: str, text: str, tools: tuple[Function, ...], expected: float, *, also: tuple[float, ...] = ()
) -> Task:
    return Task(kind=kind, text=text, functions=tools, right=_number(expected, text, also=also))


def _verbal(kind: str, text: str, tools: tuple[Function, ...], *accepted: str, wrong: tuple[str, ...] = ()) -> Task:
    return Task(kind=kind, text=text, functions=tools, right=_words(*accepted, wrong=wrong))


_FOUR = (t.add, t.subtract, t.multiply, t.divide)
_SHOP = (t.get_stock, t.get_price)
_ZH_SHOP = (t.query_stock, t.query_price)

TASKS: tuple[Task, ...] = (
    _numeric("arithmetic", "What is 37 times 43?", _FOUR, 1591),
    _numeric("arithmetic", "Add 4389 and 7754.", _FOUR, 12143),
    _numeric("arithmetic", "How much is 9001 minus 4567?", _FOUR, 4434),
    _numeric("arithmetic", "Divide 1001 by 13.", _FOUR, 77),
    _numeric("arithmetic", "Compute 12.5 * 48", (t.calculate,), 600),
    _numeric("arithmetic", "What is (19 + 23) * 11?", (t.calculate,), 462),
    _numeric("arithmetic", "A box holds 144 pens. How many pens are in 27 boxes?", (t.add, t.multiply), 3888),
    _numeric("arithmetic", "A tank had 850 litres and lost 275 litres. How many litres are left?", _FOUR, 575),
    _numeric("look-up", "How many monitors are in the warehouse?", (t.get_stock,), 7),
    _numeric("look-up", "What is the price of a chair?", (t.get_price,), 125),
    _verbal("look-up", "What is the status of order B42?", (t.get_order,), "cancelled", wrong=("shipped", "payment")),
    _verbal("look-up", "What is the email address of Iris Holm?", (t.get_email,), "iris@holm.example"),
    _verbal("look-up", "What is the capital of Norland?", (t.get_capital,), "Brightwater", wrong=("Tamsin", "Kellmar")),
    _verbal("look-up", "How is the weather in Kellmar right now?", (t.get_weather,), "snow", wrong=("rain", "sunny")),
    _numeric("look-up", "How many people live in Palewa?", (t.get_population,), 67300),
    _verbal("look-up", "In which room does the finance team sit?", (t.get_room,), "2.07", wrong=("4.12", "1.33")),
    _numeric("choose", "How many lamps do we have in stock?", (t.get_price, t.get_stock, t.get_order), 31),
    _numeric("choose", "How much does a monitor cost?", (t.get_stock, t.get_order, t.get_price), 210),
    _verbal(
        "choose",
        "Who is the customer of order A17?",
        (t.get_email, t.get_order, t.get_manager),
        "Nadia Brandt",
        wrong=("Olga", "Okafor"),
    ),
    _numeric("choose", "Convert 250 EUR to USD.", (t.get_price, t.convert_currency, t.get_population), 275),
    _numeric(
        "choose",
        "How many words are in the sentence 'the quick brown fox jumps over a lazy dog'?",
        (t.reverse_text, t.count_words, t.get_weather),
        9,
    ),
    _verbal("choose", "Write the word 'planet' backwards.", (t.count_words, t.add, t.reverse_text), "tenalp"),
    _numeric(
        "choose",
        "How many days are there from 2024-02-01 to 2024-03-15?",
        (t.subtract, t.days_between, t.get_order),
        43,
    ),
    _verbal(
        "choose",
        "Who is the manager of Tom Okafor?",
        (t.get_email, t.get_phone, t.get_manager),
        "Sam Lindqvist",
        wrong=("Olga", "@"),
    ),
    _numeric("two-step", "What do 6 keyboards cost in total?", (t.get_price, t.multiply), 270, also=(45,)),
    _numeric("two-step", "Add 12 and 8, then multiply the sum by 7.", (t.add, t.multiply), 140, also=(20,)),
    _verbal(
        "two-step",
        "What is the weather in the capital of Veloria?",
        (t.get_capital, t.get_weather),
        "rain",
        wrong=("snow", "sunny", "fog"),
    ),
    _verbal(
        "two-step",
        "What is the email address of the customer of order B42?",
        (t.get_order, t.get_email),
        "tokafor@mail.example",
        wrong=("nadia", "iris"),
    ),
    _numeric(
        "two-step", "How much is the price of a desk in GBP?", (t.get_price, t.convert_currency), 272, also=(340,)
    ),
    _numeric(
        "two-step",
        "How many people live in the capital of Sundra?",
        (t.get_capital, t.get_population, t.get_weather),
        67300,
    ),
    _verbal(
        "two-step",
        "What is the phone number of the leader of the support team?",
        (t.get_leader, t.get_phone, t.get_room),
        "555-0191",
        wrong=("0143", "0178"),
    ),
    _numeric(
        "two-step",
        "19 chairs are in stock at 125 EUR each. We sell 4 of them. What are the remaining chairs worth in EUR?",
        (t.subtract, t.multiply),
        1875,
        also=(15,),
    ),
    _numeric("chinese", "仓库里还有多少苹果?", _ZH_SHOP, 36),
    _verbal("chinese", "杭州今天天气怎么样?", (t.query_weather, t.query_order), "雨", wrong=("雪", "多云")),
    _verbal(
        "chinese",
        "订单D200现在是什么状态?",
        (t.query_order, t.query_price, t.query_phone),
        "待付款",
        wrong=("已发货", "已取消"),
    ),
    _numeric("chinese", "计算 56 乘以 78 等于多少?", _FOUR, 4368),
    _numeric("chinese", "3200 减去 1875 是多少?", (t.calculate,), 1325),
    _numeric("chinese", "把 400 CNY 换算成 EUR 是多少?", (t.convert_currency, t.get_price), 50),
    _numeric("chinese", "买 5 瓶牛奶一共要多少钱?", (t.query_price, t.multiply), 60, also=(12,)),
    _verbal("chinese", "市场部负责人的分机号是多少?", (t.query_chief, t.query_phone), "8842", wrong=("8801", "8815")),
)
"""Two of the Chinese tasks take two steps as well."""

HELD_OUT: tuple[Task, ...] = (
    _numeric("arithmetic", "What is the average of 12, 18 and 33?", (m.sum_of, m.average), 21),
    _numeric("arithmetic", "What is 2 to the power of 11?", (m.sum_of, m.power), 2048),
    _numeric(
        "arithmetic",
        "A train starts with 312 passengers and 87 get off. How many passengers are still on it?",
        (m.plus, m.minus, m.times),
        225,
    ),
    _numeric("arithmetic", "Evaluate 3 * (17 - 5) / 4", (m.evaluate,), 9),
    _verbal("look-up", "What time does the museum open?", (m.opening_time,), "10:30", wrong=("7:15", "13:45")),
    _verbal("look-up", "Which language is spoken in Marenia?", (m.language_of,), "Vesk", wrong=("Ardic", "Pellian")),
    _numeric("look-up", "How long is the river Alba?", (m.river_length,), 742),
    _verbal("look-up", "Please give me the serial number of the printer.", (m.serial_number,), "PX-2291"),
    _numeric("choose", "How heavy is the parcel K7?", (m.parcel_address, m.parcel_weight, m.parcel_sender), 3.4),
    _verbal(
        "choose",
        "Put the text 'good morning' into capitals.",
        (m.letter_count, m.opening_time, m.to_capitals),
        "GOOD MORNING",
    ),
    _verbal(
        "choose",
        "On which day of the week was 2024-07-04?",
        (m.opening_time, m.weekday, m.letter_count),
        "Thursday",
        wrong=("Monday", "Friday"),
    ),
    _numeric("choose", "How many km are 12 mi?", (m.river_length, m.average, m.convert_length), 19.308),
    _verbal(
        "two-step",
        "Which language do people speak where the river Alba ends?",
        (m.river_mouth, m.language_of),
        "Ardic",
        wrong=("Vesk", "Pellian"),
    ),
    _numeric("two-step", "What do I pay for 8 tickets for the museum?", (m.ticket_price, m.times), 112, also=(14,)),
    _verbal(
        "two-step",
        "What is the serial number of the device in room 14?",
        (m.serial_number, m.device_in_room),
        "SC-1040",
        wrong=("PX-2291", "PJ-7716"),
    ),
    _numeric("two-step", "Take 45 away from 120 and divide what is left by 5.", (m.minus, m.share), 15, also=(75,)),
    _verbal("chinese", "图书馆几点开门?", (m.query_hours, m.query_fare), "8点30", "8:30", wrong=("6点", "9点45")),
    _numeric("chinese", "列车 G12 从哪个站台出发?", (m.query_fare, m.query_platform), 7),
    _numeric("chinese", "去苏州的 3 张车票一共多少钱?", (m.query_fare, m.times), 118.5, also=(39.5,)),
    _numeric("chinese", "36 除以 8 等于多少?", (m.plus, m.share), 4.5),
)
"""Four of each kind, with other tools and words than those that the prompts were written with."""
