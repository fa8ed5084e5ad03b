"""Secrets do not reach a log; everything else does, unchanged."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.tools import StructuredTool, ToolException

from fsm_agent import Agent, Limits, table, tool
from fsm_agent.observe import event_of, silent_logger
from fsm_agent.redact import DEFAULT_KEYS, DEFAULT_PATTERNS, REDACTED, SecretPattern, redact, redact_text, summarise
from fsm_agent.testing import ScriptedModel, call

LEAK = "hunter2"
# Made up, and put together here so that no scanner takes this file for a leak.
TOKENS = {
    "OpenAI": "sk-" + "proj-Ab12Cd34Ef56Gh78",
    "OpenAI, short": "sk-" + "abc123",
    "Anthropic": "sk-" + "ant-api03-AAAABBBBCCCC",
    "AWS": "AKIA" + "IOSFODNN7EXAMPLE",
    "GitHub": "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a",
    "GitHub, fine-grained": "github_pat_" + "11ABCDEFG0abcdefghijkl",
    "GitLab": "glpat-" + "abcDEF123456ghiJKL78",
    "Slack": "xoxb-" + "123456789012-abcdefGHIJKL",
    "Google": "AIza" + "SyA1234567890abcdefghijklmnopqrstuvw",
    "Hugging Face": "hf_" + "abcdefGHIJKL1234567890",
    "LangSmith": "lsv2_" + "pt_0123456789abcdef_0123",
    "Stripe": "sk_" + "live_4eC39HqLyjWDarjtT1zdp7dc",
    "SendGrid": "SG." + "abcdefghijklmnop_QRSTU.abcdefghijklmnopqrstuvwxyz0123",
    "Shopify": "shpat_" + "0123456789abcdef0123456789abcdef",
    "Databricks": "dapi" + "0123456789abcdef0123456789abcdef",
    "Vault": "hvs." + "CAESIJabcdefGHIJKLMN0123",
    "DigitalOcean": "dop_v1_" + "0123456789abcdef0123456789abcdef",
    "New Relic": "NRAK-" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ0",
    "JWT": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r",
    "Bearer": "Bearer " + "mF_9.B5f-4.1JqM",
    "Basic": "Basic " + "dXNlcjpodW50ZXIyYWJj",
}

SECRET_NAMES = [
    *(
        "api_key",
        "apiKey",
        "API_KEY",
        "X-API-Key",
        "OPENAI_API_KEY",
        "openAIApiKey",
        "apikey",
        "OPENAIAPIKEY",
        "api_keys",
    ),
    *("authorization", "Proxy-Authorization", "password", "dbpassword", "Password1", "password_hash", "user.password"),
    *(
        "passwd",
        "pwd",
        "passphrase",
        "token",
        "access_token",
        "accessToken",
        "access_tokens",
        "csrf-token",
        "auth_token_v2",
    ),
    *("secret", "clientSecret", "secrets", "aws_secret_access_key", "AWS_ACCESS_KEY_ID", "private_key", "privateKey"),
    *("credential", "credentials", "cookie", "Set-Cookie", "cookies", "session", "session_id", "sessionToken", "jwt"),
    *("密码", "数据库密码", "密钥"),
]
PLAIN_NAMES = [
    *(
        "max_tokens",
        "maxTokens",
        "token_budget",
        "tokens",
        "input_tokens",
        "total_tokens",
        "prompt_tokens",
        "tokens_used",
    ),
    *("max_token", "eos_token", "next_token", "tokenizer", "token_count", "tool_call_id", "thread_id", "run_id", "key"),
    *(
        "keys",
        "author",
        "authority",
        "secretary",
        "monkey",
        "passage",
        "compass",
        "keyboard",
        "city",
        "signature",
        "obsession",
    ),
    *("password_length", "cookie_policy", "session_count", "", "_", "密度"),
]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_value_is_hidden_by_its_name_in_any_spelling(name: str) -> None:
    """What stands under a secret name is hidden: text, numbers, and every leaf of what is nested."""
    value = {name: LEAK, "deep": [{name: {"user": LEAK, "ids": [1234, (LEAK,)]}}]}
    assert redact(value) == {
        name: REDACTED,
        "deep": [{name: {"user": REDACTED, "ids": [REDACTED, (REDACTED,)]}}],
    }


@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_a_counter_or_a_plain_name_hides_nothing(name: str) -> None:
    """Names that only look like secrets, the counters of tokens first, keep their values."""
    value = {name: 100, "deep": [{name: "as it was"}]}
    assert redact(value) == value
    assert redact_text(f"{name}=100, {name}: 7") == f"{name}=100, {name}: 7"


def test_an_empty_or_missing_secret_stays_visible() -> None:
    """That a password is absent, empty or switched off is no secret, and is what an error is about."""
    value: dict[str, object] = {"password": "", "api_key": None, "token": False, "cookies": []}
    assert redact(value) == value


@pytest.mark.parametrize("kind", TOKENS)
@pytest.mark.parametrize(
    "around", ["{}", "called with {} and failed", '{{"q": "{}"}}', "a\\n{}", "值{}，完", "?q=%3D{}&x=1", "[{}]"]
)
def test_a_token_is_hidden_by_its_look_wherever_it_stands(kind: str, around: str) -> None:
    """Tokens of known services are hidden inside any text, and nothing beside them is."""
    hidden = redact_text(around.format(TOKENS[kind]))
    shown = around.format(f"{kind} {REDACTED}" if kind in ("Bearer", "Basic") else REDACTED)
    assert hidden == shown


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f"password={LEAK}", "password=[redacted]"),
        (f"export OPENAI_API_KEY={LEAK}; ls", "export OPENAI_API_KEY=[redacted]; ls"),
        (f'{{"a": 1, "password": "{LEAK}", "b": 2}}', '{"a": 1, "password": "[redacted]", "b": 2}'),
        ('{"password": "hun\\"ter2"}', '{"password": "[redacted]"}'),
        (f'{{\\"password\\": \\"{LEAK}\\", \\"a\\": 1}}', '{\\"password\\": \\"[redacted]\\", \\"a\\": 1}'),
        (f"{{'api_key': '{LEAK}'}}", "{'api_key': '[redacted]'}"),
        (f"os.environ['API_KEY'] = '{LEAK}'", "os.environ['API_KEY'] = '[redacted]'"),
        (f"login(user='ann', password='{LEAK}')", "login(user='ann', password='[redacted]')"),
        (f"login(password={LEAK})", "login(password=[redacted])"),
        (f"note: password={LEAK}", "note: password=[redacted]"),
        (f"--api-key {LEAK} --verbose", "--api-key [redacted] --verbose"),
        (f"https://x.example/?api_key={LEAK}&q=1", "https://x.example/?api_key=[redacted]&q=1"),
        (f"https://x.example/?sig={LEAK}&q=1", "https://x.example/?sig=[redacted]&q=1"),
        (f"https://ann:{LEAK}@x.example/", "https://ann:[redacted]@x.example/"),
        (f"redis://:p@{LEAK}@localhost:6379/0", "redis://:[redacted]@localhost:6379/0"),
        (f"Authorization: Digest u=a, r={LEAK}\nAccept: x", "Authorization: [redacted]\nAccept: x"),
        (f"Cookie: a=1; b={LEAK}\r\nAccept: x", "Cookie: [redacted]\r\nAccept: x"),
        (f'Cookie: sid="{LEAK}"; b="{LEAK}"', "Cookie: [redacted]"),
        (f"token=Bearer {LEAK}", "token=[redacted]"),
        (f'Authorization: Token token="{LEAK}", nonce="{LEAK}"', "Authorization: [redacted]"),
        (f"api_key = f\"{LEAK}\"; token = b'{LEAK}'", "api_key = f\"[redacted]\"; token = b'[redacted]'"),
        (f'password = """{LEAK}"""', 'password = """[redacted]"""'),
        (f"curl -s -u ann:{LEAK} https://x.example/", "curl -s -u ann:[redacted] https://x.example/"),
        (f"curl -uann:{LEAK} https://x.example/", "curl -uann:[redacted] https://x.example/"),
        (f"curl -sSu 'ann:{LEAK}' -k", "curl -sSu 'ann:[redacted]' -k"),
        (f'curl.exe -u":{LEAK}" https://x.example/', 'curl.exe -u":[redacted]" https://x.example/'),
        (f"curl -X POST \\\n  -U ann:{LEAK} \\\n  -k", "curl -X POST \\\n  -U ann:[redacted] \\\n  -k"),
        (f"`curl --proxy-user=ann:{LEAK}`", "`curl --proxy-user=ann:[redacted]`"),
        (f'["curl", "-u", "ann:{LEAK}", "-k"]', '["curl", "-u", "ann:[redacted]", "-k"]'),
        (f"curl --cert me.pem:{LEAK} https://x.example/", "curl --cert me.pem:[redacted] https://x.example/"),
        (
            "for url: https://x.example/?q=Oslo&appid=" + "0123456789abcdef" * 2,
            "for url: https://x.example/?q=Oslo&appid=[redacted]",
        ),
        ("https://x.example/v1?key=" + "AQ.Ab8RN6abcdefghijkl&alt=sse", "https://x.example/v1?key=[redacted]&alt=sse"),
        (
            "api.telegram.org/bot123456789:" + "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1/getMe",
            "api.telegram.org/bot123456789:[redacted]/getMe",
        ),
        ("Incorrect API key provided: ab12" + "cd34ef56. See", "Incorrect API key provided: [redacted] See"),
        (f"my password is {LEAK}, remember it", "my password is [redacted], remember it"),
        (f"secret {'0123456789abcdef' * 2}", "secret [redacted]"),
        (f"<password>{LEAK}</password>", "<password>[redacted]</password>"),
        (f"a\\npassword={LEAK}", "a\\npassword=[redacted]"),
        (f"a\\ntoken={LEAK}", "a\\ntoken=[redacted]"),
        (f"密码：{LEAK}，谢谢", "密码：[redacted]，谢谢"),
        (f"我的密码是{LEAK}", "我的密码是[redacted]"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-x\n-----END RSA PRIVATE KEY----- end",
            "-----BEGIN RSA PRIVATE KEY-----[redacted]-----END RSA PRIVATE KEY----- end",
        ),
        ("-----BEGIN PRIVATE KEY-----\\nMIIE cut off", "-----BEGIN PRIVATE KEY-----[redacted]"),
    ],
)
def test_a_secret_is_hidden_in_running_text(text: str, hidden: str) -> None:
    """Every written form of `name = value`, addresses with a password, headers, keys in PEM, and plain words."""
    assert redact_text(text) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The weather in Oslo is 7 degrees.",
        "the password is wrong",
        "password: str, token: str | None",
        "bearer instruments and Basic JavaScript knowledge",
        "sk-learn, task-based, risk-free, disk_usage",
        "commit 0123456789abcdef0123456789abcdef01234567",
        "run 123e4567-e89b-12d3-a456-426614174000 used 300 tokens of token_budget=1000",
        "https://example.com:8080/a@b?x=a:b@c",
        "https://example.com/?key=a-plain-name-of-a-thing&appid=730",
        "curl -o out:1 https://example.com",
        "curl -XPUT http://h:80/ -u $LOGIN https://h:81/ --url u:1 -o out-u a:b",
        '["http://h:80","a@b.example"]',
        "ratio 3:4 at 12:30, see C:\\tools",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "今天天气很好：7 度。",
    ],
)
def test_text_without_a_secret_is_the_same_object(text: str) -> None:
    """Ordinary text passes through untouched, hashes, identifiers and addresses included."""
    assert redact_text(text) is text


def test_lists_of_names_and_values_are_read_as_such() -> None:
    """Headers kept as pairs, and environments kept as {"name", "value"}, are hidden by the name beside the value."""
    value = {"headers": [("Authorization", LEAK), ("Accept", "x")], "env": [{"name": "DB_PASSWORD", "value": LEAK}]}
    assert redact(value | {"form": [{"key": "apiKey", "value": LEAK}]}) == {
        "headers": [("Authorization", REDACTED), ("Accept", "x")],
        "env": [{"name": "DB_PASSWORD", "value": REDACTED}],
        "form": [{"key": "apiKey", "value": REDACTED}],
    }


def test_a_secret_used_as_a_key_is_hidden_without_losing_an_entry() -> None:
    """Keys are searched by look; two that become equal are told apart."""
    redacted = redact({TOKENS["OpenAI"]: 1, TOKENS["AWS"]: 2, "city": 3})
    assert list(redacted.values()) == [1, 2, 3]
    assert not any(token in json.dumps(redacted) for token in TOKENS.values())


def test_own_keys_and_patterns_replace_or_extend_the_defaults() -> None:
    """A caller adds names and looks, or gives only its own."""
    badge = SecretPattern("badge", re.compile(r"badge (?P<secret>\d+)"))
    keys, patterns = DEFAULT_KEYS | {"cardNumber"}, (*DEFAULT_PATTERNS, badge)
    value = {"card_number": LEAK, "text": f"card-number: {LEAK} badge 77 {TOKENS['AWS']}"}
    assert redact(value, keys=keys, patterns=patterns) == {
        "card_number": REDACTED,
        "text": "card-number: [redacted] badge [redacted] [redacted]",
    }
    assert redact({"password": LEAK, "pin": 1}, keys={"pin"}, patterns=()) == {"password": LEAK, "pin": REDACTED}


def test_an_own_pattern_without_hints_is_always_tried() -> None:
    """A look that names no hints is found in a text that holds none of the others' either."""
    badge = SecretPattern("badge", re.compile(r"badge (?P<secret>\d+)"))
    assert redact_text("badge 77", patterns=(*DEFAULT_PATTERNS, badge)) == "badge [redacted]"


@pytest.mark.parametrize("name", ["A_" * 60 + "PASSWORD", "密码是"], ids=["long", "told"])
def test_what_stands_under_a_secret_name_is_hidden_whatever_it_is(name: str) -> None:
    """A part that is shown elsewhere too, a pair, an exact number and what cannot be read are hidden there, as text is."""
    shared = [LEAK]
    value = {"words": shared, name: [shared, ("user", LEAK), Decimal("12.5"), Hostile(), object()]}
    hidden = [[REDACTED], (REDACTED, REDACTED), REDACTED, REDACTED, REDACTED]
    assert redact(value) == {"words": [LEAK], name: hidden}


def test_a_cycle_ends_and_shared_parts_do_not() -> None:
    """A container within itself becomes "[cycle]"; one that is only used twice is shown twice."""
    shared = {"city": "Oslo"}
    value: dict[str, Any] = {"a": shared, "b": [shared]}
    value["self"] = value
    assert redact(value) == {"a": shared, "b": [shared], "self": "[cycle]"}


def test_depth_and_breadth_are_bounded() -> None:
    """Nesting is cut off, and a graph with exponentially many paths takes one visit a container."""
    deep: list[Any] = [LEAK]
    for _ in range(5_000):
        deep = [deep]
    assert "[too deep]" in str(redact(deep))
    for depth, shown in ((32, True), (33, False)):
        nested: Any = "city"
        for _ in range(depth):
            nested = [nested]
        assert (redact(nested) == nested) is shown
    wide: list[Any] = ["x"]
    for _ in range(30):
        wide = [wide, wide]
    redacted = redact(wide)
    assert redacted[0] is redacted[1]


class Hostile(Mapping[str, object]):
    """A mapping of which every part raises."""

    def __getitem__(self, key: str) -> object:
        raise RuntimeError(LEAK)

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError(LEAK)

    def __len__(self) -> int:
        raise RuntimeError(LEAK)

    def __repr__(self) -> str:
        raise RuntimeError(LEAK)


class Client:
    """An object whose representation tells its key."""

    def __repr__(self) -> str:
        return f"Client(api_key='{LEAK}', url='x')"


def test_what_is_no_json_is_shown_without_its_secrets() -> None:
    """Objects are shown by their redacted `repr`, bytes by their size, dates as they are; what raises, by its type."""
    assert redact([Client(), b"\x00hunter2", date(2026, 1, 2), ValueError(f"token={LEAK}"), Hostile()]) == [
        "Client(api_key='[redacted]', url='x')",
        "<8 bytes>",
        date(2026, 1, 2),
        "ValueError('token=[redacted]')",
        "<Hostile>",
    ]


NAMES = st.sampled_from([*SECRET_NAMES, *PLAIN_NAMES]) | st.text(max_size=8)
FRAGMENTS = st.lists(
    st.one_of(
        st.sampled_from(
            [*SECRET_NAMES, *TOKENS.values(), REDACTED, "Bearer ", "eyJ", "sk-", "AKIA", "ghp_", "a1B2c3D4e5F6g7H8"]
        ),
        st.sampled_from(
            ["=", ": ", ":", " is ", " ", "://", "@", '"', "'", "\\", "\\n", "\n", "--", "-----", "[", "]", "{", "}"]
        ),
        st.sampled_from(
            [",", ";", "&", "<", ">", "(", ")", "_", "-", ".", "：", "密码", "是", "-----BEGIN PRIVATE KEY-----"]
        ),
        st.text(max_size=4),
    ),
    max_size=10,
).map("".join)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20) | FRAGMENTS
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=12,
)


@given(FRAGMENTS)
@example("password=[redacted]x")
@example("AKIA" + "A" * 16 + "sk-" + "abc123")
def test_redacting_text_twice_changes_nothing_more(text: str) -> None:
    """What is redacted stays as it is when it passes a second log."""
    once = redact_text(text)
    assert redact_text(once) == once


@given(JSON)
def test_redacting_twice_changes_nothing_more(value: Any) -> None:
    """The same for whole values, keys included."""
    once = redact(value)
    assert redact(once) == once


def same_shape(before: Any, after: Any) -> bool:
    """Whether `after` has the containers and lengths of `before`, and text or the same leaf at every leaf."""
    if isinstance(before, dict):
        pairs = zip(before.values(), after.values(), strict=True) if isinstance(after, dict) else ()
        return isinstance(after, dict) and all(same_shape(*pair) for pair in pairs)
    if isinstance(before, list | tuple):
        pairs = zip(before, after, strict=True) if type(after) is type(before) else ()
        return type(after) is type(before) and all(same_shape(*pair) for pair in pairs)
    return after in (before, REDACTED) or (isinstance(before, str) and isinstance(after, str))


@given(JSON)
def test_the_shape_of_a_value_is_kept(value: Any) -> None:
    """Containers keep type, order and length; a leaf changes only to redacted text; the input is not touched."""
    before = repr(value)
    assert same_shape(value, redact(value))
    assert repr(value) == before


@given(st.text(alphabet="abcdefghij mnopqrtuvwxz.,!?äöü中文", max_size=200))
def test_plain_prose_is_unchanged(text: str) -> None:
    """Letters, spaces and stops are never taken for a secret."""
    assert redact_text(text) == text


@given(st.sampled_from(SECRET_NAMES), st.text(alphabet="abcXYZ0189!#$%*+/_.~^-", min_size=6, max_size=30))
def test_no_written_form_leaks_a_value(name: str, value: str) -> None:
    """JSON, a Python dict, a keyword, an assignment, an address, a header and JSON within JSON hide the same value."""
    value = f"q{value}q"
    inner = json.dumps({name: value}, ensure_ascii=False)
    for text in (
        inner,
        json.dumps(inner, ensure_ascii=False),
        repr({name: value}),
        f"{name}={value}",
        f"f({name}={value!r})",
        f"{name}: {value}",
    ):
        assert value not in redact_text(text), text


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "a",
            "-",
            "=",
            "a=",
            "a:",
            "password",
            "password=",
            'password="',
            "password=)",
            "token ",
            "token:is:",
            "secret is ",
        ),
        *(
            "sk-",
            "sk-a ",
            "eyJ",
            "eyJaaaaaaaaa.",
            "Bearer ",
            "bearer a",
            "basic a",
            "://",
            "://a:",
            "://a:b",
            "@",
            "\\",
            '\\"',
        ),
        *(
            "-----BEGIN PRIVATE KEY-----",
            "-----BEGIN ",
            "AKIA",
            "ghp_",
            "xoxb-",
            "?sig=",
            "密码",
            "密码是",
            "<token>",
            "--key ",
        ),
        *(
            "[redacted]",
            "password is a",
            "api key for ",
            "hooks.slack.com/services/",
            "%3D",
            "\\n",
            "A1",
            "authorization: ",
            "curl -u a",
            "curl -sSsSsSsS",
            "curl \\\n -u",
            ' a="b',
            "?key=",
            "SG.",
            "1234567:AA",
        ),
    ],
)
def test_time_grows_with_the_text_and_not_with_its_square(piece: str) -> None:
    """A text of the worst kind takes about eight times as long as an eighth of it: no quadratic search."""

    def cost(size: int) -> float:
        text = ("password token secret key= " + piece * (size // len(piece)))[:size]
        best = float("inf")
        for _ in range(3):
            started = time.process_time()
            redact_text(text)
            best = min(best, time.process_time() - started)
        return best

    small, large = cost(1 << 14), cost(1 << 17)
    assert large < 24 * small + 0.02


def test_a_summary_shows_types_sizes_and_plain_names_only() -> None:
    """The default for prompts and tool arguments: nothing of a value is shown."""
    value = {"city": LEAK, "days": 3, "where": {"a": LEAK}, TOKENS["AWS"]: [LEAK], f"my {LEAK}": None}
    assert summarise(value) == "dict(5: city=str(7), days=int, where=dict(1), ?=list(1), ?=NoneType)"
    assert summarise([LEAK, LEAK]) == "list(2)"
    assert summarise(LEAK) == "str(7)"
    assert summarise(Client()) == "Client"
    assert summarise(Hostile()) == "Hostile"


@given(JSON, st.integers(0, 60))
def test_a_summary_is_one_short_line(value: Any, limit: int) -> None:
    """A summary never raises, never passes its limit, and never breaks the line."""
    text = summarise(value, limit)
    assert len(text) <= limit
    assert len(text.splitlines()) <= 1


@pytest.mark.parametrize("at", range(0, 30, 3))
def test_half_of_a_secret_is_none_in_what_is_said_of_a_run(at: int) -> None:
    """A text is cut for the detail, the log and a value of a guard after secrets are out of it: what is left of one has no look."""
    address = f"postgresql://ann:{LEAK}{LEAK}@db.example/x"

    @table.guard("a result is there")
    def seen(ctx: Any) -> tuple[bool, dict[str, Any]]:
        return bool(ctx.results), {"said": "v" * (170 + at) + address}

    @tool
    def look() -> str:
        """Look."""
        return "r" * (170 + at) + address

    def fail() -> str:
        """Fail."""
        raise ToolException("e" * (455 + at) + address)

    failing = StructuredTool.from_function(fail, handle_tool_error=True)
    before = {"DECIDE --decided--> PLAN": "DECIDE --decided [seen]--> PLAN"}
    agent = Agent(
        ScriptedModel([call("look"), call("fail")]),
        [look, failing],
        limits=Limits(max_steps=2, on_limit="stop"),
        table=table.extend(guards=[seen], before=before),
        logger=silent_logger(),
    )
    result = agent.invoke("Look.")
    assert result.reason == "max_steps"
    for said in (result.detail, *(str(event_of(one)) for one in result.transitions)):
        assert "hunter" not in said
