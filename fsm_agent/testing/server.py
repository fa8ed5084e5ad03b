"""`server`: a real HTTP server on loopback that speaks the OpenAI chat protocol, and misbehaves on command."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from fsm_agent.clock import Clock, SystemClock
from fsm_agent.errors import ScriptError
from fsm_agent.testing.connection import Listener, Part
from fsm_agent.testing.fault import http_error, raw
from fsm_agent.testing.script import Delay, Forever, Script, is_error
from fsm_agent.testing.wire import Raw, Sending, as_sending, body_of, chunks_of, split_chunks, sse

__all__ = ["FaultServer", "ServerRequest", "server"]

_JSON, _SSE = "application/json", "text/event-stream"


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """One chat request as it came over the wire: its number (from 1), headers (names in lower case) and JSON body."""

    number: int
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def stream(self) -> bool:
        """Whether the client asked for a stream."""
        return bool(self.body.get("stream"))

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the body."""
        return list(self.body.get("messages", ()))

    @property
    def text(self) -> str:
        """All the messages' contents, one a line; contents that are no text as JSON."""
        contents = [message.get("content") for message in self.messages]
        return "\n".join(c if isinstance(c, str) else json.dumps(c, ensure_ascii=False) for c in contents)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the tools offered, in order."""
        return tuple(tool["function"]["name"] for tool in self.body.get("tools") or ())


class FaultServer:
    """See `server`, which makes one."""

    def __init__(
        self,
        script: Sequence[Any] | Callable[[ServerRequest], Any] | None = None,
        *,
        by_task: Mapping[str, Sequence[Any]] | None = None,
        usage: Mapping[str, Any] | tuple[int, int] | None = (10, 5),
        model: str = "fake",
        clock: Clock | None = None,
        routes: Mapping[str, Any] | None = None,
    ) -> None:
        for entries in (script, *(by_task or {}).values()):
            if isinstance(entries, list | tuple):
                _check(entries)
        self._script = Script(script, by_task=by_task)
        self._usage = usage
        self._model = model
        self._clock = clock or SystemClock()
        self._routes = dict(routes or {})
        self._asked: list[ServerRequest] = []
        self._paths: list[str] = []
        self._broken: list[BaseException] = []
        self._arrival = threading.Condition()
        self.closing = threading.Event()
        self._tcp = Listener(self.answer)
        self._thread = threading.Thread(target=self._tcp.serve_forever, args=(0.02,), name="fault-server", daemon=True)
        self._thread.start()

    @property
    def base_url(self) -> str:
        """What a client takes as its base URL, ending in /v1."""
        return f"http://127.0.0.1:{self._tcp.server_address[1]}/v1"

    @property
    def requests(self) -> list[ServerRequest]:
        """Every chat request so far, in order of its number."""
        with self._arrival:
            return sorted(self._asked, key=lambda request: request.number)

    @property
    def count(self) -> int:
        """How many chat requests came: every HTTP request counts, also the client's own retries."""
        return self._script.taken

    @property
    def paths(self) -> list[str]:
        """Method and path of every request so far, chat or not, in order of arrival."""
        with self._arrival:
            return list(self._paths)

    def wait_for(self, count: int, timeout: float = 10.0) -> None:
        """Return when `count` chat requests have come. Raises `TimeoutError` after `timeout` seconds."""
        with self._arrival:
            if not self._arrival.wait_for(lambda: len(self._asked) >= count, timeout):
                raise TimeoutError(f"{len(self._asked)} of {count} chat requests came within {timeout} s")

    def assert_exhausted(self) -> None:
        """Raise `ScriptError` when the script is not used up, was asked for more, or when a function of it failed."""
        if self._broken:
            raise ScriptError(f"the script itself failed: {self._broken[0]!r}") from self._broken[0]
        self._script.assert_exhausted()

    def close(self) -> None:
        """Let go of every held reply, stop listening, and wait for the threads. Can be called twice."""
        if self.closing.is_set():
            return
        self.closing.set()
        self._tcp.shutdown()
        self._tcp.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if error is None:
            self.assert_exhausted()

    def answer(self, method: str, path: str, headers: Mapping[str, str], data: bytes) -> Iterator[Part]:
        """The response to one request: a `Raw` head and body, or a head and then pieces; None drops the connection.

        A `Raw` whose `body` is None is only a head: the pieces that follow are its body, sent in chunks.
        """
        route = path.split("?", maxsplit=1)[0]
        with self._arrival:
            self._paths.append(f"{method} {route}")
        if route == "/v1/chat/completions" and method == "POST":
            try:
                yield from self._chat(headers, json.loads(data))
            except Exception as error:  # noqa: BLE001 - what a user's function raises is reported at the end
                self._broken.append(error)
                yield http_error(500, f"the script failed: {error!r}", headers={"x-should-retry": "false"})
        elif route in self._routes:
            yield raw(json.dumps(self._routes[route]))
        elif route == "/v1/models":
            models = [{"id": self._model, "object": "model", "created": 0, "owned_by": "fsm_agent"}]
            yield raw({"object": "list", "data": models})
        else:
            known = ", ".join(["POST /v1/chat/completions", "GET /v1/models", *self._routes])
            yield http_error(404, f"no {method} {route} here; this server knows {known}", code="unknown_url")

    def _chat(self, headers: Mapping[str, str], body: dict[str, Any]) -> Iterator[Part]:
        number, entry, fault = self._script.take(lambda: ServerRequest(0, headers, body).text)
        request = ServerRequest(number, headers, body)
        with self._arrival:
            self._asked.append(request)
            self._arrival.notify_all()
        if fault:
            # A client that retries would only report the same fault again.
            yield http_error(500, fault, headers={"x-should-retry": "false"})
            return
        while isinstance(entry, Delay) or callable(entry):
            if isinstance(entry, Delay):
                self._clock.sleep(entry.seconds)
                entry = entry.item
            else:
                entry = entry(request)
        if isinstance(entry, Mapping):
            entry = raw(entry)
        if isinstance(entry, Raw):
            yield entry
            yield from (sse(event) for event in entry.events)
        else:
            yield from self._reply(request, as_sending(entry))

    def _reply(self, request: ServerRequest, sending: Sending) -> Iterator[Part]:
        trouble = sending.trouble
        if trouble is not None and trouble.after is None:
            if trouble.kind == "drop":
                yield None
                return
            self._hold(trouble.until)
        model, created = str(request.body.get("model", self._model)), int(self._clock.time())
        if sending.stream if sending.stream is not None else request.stream:
            options = request.body.get("stream_options") or {}
            chunks = chunks_of(
                sending,
                number=request.number,
                model=model,
                created=created,
                usage=self._usage,
                include_usage=bool(options.get("include_usage")),
            )
            yield Raw(headers=sending.headers, content_type=sending.content_type or _SSE, body=None)
            yield from self._streamed(sending, chunks)
        else:
            body = body_of(sending, number=request.number, model=model, created=created, usage=self._usage)
            yield from self._whole(sending, json.dumps(body, ensure_ascii=False).encode())

    def _streamed(self, sending: Sending, chunks: list[dict[str, Any]]) -> Iterator[bytes | None]:
        trouble = sending.trouble
        if trouble is not None and trouble.after is not None:
            before, chunks = split_chunks(chunks, trouble.after)
            yield from map(sse, before)
            if trouble.kind == "drop":
                yield None
            elif trouble.kind == "error":
                yield sse(trouble.error)
            elif trouble.kind == "hold":
                self._hold(trouble.until)
            if trouble.kind != "hold":
                return
        yield from map(sse, chunks)
        if sending.done:
            yield sse("[DONE]")

    def _whole(self, sending: Sending, body: bytes) -> Iterator[Part]:
        trouble = sending.trouble
        head = Raw(headers=sending.headers, content_type=sending.content_type or _JSON, body=None)
        if trouble is None or trouble.after is None:
            yield Raw(headers=head.headers, content_type=head.content_type, body=body)
        elif trouble.kind == "error":
            yield raw(trouble.error)
        else:
            yield head
            yield body[: len(body) // 2]
            if trouble.kind == "drop":
                yield None
            elif trouble.kind == "hold":
                self._hold(trouble.until)
                yield body[len(body) // 2 :]

    def _hold(self, until: threading.Event | None) -> None:
        while until is not None and not until.wait(0.02) and not self.closing.is_set():
            pass


def _check(entries: Sequence[Any]) -> None:
    """Raise `ScriptError` for what can never be sent."""
    for entry in entries:
        item = entry
        while isinstance(item, Delay | Forever):
            item = item.item
        if is_error(item) or not (callable(item) or isinstance(item, Raw | Mapping)):
            as_sending(item)


def server(
    script: Sequence[Any] | Callable[[ServerRequest], Any] | None = None,
    *,
    by_task: Mapping[str, Sequence[Any]] | None = None,
    usage: Mapping[str, Any] | tuple[int, int] | None = (10, 5),
    model: str = "fake",
    clock: Clock | None = None,
    routes: Mapping[str, Any] | None = None,
) -> FaultServer:
    """Start a server on a free loopback port; use it in a `with` statement, or `close()` it.

        with server([call("add", a=1, b=2), fault.rate_limited(retry_after=7), "3"]) as s:
            model = ChatOpenAI(base_url=s.base_url, api_key="none", model="fake", max_retries=0)

    Chat request n gets entry n of the script: a str, `call(...)`, a list of calls, `reply(...)`, a mapping (the JSON
    body as it is), anything from `fsm_agent.testing.fault`, `Delay(seconds, entry)`, `forever(entry)` as the last one,
    or a function `(ServerRequest) -> entry`. The script may also be one such function, or `by_task={text: sequence}`
    for clients that run at the same time. Streams are sent when asked for, with usage when that is asked for.

    `usage` is (prompt, completion) tokens, or OpenAI's usage mapping, of replies that do not say; None reports none.
    `clock` is what `Delay` sleeps on (default: the real one). `routes` are JSON answers for other paths, as
    `{"/props": {...}}`. Requests are kept in `requests`. Leaving the `with` statement raises `ScriptError` when the
    script is not used up, or when more was asked than it says.
    """
    return FaultServer(script, by_task=by_task, usage=usage, model=model, clock=clock, routes=routes)
