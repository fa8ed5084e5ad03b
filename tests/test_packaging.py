"""What is distributed: `states/` is a folder of the repository, and a part of the package wherever it is installed."""

from __future__ import annotations

import configparser
import importlib
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from fsm_agent.alphabet import State

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BUILD = "import hatchling.build as backend, sys; print(getattr(backend, sys.argv[1])(sys.argv[2]))"


@dataclass(frozen=True)
class Distributions:
    """The wheel and the sdist of this tree, and the wheel of the unpacked sdist."""

    wheel: Path
    sdist: Path
    second_wheel: Path


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run this Python apart from the tests, with its output as text."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=120
    )


def build(hook: str, source: Path, target: Path) -> Path:
    """Build with the project's own backend, without isolation, so without a network."""
    done = run("-c", BUILD, hook, str(target), cwd=source)
    assert done.returncode == 0, done.stderr
    return target / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """Build each distribution once."""
    target = tmp_path_factory.mktemp("dist")
    sdist = build("build_sdist", ROOT, target)
    with tarfile.open(sdist) as archive:
        archive.extractall(target / "unpacked", filter="data")
    (unpacked,) = (target / "unpacked").iterdir()
    (target / "second").mkdir()
    return Distributions(build("build_wheel", ROOT, target), sdist, build("build_wheel", unpacked, target / "second"))


def contents(wheel: Path) -> dict[str, bytes]:
    """Every file of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def sdist_members(sdist: Path) -> dict[str, tarfile.TarInfo]:
    """Every entry of a sdist, by its path below the top folder."""
    with tarfile.open(sdist) as archive:
        return {member.name.partition("/")[2]: member for member in archive.getmembers()}


def test_the_wheel_installs_one_top_level_package(built: Distributions) -> None:
    """Nothing but `fsm_agent` lands in site-packages: no module `states`, no tests."""
    top = {name.partition("/")[0] for name in contents(built.wheel)}
    assert top == {"fsm_agent", f"fsm_agent-{PROJECT['version']}.dist-info"}


def test_the_wheel_holds_every_module_once_and_nothing_else(built: Distributions) -> None:
    """The package's modules, those of `states/` included, the type marker, and no left-overs of the checkout."""
    in_wheel = sorted(name for name in contents(built.wheel) if name.startswith("fsm_agent/"))
    in_tree = {
        path.relative_to(ROOT).as_posix()
        for folder in (ROOT / "fsm_agent", ROOT / "fsm_agent" / "states")
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert in_wheel == sorted(in_tree)
    assert "fsm_agent/py.typed" in in_wheel


@pytest.mark.parametrize("state", State)
def test_every_state_is_a_module_everywhere(built: Distributions, state: State) -> None:
    """Each state of the alphabet has its module: in the tree, in the wheel and, as a real file, in the sdist."""
    module = f"{state.lower()}.py"
    assert (ROOT / "states" / module).is_file()
    assert f"fsm_agent/states/{module}" in contents(built.wheel)
    assert sdist_members(built.sdist)[f"states/{module}"].isreg()


def test_the_sdist_has_real_folders_and_no_link(built: Distributions) -> None:
    """The sdist holds what the wheel and the tests are made from, and no link, which some systems cannot unpack."""
    members = sdist_members(built.sdist)
    assert not [name for name, member in members.items() if member.issym() or member.islnk()]
    assert {"pyproject.toml", "Makefile", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"} <= set(members)
    assert not [name for name in members if name.startswith("fsm_agent/states")]
    top = {name.partition("/")[0] for name, member in members.items() if "/" in name}
    assert top <= {".ci", "diagrams", "fsm_agent", "states", "tests"}


def test_the_wheel_of_the_sdist_is_the_wheel_of_the_tree(built: Distributions) -> None:
    """Who builds from the sdist gets the same files, byte for byte."""
    assert contents(built.second_wheel) == contents(built.wheel)


def test_an_unpacked_sdist_is_set_up_by_make(built: Distributions) -> None:
    """The link that no archive holds is put back before anything is installed, so that `make demo` and `make test` run there too."""
    (unpacked,) = (built.sdist.parent / "unpacked").iterdir()
    planned = subprocess.run(["make", "-n", "demo"], cwd=unpacked, capture_output=True, text=True, check=True)
    assert planned.stdout.index("fsm_agent/states") < planned.stdout.index("install")
    subprocess.run(["make", "fsm_agent/states"], cwd=unpacked, capture_output=True, check=True)
    done = run("-c", "import fsm_agent.states as s; print(s.__file__)", cwd=unpacked)
    assert done.stdout.strip() == str(unpacked / "fsm_agent" / "states" / "__init__.py"), done.stderr


def test_the_installed_package_needs_no_checkout(built: Distributions) -> None:
    """The states are imported from the wheel itself."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import fsm_agent.states as s; print(s.__file__)"
    done = run("-I", "-c", code, str(built.wheel))
    assert done.stdout.startswith(str(built.wheel)), done.stderr


def test_states_is_a_folder_and_the_package_links_to_it() -> None:
    """History lives at `states/`; the link is for the tools that work in the tree."""
    assert (ROOT / "states").is_dir()
    assert not (ROOT / "states").is_symlink()
    link = ROOT / "fsm_agent" / "states"
    if not link.exists():
        pytest.skip("an unpacked sdist has no link")
    assert link.readlink() == Path("../states")


def test_states_refuses_to_be_imported_by_the_name_of_its_folder() -> None:
    """A second copy of every class would compare unequal to the first."""
    done = run("-c", "import states")
    assert done.returncode == 1
    assert "ImportError" in done.stderr
    assert "import fsm_agent.states" in done.stderr


def test_the_command_exists(built: Distributions) -> None:
    """`fsm-agent` names a function that is there."""
    entry_points = configparser.ConfigParser()
    (text,) = (data for name, data in contents(built.wheel).items() if name.endswith("entry_points.txt"))
    entry_points.read_string(text.decode())
    module, _, function = entry_points["console_scripts"]["fsm-agent"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_the_version_has_its_news() -> None:
    """The change log speaks of the version that is built."""
    assert f"[{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_page_on_the_index_is_the_readme() -> None:
    """Who finds the package on the index reads what stands in the repository."""
    assert PROJECT.get("readme", "README.md") == "README.md"
    assert (ROOT / "README.md").is_file() == ("readme" in PROJECT)
