"""What the options of `fsm-agent run` do, and what they win over."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsm_agent.cli.run import memory_of
from fsm_agent.dialects import DIALECTS
from fsm_agent.limits import Limits
from fsm_agent.memory import DualBuffer, Full, KeyFacts, Memory, MessageWindow, SummaryWindow, Window
from fsm_agent.testing import call, fault, forever, reply, server
from tests.cli.kit import fsm, run_with


def test_stream_asks_the_server_to_stream() -> None:
    """--stream shows the reply as it comes; without a terminal nothing is streamed unless asked for."""
    with server([reply("It is 14."), reply("It is 14.")]) as s:
        shown = fsm("run", "x", "--base-url", s.base_url, "--stream")
        fsm("run", "x", "--base-url", s.base_url)
        assert [one.stream for one in s.requests] == [True, False]
    assert "It is 14.\n" in shown.err
    assert shown.out == "It is 14.\n"


def test_every_limit_is_an_option_with_its_description() -> None:
    """The options for the limits are made from `Limits`, so none is forgotten and none is described twice."""
    shown = " ".join(fsm("run", "--help", env={"COLUMNS": "300"}).out.split())
    for name, field in Limits.model_fields.items():
        assert f"--{name.replace('_', '-')} " in shown
        assert field.description is not None
        assert " ".join(field.description.split()) in shown


def test_every_dialect_stands_in_the_help() -> None:
    """A dialect that exists can be found."""
    shown = " ".join(fsm("run", "--help", env={"COLUMNS": "300"}).out.split())
    assert all(name in shown for name in DIALECTS)


def test_the_help_says_which_model_is_taken() -> None:
    """`run` goes by the server and the key that there are; the demo takes no key that happens to be set, and says none."""
    run, demo = (" ".join(fsm(one, "--help", env={"COLUMNS": "300"}).out.split()) for one in ("run", "demo"))
    assert "else what the server at --base-url has, else openai:gpt-4o-mini where OPENAI_API_KEY is set" in run
    assert "else what the server at --base-url has, else local:1.5b" in demo
    assert "OPENAI_API_KEY" not in demo


def test_an_option_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Command line, environment, env file, default: in this order."""
    for name in ("FSM_AGENT_MAX_STEPS", "FSM_AGENT_MAX_RETRIES", "FSM_AGENT_MAX_NUDGES", "FSM_AGENT_MAX_PARALLEL"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    file = tmp_path / "settings.env"
    names = ("MAX_STEPS", "MAX_RETRIES", "MAX_NUDGES")
    file.write_text("".join(f"FSM_AGENT_{name}=7\n" for name in names), encoding="utf-8")
    monkeypatch.setenv("FSM_AGENT_MAX_STEPS", "8")
    monkeypatch.setenv("FSM_AGENT_MAX_RETRIES", "8")
    found = fsm("limits", "--json", "--env-file", str(file), "--max-steps", "9").document
    assert {name: found[name] for name in ("max_steps", "max_retries", "max_nudges", "max_parallel")} == {
        "max_steps": 9,
        "max_retries": 8,
        "max_nudges": 7,
        "max_parallel": 8,
    }


def test_an_optional_limit_is_switched_off_with_none() -> None:
    """--token-budget none means no budget."""
    assert fsm("limits", "--json", "--token-budget", "none").document["token_budget"] is None


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        (["my_tools:send"], {"send"}),
        (["my_tools:both()"], {"send", "shout"}),
        (["my_tools:pair"], {"send", "shout"}),
        (["my_tools:registry"], {"shout"}),
        (["my_tools:send", "my_tools:registry"], {"send", "shout"}),
        (["fsm_agent.tools.builtin:calculator"], {"calculator"}),
    ],
)
def test_tools_come_from_the_current_directory_in_every_form(here: Path, spec: list[str], names: set[str]) -> None:
    """A tool, a function, a list or tuple, a Registry, and a call that returns them."""
    done = fsm("tools", "--json", *(word for one in spec for word in ("--tools", one)))
    assert {one["name"] for one in done.document} == names


def test_the_default_tool_is_the_calculator() -> None:
    """Without being asked, an agent can compute and nothing else."""
    assert [one["name"] for one in fsm("tools", "--json").document] == ["calculator"]


def test_files_are_confined_and_written_only_with_approval(here: Path) -> None:
    """--files opens one directory; no path leads out of it, and a person approves each write."""
    room = here / "room"
    room.mkdir()
    (here / "secret.txt").write_text("outside", encoding="utf-8")
    tools = {one["name"]: one for one in fsm("tools", "--json", "--files", "room").document}
    assert set(tools) == {"calculator", "read_file", "write_file", "list_files"}
    assert [name for name, one in tools.items() if one["requires_approval"]] == ["write_file"]
    with server([call("read_file", path="../secret.txt"), call("write_file", path="a.txt", content="x"), "Done."]) as s:
        done = fsm("run", "x", "--base-url", s.base_url, "--files", "room", "--approve", "yes")
        assert "outside" not in s.requests[1].text
    assert done.code == 0
    assert (room / "a.txt").read_text(encoding="utf-8") == "x"
    with server([call("write_file", path="b.txt", content="x")]) as s:
        assert fsm("run", "x", "--base-url", s.base_url, "--files", "room").code == 4
    assert not (room / "b.txt").exists()


def test_system_text_language_and_memory_reach_the_model() -> None:
    """What --system and --language say is what the model reads."""
    with server(["", "好"]) as s:
        args = ["--system", "Be a pirate.", "--language", "zh", "--memory", "full"]
        assert fsm("run", "hello", "--base-url", s.base_url, *args).code == 0
        assert "Be a pirate." in s.requests[0].text
        assert "你上一次的回复是空的" in s.requests[1].text


def test_a_secret_of_the_environment_is_never_shown(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An API key that a server or a tool repeats in its error is redacted in error line, summary and document."""
    key = "sk-" + "a1B2" * 8
    monkeypatch.setenv("OPENAI_API_KEY", key)
    (here / "my_tools.py").write_text(f"raise RuntimeError('no access with {key}')\n", encoding="utf-8")
    refused = fsm("tools", "--tools", "my_tools:x")
    assert refused.code == 2
    assert "no access with" in refused.err
    assert key not in refused.err
    done = run_with([forever(fault.unauthorized(f"Incorrect API key provided: {key}"))], "--json")
    assert done.code == 1
    assert key not in done.out + done.err


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("full", Full()),
        ("window", Window()),
        ("window:2", Window(rounds=2)),
        ("messages:8", MessageWindow(messages=8)),
        ("dual", DualBuffer()),
        ("summary", SummaryWindow()),
        ("summary:3", SummaryWindow(rounds=3)),
        ("facts:4", KeyFacts(inner=Window(rounds=4))),
    ],
)
def test_every_memory_has_a_name_on_the_command_line(text: str, memory: Memory) -> None:
    """What `--memory` names is the memory that the library has under its own defaults."""
    assert memory_of(text) == memory
