"""The tools of the held-out tasks: other data, other names and other shapes of arguments than those that prompts were written with."""

from __future__ import annotations

from datetime import date

from tests.benchmarks.local_tools import calculate, look_up, tidy

_OPENING = {"museum": "10:30", "pool": "7:15", "archive": "13:45"}
_LANGUAGES = {"marenia": "Vesk", "tolland": "Ardic", "usk": "Pellian"}
_LENGTHS = {"alba": 742, "korr": 1190, "senn": 388}
_MOUTHS = {"alba": "Tolland", "korr": "Usk", "senn": "Marenia"}
_DEVICES = {"12": "printer", "14": "scanner", "15": "projector"}
_SERIALS = {"printer": "PX-2291", "scanner": "SC-1040", "projector": "PJ-7716"}
_WEIGHTS = {"K7": 3.4, "K8": 12.5}
_SENDERS = {"K7": "Ana Duarte", "K8": "Bo Lind"}
_ADDRESSES = {"K7": "Mill Lane 4", "K8": "Dock Road 19"}
_TICKETS = {"museum": 14.0, "pool": 6.5}
_METRES = {"m": 1.0, "km": 1000.0, "mi": 1609.0}
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_HOURS_ZH = {"图书馆": "8点30分", "游泳馆": "6点", "博物馆": "9点45分"}
_PLATFORMS_ZH = {"G12": 7, "G15": 3, "D301": 11}
_FARES_ZH = {"苏州": 39.5, "南京": 139.0, "无锡": 59.5}


def plus(x: float, y: float) -> float:
    """The sum x + y."""
    return tidy(x + y)


def minus(x: float, y: float) -> float:
    """The difference x - y."""
    return tidy(x - y)


def times(x: float, y: float) -> float:
    """The product x * y."""
    return tidy(x * y)


def share(total: float, parts: float) -> float:
    """Divide a total into equal parts."""
    return tidy(total / parts)


def average(numbers: list[float]) -> float:
    """Arithmetic mean of some numbers."""
    return tidy(sum(numbers) / len(numbers))


def sum_of(numbers: list[float]) -> float:
    """Sum of some numbers."""
    return tidy(sum(numbers))


def power(base: float, exponent: float) -> float:
    """The base raised to the exponent."""
    return tidy(base**exponent)


def evaluate(formula: str) -> float:
    """Value of a formula with numbers, + - * / and brackets."""
    return calculate(formula)


def opening_time(place: str) -> str:
    """Time at which a place opens."""
    return look_up(_OPENING, place, "place")


def language_of(country: str) -> str:
    """Language that is spoken in a country."""
    return look_up(_LANGUAGES, country, "country")


def river_length(river: str) -> int:
    """Length of a river in kilometres."""
    return look_up(_LENGTHS, river, "river")


def river_mouth(river: str) -> str:
    """Country in which a river ends."""
    return look_up(_MOUTHS, river, "river")


def device_in_room(room: str) -> str:
    """Device that stands in a room."""
    return look_up(_DEVICES, room, "room")


def serial_number(device: str) -> str:
    """Serial number of a device."""
    return look_up(_SERIALS, device, "device")


def parcel_weight(code: str) -> float:
    """Weight of a parcel in kilograms."""
    return look_up(_WEIGHTS, code, "parcel")


def parcel_sender(code: str) -> str:
    """Name of the person who sent a parcel."""
    return look_up(_SENDERS, code, "parcel")


def parcel_address(code: str) -> str:
    """Address to which a parcel goes."""
    return look_up(_ADDRESSES, code, "parcel")


def ticket_price(place: str) -> float:
    """Price of one ticket for a place, in EUR."""
    return look_up(_TICKETS, place, "place")


def convert_length(amount: float, source: str, target: str) -> float:
    """Convert a length from one unit to another; units are m, km and mi (miles)."""
    return tidy(amount * look_up(_METRES, source, "unit") / look_up(_METRES, target, "unit"))


def letter_count(text: str) -> int:
    """Number of letters in a text."""
    return sum(one.isalpha() for one in text)


def to_capitals(text: str) -> str:
    """A text in capital letters."""
    return text.upper()


def weekday(day: str) -> str:
    """Day of the week of a date, written as YYYY-MM-DD."""
    return _DAYS[date.fromisoformat(day).weekday()]


def query_hours(place: str) -> str:
    """查询场馆的开门时间."""
    return look_up(_HOURS_ZH, place, "场馆")


def query_platform(train: str) -> int:
    """查询车次的出发站台."""
    return look_up(_PLATFORMS_ZH, train, "车次")


def query_fare(city: str) -> float:
    """查询到某个城市的单张票价(元)."""
    return look_up(_FARES_ZH, city, "城市")
