"""BFCL multi-turn, from its own package: tasks, tool classes and the official check. Fetched on first use, never part of this repository.

Berkeley Function-Calling Leaderboard, `bfcl-eval` on PyPI (Apache-2.0), unpacked without its dependencies beside `mpmath`, which its
mathematics need. Only the multi-turn part is imported: 4 x 200 tasks over eight stateful tool classes.
"""

from __future__ import annotations

import ast
import copy
import importlib
import importlib.util
import inspect
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import platformdirs

from fsm_agent.tools import Tool
from fsm_agent.tools.json_model import json_arguments

__all__ = ["CATEGORIES", "Call", "Task", "Unavailable", "World", "available", "check", "tasks"]

PACKAGES: Final = ("bfcl-eval==2026.3.23", "mpmath==1.4.1")
CATEGORIES: Final = ("base", "miss_func", "miss_param", "long_context")
_CHECKER: Final = "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker"
_BACKENDS: Final = "bfcl_eval.constants.executable_backend_config"
_TYPES: Final = {"dict": "object", "float": "number", "tuple": "array"}
_EITHER: Final = {("close_ticket", "ticket_id")}
"""Described as a whole number, but the ground truth gives a text in four calls."""


class Unavailable(RuntimeError):
    """The package index does not deliver the packages."""


@dataclass(frozen=True)
class Call:
    """One ground-truth call."""

    name: str
    args: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.args.items())})"


@dataclass(frozen=True)
class Task:
    """One task: what the user says and what is to be called, turn by turn."""

    id: str
    category: str
    said: tuple[str, ...]
    calls: tuple[tuple[Call, ...], ...]
    entry: Mapping[str, Any]
    truth: tuple[tuple[str, ...], ...]


def available() -> str:
    """Why the tasks cannot be had, or "" when they can; fetches them on first use."""
    try:
        _fetched()
    except Unavailable as error:
        return str(error)
    return ""


@cache
def _fetched() -> Path:
    """The folder of the unpacked packages, on `sys.path`. Raises `Unavailable`."""
    folder = Path(platformdirs.user_cache_dir("fsm-agent")) / "bfcl" / "-".join(PACKAGES).replace("=", "")
    if not folder.is_dir():
        _install(folder)
    sys.path.insert(0, str(folder))
    return folder


def _install(folder: Path) -> None:
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--target"]
    scratch = folder.with_name(f"{folder.name}.{os.getpid()}")
    scratch.parent.mkdir(parents=True, exist_ok=True)
    said = "there is neither pip nor uv"
    try:
        for installer in _installers():
            command = [*installer, *options, str(scratch), *PACKAGES]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                scratch.rename(folder)
                return
            said = done.stderr.strip()[-300:]
    except OSError as error:
        # Another program of this machine was faster.
        if folder.is_dir():
            return
        said = str(error)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    raise Unavailable(f"the package index did not deliver {', '.join(PACKAGES)}: {said}")


def _installers() -> Iterator[list[str]]:
    if importlib.util.find_spec("pip") is not None:
        yield [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    if uv := shutil.which("uv"):
        yield [uv, "pip", "install", "--python", sys.executable]


@cache
def tasks() -> tuple[Task, ...]:
    """All 800. Raises `Unavailable`."""
    data = _fetched() / "bfcl_eval" / "data"
    found = []
    for category in CATEGORIES:
        name = f"BFCL_v4_multi_turn_{category}.json"
        truths = {one["id"]: one["ground_truth"] for one in _lines(data / "possible_answer" / name)}
        for entry in _lines(data / name):
            # A turn that only hands over functions has no words.
            said = [
                "\n".join(one["content"] for one in turn) or "Here are more functions." for turn in entry["question"]
            ]
            truth = tuple(tuple(turn) for turn in truths[entry["id"]])
            owners = _owners(entry["involved_classes"])
            calls = tuple(tuple(_call(text, owners) for text in turn) for turn in truth)
            found.append(Task(entry["id"], category, tuple(said), calls, entry, truth))
    return tuple(found)


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _call(text: str, owners: Mapping[str, type]) -> Call:
    """A call as it is written in Python, with every argument by its name."""
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call), text
    assert isinstance(call.func, ast.Name), text
    names = list(inspect.signature(getattr(owners[call.func.id], call.func.id)).parameters)[1:]
    placed = dict(zip(names, map(ast.literal_eval, call.args), strict=False))
    return Call(call.func.id, placed | {str(one.arg): ast.literal_eval(one.value) for one in call.keywords})


@cache
def _class(name: str) -> type:
    made = getattr(importlib.import_module(importlib.import_module(_BACKENDS).CLASS_FILE_PATH_MAPPING[name]), name)
    assert isinstance(made, type)
    return made


def _owners(classes: list[str]) -> dict[str, type]:
    """Which class has each function."""
    return {name: _class(one) for one in classes for name in vars(_class(one)) if not name.startswith("_")}


@cache
def _described(name: str) -> dict[str, dict[str, Any]]:
    """The documents of a class: function -> description."""
    file = importlib.import_module(_BACKENDS).MULTI_TURN_FUNC_DOC_FILE_MAPPING[name]
    return {one["name"]: one for one in _lines(_fetched() / "bfcl_eval" / "data" / "multi_turn_func_doc" / file)}


def _schema(given: Any, function: str = "") -> Any:
    """A JSON schema of what the documents say, whose types have names of Python."""
    if not isinstance(given, dict):
        return given
    kept = {key: given[key] for key in ("type", "description", "required", "enum") if key in given}
    kept["type"] = _TYPES.get(given.get("type", ""), given.get("type"))
    if "properties" in given:
        kept["properties"] = {name: _schema(one) for name, one in given["properties"].items()}
        for name in kept["properties"]:
            if (function, name) in _EITHER:
                kept["properties"][name] = {"type": ["integer", "string"]}
    if "items" in given:
        kept["items"] = _schema(given["items"])
    return kept


@cache
def _arguments(owner: str, function: str) -> tuple[str, Any]:
    one = _described(owner)[function]
    return one["description"].rpartition("Tool description: ")[2], json_arguments(
        _schema(one["parameters"], function), function
    )


class World:
    """The instances that the tools of one task act on, and the log of every call that took effect, by turn."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.log: list[tuple[int, Call, str]] = []
        self.turn = 0
        self.instances: dict[str, Any] = {}
        stateless = importlib.import_module(_BACKENDS).STATELESS_CLASSES
        for name in task.entry["involved_classes"]:
            one = self.instances[name] = _class(name)()
            if name not in stateless:
                config = copy.deepcopy(task.entry["initial_config"].get(name, {}))
                one._load_scenario(config, long_context=task.category == "long_context")

    def tools(self, around: Callable[[Call, Callable[[], Any]], Any], *, idempotent: bool) -> list[Tool]:
        """Every public method as a tool whose execution goes through `around(call, execute)`."""
        made = []
        for owner, one in self.instances.items():
            for name, method in inspect.getmembers(one, inspect.ismethod):
                if name in _described(owner):
                    about, model = _arguments(owner, name)
                    func = self._executed(name, method, around)
                    made.append(
                        Tool(
                            name=name, description=about, args_model=model, func=func, once=True, idempotent=idempotent
                        )
                    )
        return made

    def _executed(self, name: str, method: Any, around: Callable[[Call, Callable[[], Any]], Any]) -> Callable[..., Any]:
        def func(**args: Any) -> Any:
            # A tool may keep its arguments, and change them later.
            call = Call(name, copy.deepcopy(args))

            def execute() -> Any:
                result = method(**args)
                self.log.append((self.turn, call, str(result)))
                return result

            return around(call, execute)

        return func


def check(world: World, name: str) -> str:
    """What the official check says of the log, and of the instances as they stand; "" when all is right. `name` must be new."""
    checker = importlib.import_module(_CHECKER)
    task = world.task
    turns = range(len(task.truth))
    decoded = [[[str(call)] for turn, call, _ in world.log if turn == number] for number in turns]
    truth = [list(turn) for turn in task.truth]
    said = checker.multi_turn_checker(decoded, truth, task.entry, f"multi_turn_{task.category}", name)
    if said["valid"]:
        said = checker.multi_turn_irrelevance_checker(decoded, truth)
    if said["valid"]:
        replayed = World(task)
        for turn in task.calls:
            for call in turn:
                for one in replayed.instances.values():
                    if hasattr(one, call.name):
                        getattr(one, call.name)(**call.args)
        said = checker.state_checker(world.instances, replayed.instances)
    _forget(checker, name)
    return "" if said["valid"] else f"{said['error_type']}: {said['error_message']}"


def _forget(checker: Any, name: str) -> None:
    """Drop the instances that the check has made: it keeps them as globals of its module."""
    module = vars(importlib.import_module(checker.execute_multi_turn_func_call.__module__))
    for one in [one for one in module if one.startswith(name)]:
        del module[one]
