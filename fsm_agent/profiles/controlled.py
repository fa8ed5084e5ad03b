"""`controlled`: no call a third time, one retry after a second, then the tool's fallback; and a file tool to try it with.

Its window of three rounds loses older results; `Agent.from_profile("controlled", model, memory=KeyFacts(Window(3)))` keeps their facts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fsm_agent.memory import Window
from fsm_agent.profiles.base import Example, Profile, frozen_mapping
from fsm_agent.profiles.tools.file_write import file_write
from fsm_agent.tools.spec import Tool

__all__ = ["PROFILE"]


def _tools(folder: Path | None) -> tuple[Tool, ...]:
    return (file_write(folder),)


PROFILE: Final = Profile(
    name="controlled",
    about="loop detection, one retry, then the tool's fallback",
    tools=_tools,
    limits=frozen_mapping(
        max_steps=10,
        # The second failure in a row takes the fallback; what still fails then ends the run.
        degrade_after=2,
        abort_after=3,
        repeat_threshold=2,
        max_retries=1,
        backoff=1.0,
        jitter=0.0,
        on_limit="stop",
    ),
    memory=Window(rounds=3),
    folder="the root that files are written below",
    works_here=True,
    example=Example(
        tasks={
            "en": "Write the text hello world to the file notes/greeting.txt.",
            "zh": "把文本 hello world 写入文件 notes/greeting.txt。",
        },
        answer=(),
        files={"notes/greeting.txt": "hello world"},
    ),
)
