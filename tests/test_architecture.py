"""The rules of the code base that no linter states: who may know what, what is pure, and what may stand in a file."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def module_files(*folders: str) -> dict[str, Path]:
    """The Python files below `folders` by module name; states/ is what the package calls fsm_agent/states."""
    found = {}
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if "__pycache__" not in parts:
                found[".".join(parts).removesuffix(".__init__")] = path
    return {f"fsm_agent.{name}" if name.partition(".")[0] == "states" else name: path for name, path in found.items()}


PACKAGE = module_files("fsm_agent", "states")
TESTS = module_files("tests")
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in {**PACKAGE, **TESTS}.items()}


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module that `tree` imports, and every name that it takes from one, dotted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    """Whether `name` is one of `prefixes` or lies below one."""
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


# ---------------------------------------------------------------- who may know what

# What is known to these modules only. Import-linter sees only the top of an outside package, so parts are checked here.
KNOWN_TO = {
    ("transitions",): ("fsm_agent.machine",),
    ("structlog",): ("fsm_agent.observe",),
    ("langchain_core.language_models", "langchain_openai", "openai"): (
        *("fsm_agent.models", "fsm_agent.perform_model", "fsm_agent.testing"),
        "fsm_agent.agent",  # names the type of the model it is given
    ),
    ("langchain_core.tools",): (
        *(
            "fsm_agent.tools.adapt",
            "fsm_agent.tools.registry",
            "fsm_agent.tools.spec",
        ),  # the last two name the type only
        # These name the type only, but for the last.
        *("fsm_agent.agent", "fsm_agent.profiles.named", "fsm_agent.testing"),
    ),
    ("langchain",): ("fsm_agent.models",),
    ("langchain_core.callbacks", "langchain_core.tracers"): (
        *("fsm_agent.perform_model", "fsm_agent.tracing", "fsm_agent.testing", "fsm_agent.agent"),
    ),
    ("typer", "rich", "click"): ("fsm_agent.cli",),
    ("huggingface_hub", "xllamacpp"): ("fsm_agent.local",),
    ("redis",): ("fsm_agent.memory.redis_store",),
    ("cryptography",): ("fsm_agent.trail.chain", "fsm_agent.trail.cipher"),
    ("opentelemetry",): ("fsm_agent.trail.spans", "fsm_agent.trail.export"),  # the last one names the type only
    ("psycopg",): ("fsm_agent.trail.postgres_link",),
    ("tiktoken",): ("fsm_agent.memory.tokens",),
    ("pytest",): ("fsm_agent.pytest_plugin",),
    ("hypothesis",): ("fsm_agent.testing.strategies",),
    ("langchain_core.vectorstores", "langchain_core.embeddings"): (
        *("fsm_agent.memory.lexical", "fsm_agent.memory.recall"),  # the last one names the type only
    ),
    ("states",): (),
}


@pytest.mark.parametrize("outside", KNOWN_TO, ids=lambda outside: outside[0])
def test_an_outside_library_is_known_to_its_modules_only(outside: tuple[str, ...]) -> None:
    """A change of a library is a change of the one module that knows it."""
    knows = {name for name in PACKAGE if any(within(module, outside) for module in imported(TREES[name]))}
    assert not [name for name in knows if not within(name, KNOWN_TO[outside])]


def test_every_outside_import_is_a_declared_dependency() -> None:
    """What the package imports is installed with it, by itself or by one of its extras."""
    project = CONFIG["project"]
    requirements = [
        *project["dependencies"],
        *(
            r
            for extra in ("local", "redis", "crypto", "postgres", "otel", "testing")
            for r in project["optional-dependencies"][extra]
        ),
    ]
    declared = {re.split(r"[^\w.-]", requirement)[0].replace("-", "_").lower() for requirement in requirements}
    # These come with a declared one, by its own promise; the last is asked for by name where somebody names its models.
    declared |= {"openai", "pydantic_core", "langsmith", "click", "tiktoken", "langchain"}
    declared |= {"opentelemetry"}  # what opentelemetry-sdk is imported as
    outside = {module.partition(".")[0] for name in PACKAGE for module in imported(TREES[name])}
    assert outside - set(sys.stdlib_module_names) - {"fsm_agent"} <= declared


def test_importing_the_package_loads_nothing_heavy() -> None:
    """Clients, terminals and tokenizers are loaded when they are used, not with `Agent`."""
    heavy = (
        "openai",
        "langchain_openai",
        "typer",
        "rich",
        "tiktoken",
        "huggingface_hub",
        "xllamacpp",
        "transformers",
        "redis",
    )
    code = f"import sys; from fsm_agent import Agent; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_misspelt_name_is_an_error_for_type_checkers() -> None:
    """No `__getattr__` of a module is seen by them: with one, any name at all may be imported, as `Any`."""
    seen = [
        name
        for name in PACKAGE
        for node in TREES[name].body
        if isinstance(node, ast.FunctionDef) and node.name == "__getattr__"
    ]
    assert seen == []


# ---------------------------------------------------------------- what is pure

PURE = (
    *("fsm_agent.alphabet", "fsm_agent.checks", "fsm_agent.context", "fsm_agent.dialects", "fsm_agent.effects"),
    *("fsm_agent.guards", "fsm_agent.history", "fsm_agent.ladder", "fsm_agent.language", "fsm_agent.memory.views"),
    *("fsm_agent.memory.buffer", "fsm_agent.memory.facts", "fsm_agent.memory.fit", "fsm_agent.memory.summary"),
    *("fsm_agent.memory.wording", "fsm_agent.overflow"),
    *(
        "fsm_agent.prompt",
        "fsm_agent.redact",
        "fsm_agent.repeats",
        "fsm_agent.rounds",
        "fsm_agent.secret_patterns",
        "fsm_agent.states",
        "fsm_agent.table",
    ),
)
IMPURE_MODULES = (
    *(
        "asyncio",
        "concurrent",
        "ctypes",
        "http",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "queue",
        "random",
    ),
    *(
        "secrets",
        "shutil",
        "signal",
        "socket",
        "structlog",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "urllib.request",
    ),
    *("fsm_agent.clock", "fsm_agent.perform", "fsm_agent.observe", "datetime.datetime.now", "uuid.uuid1", "uuid.uuid4"),
)
IMPURE_CALLS = frozenset({"breakpoint", "compile", "eval", "exec", "input", "open", "print", "__import__"})
# A method of these names reads the clock or the system's randomness, whatever it is called on.
IMPURE_METHODS = frozenset(
    {"now", "today", "utcnow", "uuid1", "uuid4", "monotonic", "perf_counter", "urandom", "getenv"}
)


@pytest.mark.parametrize("name", [name for name in PACKAGE if within(name, PURE)])
def test_the_core_is_pure(name: str) -> None:
    """States, guards and what they are made of reach no clock, randomness, log, file, network, thread or process."""
    modules = [
        module
        for module in imported(TREES[name])
        if within(module, (*IMPURE_MODULES, "time")) and module != "datetime.time"
    ]
    calls = [node.func for node in ast.walk(TREES[name]) if isinstance(node, ast.Call)]
    names = [call.id for call in calls if isinstance(call, ast.Name) and call.id in IMPURE_CALLS]
    methods = [call.attr for call in calls if isinstance(call, ast.Attribute) and call.attr in IMPURE_METHODS]
    assert not [*modules, *names, *methods]


def test_every_pure_module_exists() -> None:
    """The list above follows the code: a module that was renamed is not silently left out."""
    assert not [name for name in PURE if name not in PACKAGE]


# ---------------------------------------------------------------- what may stand in a file

MAX_LINES = 400

DESCRIBED = {
    f"{module}.{node.name}": node
    for module in PACKAGE
    for node in ast.walk(TREES[module])
    if isinstance(node, ast.ClassDef)
    and re.search(r"^(Attributes|Args):$", ast.get_docstring(node) or "", re.MULTILINE)
}


@pytest.mark.parametrize("name", DESCRIBED)
def test_a_class_that_lists_its_fields_lists_all_of_them(name: str) -> None:
    """Under `Attributes:` stands each public field, under `Args:` each argument of the constructor, in order, and nothing else."""
    node = DESCRIBED[name]
    heading, section = re.findall(
        r"^(Attributes|Args):\n((?:(?: .*)?\n)*(?: .*)?)", ast.get_docstring(node) or "", re.MULTILINE
    )[0]
    if heading == "Attributes":
        fields = [
            one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        ]
    else:
        made = next(one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
        fields = [one.arg for one in (*made.args.args, *made.args.kwonlyargs)][1:]
    assert re.findall(r"^ {4}(\w+): ", section, re.MULTILINE) == [one for one in fields if one[0] != "_"]


@pytest.mark.parametrize("name", PACKAGE)
def test_a_module_is_short_enough_to_be_read(name: str) -> None:
    """A module has one responsibility; past 400 lines it has two."""
    assert len(PACKAGE[name].read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@pytest.mark.parametrize("name", [name for name in TESTS if name.rpartition(".")[2].startswith("test_")])
def test_every_test_says_what_it_holds(name: str) -> None:
    """A test function has a docstring of one line that names its contract."""
    functions = [
        node
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    told = {function.name: (ast.get_docstring(function) or "").splitlines() for function in functions}
    assert not [f"{function}: {len(lines)} lines" for function, lines in told.items() if len(lines) != 1]


def tracked_files() -> list[str]:
    """What git tracks here; in an unpacked sdist, every file of the allowed folders."""
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        done = None
    if done is not None and done.stdout:
        return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]
    folders = [ROOT / name for name in FOLDERS]
    files = [
        path for folder in folders for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    return [path.relative_to(ROOT).as_posix() for path in files]


FOLDERS = {"diagrams", "fsm_agent", "states", "tests"}


def test_the_top_level_holds_four_folders() -> None:
    """Nothing but the package, its states, its tests and its diagrams, and folders for tools that start with a dot."""
    top = {name.partition("/")[0] for name in tracked_files() if "/" in name}
    assert {name for name in top if not name.startswith(".")} <= FOLDERS


# Hosts that anybody can reach and that the text needs. Made-up hosts use the names reserved for that.
HOSTS = re.compile(
    r"(?:localhost|127\.0\.0\.1|\[::1\]|0\.0\.0\.0|192\.0\.2\.\d+|[\w-]+|.*\.(?:example|test|invalid|localhost)|"
    r"(?:.*\.)?example\.(?:com|net|org)|api\.openai\.com|github\.com|huggingface\.co|json-schema\.org|"
    r"keepachangelog\.com|semver\.org|(?:docs|peps)\.python\.org|(?:.*\.)?langchain\.com|opensource\.org|www\.w3\.org|"
    r"hooks\.slack\.com|pypi\.org|spdx\.org|img\.shields\.io|.*\.wikipedia\.org)"
)
MACHINE_PATH = re.compile(r"(?<![\w.~$}])/(?:root|work|home|Users|mnt|tmp)/[\w.][\w.-]*")
URL_HOST = re.compile(r"https?://(?:[^/\s@\"'`]*@)?([\w.-]*[\w]|\[::1\])")


@pytest.mark.parametrize("name", tracked_files())
def test_no_file_names_the_machine_it_was_written_on(name: str) -> None:
    """No path of somebody's machine, and no host but public and reserved ones, a package mirror least of all."""
    try:
        text = (ROOT / name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    assert not MACHINE_PATH.findall(text)
    assert not [host for host in URL_HOST.findall(text) if not HOSTS.fullmatch(host)]
    assert not [host for host in package_mirrors() if host in text]


def package_mirrors() -> set[str]:
    """The hosts that pip and uv are told to use here, the public one left out."""
    settings = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "HF_ENDPOINT")
    urls = [url for setting in settings for url in os.environ.get(setting, "").split()]
    return {urlsplit(url).hostname or "" for url in urls} - {"", "pypi.org", "huggingface.co", "localhost", "127.0.0.1"}


# ---------------------------------------------------------------- what the tests run under


def test_a_test_cannot_reach_the_network() -> None:
    """A connection or a look-up beyond loopback fails the test, and no `except Exception` can swallow that."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
        for reach in (
            lambda: socket.create_connection(("192.0.2.1", 80), timeout=1),
            lambda: socket.create_connection(("host.example", 80), timeout=1),
            lambda: datagram.sendto(b"x", ("192.0.2.1", 53)),
        ):
            with pytest.raises(pytest.fail.Exception, match="only loopback") as caught:
                reach()
            assert not isinstance(caught.value, Exception)


async def test_a_test_can_reach_this_machine() -> None:
    """Servers on loopback are open to tests, by asyncio too."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection("localhost", server.sockets[0].getsockname()[1])
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


def test_a_test_sees_no_setting_of_whoever_runs_it() -> None:
    """Keys and limits in the environment do not change what a test sees."""
    assert not [name for name in os.environ if name.startswith(("FSM_AGENT_", "OPENAI_", "LANGCHAIN_", "LANGSMITH_"))]
