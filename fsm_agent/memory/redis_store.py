"""Conversations in Redis, for any number of machines: the newest messages of each thread, in the order in which they came."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from fsm_agent.errors import ConversationDamaged, ConversationError, DefinitionError, RunBusy
from fsm_agent.history import Block
from fsm_agent.memory.claims import Claim, busy, lost
from fsm_agent.memory.stored import LEASE, Held, Stored, StoredConversations, common_prefix, positive
from fsm_agent.memory.written import write_block

if TYPE_CHECKING:  # redis-py is an extra
    from redis import Redis

__all__ = ["RedisConversations", "newest"]

_ATTEMPTS: Final = 3
_SECONDS: Final = 5.0

# Everything that a run gives back, in one step that nothing comes between.
# KEYS: the list, the claim. ARGV: my claim; ttl in ms, 0 for none; "1" to add to the list, "0" to replace it; how long the list was
# and its last element when it was read; then the elements to write. A reply that was lost is no harm: the same call again says the same.
_WRITE: Final = """
local holder = redis.call('GET', KEYS[2])
local last = redis.call('LINDEX', KEYS[1], -1) or ''
local unchanged = redis.call('LLEN', KEYS[1]) == tonumber(ARGV[4]) and last == ARGV[5]
local ours = holder == ARGV[1]
if not ours then
    if #ARGV > 5 and last == ARGV[#ARGV] then return {'written', ''} end
    if holder or not unchanged then return {'lost', holder or ''} end
end
if ARGV[3] == '0' then
    redis.call('DEL', KEYS[1])
elseif not unchanged then
    return {'changed', ''}
end
for index = 6, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[index]) end
if tonumber(ARGV[2]) > 0 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) else redis.call('PERSIST', KEYS[1]) end
if ours then redis.call('DEL', KEYS[2]) end
return {'written', ''}
"""
_FREE: Final = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
_EXTEND: Final = (
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0"
)


class RedisConversations(StoredConversations):
    """Conversations in Redis, by URL ("redis://localhost:6379/0") or in a `redis.Redis` of yours.

    A thread is the list `key_prefix + thread_id`, one element a block. Of it the newest `keep_messages` are kept, never a part of a
    block, with the task that they belong to in front, so that what is left is always a valid conversation; a last round that is larger
    is kept whole. None keeps everything. `ttl` is how many seconds after its last turn a conversation is forgotten, as a whole; None
    for never. Adding and trimming are one step. A dropped connection is opened again, three times with growing pauses at most; a client
    of yours does what you told it to. Needs the extra `fsm-agent[redis]`. Raises `DefinitionError` for a wrong setting; the server is
    first asked by `open`.
    """

    def __init__(
        self,
        server: str | Redis,
        *,
        key_prefix: str = "agent:memory:",
        keep_messages: int | None = 12,
        ttl: float | None = None,
        lease: float = LEASE,
    ) -> None:
        name = type(self).__name__
        given: object = keep_messages
        if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
            raise DefinitionError(
                f"{name}(keep_messages={keep_messages!r}): it must be a whole number of at least 1, or None for all"
            )
        self.key_prefix = key_prefix
        self.keep_messages = keep_messages
        self.ttl = None if ttl is None else positive(name, "ttl", ttl)
        self._errors, self._client, self._owned = _client(server)
        self._script = self._client.register_script(_WRITE)
        super().__init__(lease=lease)

    def _take(self, thread_id: str, claim: Claim, *, whole: bool = True) -> Stored:
        with self._named_errors(thread_id):
            self._claim(thread_id, claim)
            try:
                texts = self._client.lrange(self._key(thread_id), 0, -1)
            except UnicodeDecodeError as error:  # a client with decode_responses
                self._release(thread_id, claim)
                raise ConversationDamaged(str(error), thread_id=thread_id, position=0) from error
            except BaseException:
                self._release(thread_id, claim)
                raise
        return Stored(texts, texts[-1] if texts else "")

    def _claim(self, thread_id: str, claim: Claim) -> None:
        key, mine = self._claim_key(thread_id), claim.to_json()
        for _ in range(_ATTEMPTS):
            if self._client.set(key, mine, nx=True, px=_milliseconds(self.lease)):
                return
            holder = _text(self._client.get(key))
            if holder == mine:  # the reply to an attempt before this one was lost
                return
            if holder is None:  # it ran out in this moment
                continue
            other = Claim.from_json(holder)
            if other is None or not other.yields_to(claim):
                raise busy(thread_id, "unknown" if other is None else other.run_id, other)
            self._client.eval(_FREE, 1, key, holder)
        raise RunBusy(f"thread {thread_id!r} is wanted by several runs at once; try again")

    def _write(self, thread_id: str, held: Held, history: tuple[Block, ...]) -> None:
        kept = newest(history, self.keep_messages)
        adds = len(kept) == len(history) and 0 < len(held.blocks) == common_prefix(held.blocks, history)
        with self._named_errors(thread_id):
            answer = self._send(thread_id, held, kept[len(held.blocks) :], add=True) if adds else ("changed", None)
            if answer[0] == "changed":  # what was there has run out meanwhile, or is more than is kept
                answer = self._send(thread_id, held, kept, add=False)
        if answer[0] == "lost":
            taker = Claim.from_json(answer[1] or "")
            raise lost(thread_id, held.claim.run_id, None if taker is None else taker.run_id)

    def _send(
        self, thread_id: str, held: Held, blocks: tuple[Block, ...], *, add: bool
    ) -> tuple[str | None, str | None]:
        answer: Any = self._script(
            keys=[self._key(thread_id), self._claim_key(thread_id)],
            args=[
                held.claim.to_json(),
                0 if self.ttl is None else _milliseconds(self.ttl),
                int(add),
                len(held.stored.texts),
                held.stored.mark,
                # The token makes the text of each element one that no other run has written.
                *[write_block(one, by=held.claim.token) for one in blocks],
            ],
        )
        return _text(answer[0]), _text(answer[1])

    def _release(self, thread_id: str, claim: Claim) -> None:
        with self._named_errors(thread_id):
            self._client.eval(_FREE, 1, self._claim_key(thread_id), claim.to_json())

    def _extend(self, claims: dict[str, Claim]) -> None:
        for thread_id, claim in claims.items():
            with self._named_errors(thread_id):
                self._client.eval(
                    _EXTEND, 1, self._claim_key(thread_id), claim.to_json(), str(_milliseconds(self.lease))
                )

    def _shut(self) -> None:
        if self._owned:
            self._client.close()

    def _key(self, thread_id: str) -> str:
        return f"{self.key_prefix}{thread_id}"

    def _claim_key(self, thread_id: str) -> str:
        # What stands in braces decides where a cluster keeps a key: the claim lies beside its list.
        return f"{{{self._key(thread_id)}}}:claim"

    @contextmanager
    def _named_errors(self, thread_id: str) -> Iterator[None]:
        try:
            yield
        except UnicodeEncodeError as error:
            raise ConversationError(
                f"thread id {thread_id!r} cannot be stored, because it holds half a character; name threads in valid Unicode"
            ) from error
        except self._errors as error:
            raise ConversationError(
                f"the conversation {thread_id!r} cannot be read from Redis or written to it ({error}); see that the server runs, that the "
                f"address and password are right, and that nothing else uses the key {self._key(thread_id)!r}"
            ) from error


def newest(history: tuple[Block, ...], messages: int | None) -> tuple[Block, ...]:
    """The newest blocks with at most `messages` messages, behind the task of the first of them; at least the last block."""
    if messages is None:
        return history
    tasks = {one.turn: one for one in history if one.kind == "task"}
    chosen: tuple[Block, ...] = ()
    count = 0
    for start in range(len(history) - 1, -1, -1):
        first = history[start]
        count += len(first.messages)
        task = tasks.get(first.turn)
        before = () if task is None or first.kind == "task" else (task,)
        if chosen and count + sum(len(one.messages) for one in before) > messages:
            break
        chosen = (*before, *history[start:])
    return chosen


def _client(server: str | Redis) -> tuple[type[Exception], Redis, bool]:
    """What redis-py raises, a client, and whether it is ours to close."""
    try:
        import redis  # noqa: PLC0415 - an extra
        from redis.backoff import ExponentialBackoff  # noqa: PLC0415 - the same
        from redis.retry import Retry  # noqa: PLC0415 - the same
    except ImportError as error:
        raise DefinitionError("RedisConversations needs redis-py: pip install 'fsm-agent[redis]'") from error
    failure: type[Exception] = redis.RedisError
    if not isinstance(server, str):
        if inspect.iscoroutinefunction(getattr(server, "execute_command", None)):
            raise DefinitionError("RedisConversations takes a redis.Redis, not one of redis.asyncio")
        return failure, server, False
    try:
        client = redis.Redis.from_url(
            server,
            retry=Retry(ExponentialBackoff(cap=1.0, base=0.05), _ATTEMPTS),
            socket_timeout=_SECONDS,
            socket_connect_timeout=_SECONDS,
            health_check_interval=30,
        )
    except ValueError as error:
        raise DefinitionError(f"RedisConversations: the URL of the server is not one ({error})") from error
    return failure, client, True


def _milliseconds(seconds: float) -> int:
    return math.ceil(seconds * 1000)


def _text(value: Any) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
