"""What secrets are called, and what they look like."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT_KEYS", "DEFAULT_PATTERNS", "GLUED", "NO_TOKEN", "NO_VALUE", "TRAILING", "SecretPattern"]


@dataclass(frozen=True, slots=True)
class SecretPattern:
    """A kind of secret that is known by its look.

    `regex` may name the part to hide `secret`; without that group the whole match is hidden. It is tried only on text
    that holds one of `hints` (lower case), which keeps plain text cheap; without hints it is always tried.
    """

    name: str
    regex: re.Pattern[str]
    hints: tuple[str, ...] = ()


DEFAULT_KEYS: Final = frozenset(
    (
        "access_key access_key_id access_token account_key api_key api_secret api_token app_secret auth auth_key "
        "auth_token authorization bearer bearer_token client_key client_secret connection_string cookie credential cvc "
        "cvv encryption_key id_token jwt master_key otp passcode passphrase passwd password private_key pwd "
        "refresh_token secret secret_access_key secret_key secret_token session session_id session_key session_token "
        "signing_key ssh_key subscription_key token webhook_secret 密码 口令 密钥 令牌 凭证"
    ).split()
)
"""Names that secrets stand under, in any spelling: `api_key` is `apiKey`, `X-API-KEY`, `OPENAI_API_KEY`, `api_keys`.

A counter is not one of them: `max_tokens`, `token_budget`, `input_tokens`."""

# A name may go on after the word that makes it secret: `password_hash`, `token_v2`.
TRAILING: Final = frozenset(
    "b64 base64 confirm confirmation current enc hash header json new old pem plain raw text v value".split()
)
# Before "token" these make it a piece of text, or a count.
NO_TOKEN: Final = frozenset(
    "bos cls completion each end eos first input last mask max min next num of output pad per prompt sep special start "
    "stop total unk".split()
)
# Found behind any prefix, as in `dbpassword` and `OPENAIAPIKEY`; the shorter names would be found in other words.
GLUED: Final = ("accesskey", "accesstoken", "apikey", "authtoken", "passwd", "password", "privatekey", "secretkey")
# After "password:" these are a signature or a schema, not a password.
NO_VALUE: Final = frozenset("any bool bytes false int none null optional required secretstr str string true".split())

# Where a token may start: not inside a word, unless what is before it is an escaped line end or a percent-encoded sign.
_START = r"(?:(?<![\w-])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"


def _secret(name: str, regex: str, *hints: str) -> SecretPattern:
    return SecretPattern(name, re.compile(regex, re.ASCII), hints)


def _token(name: str, start: str, length: int, *hints: str) -> SecretPattern:
    """A token that is known by its first characters; it takes the whole run, so nothing new can start behind it."""
    return _secret(name, rf"{_START}{start}[\w-]{{{length},}}+", *hints)


DEFAULT_PATTERNS: Final[tuple[SecretPattern, ...]] = (
    _secret(
        "private key",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?P<secret>(?:[^-]++|-(?!----))++)",
        "private key",
    ),
    _secret("password in a URL", r"://[^\s/?#:@\"'<>\\]{0,256}+:(?P<secret>[^\s/?#\"'<>\\]+)@", "://"),
    _secret("token in a URL", r"://(?P<secret>[^\s/?#:@\"'<>\\]{20,}+)@", "://"),
    _secret("signed URL", r"(?i)[?&](?:sig|(?:x-(?:amz|goog)-)?signature)=(?P<secret>[^&\s\"'<>\\]++)", "sig"),
    _secret("key in a URL", r"(?i)[?&](?:key|appid)=(?=[\w.-]*?\d)(?P<secret>[\w.-]{20,}+)", "key=", "appid="),
    _secret(
        "webhook", r"(?i)hooks\.slack\.com/(?:services|triggers|workflows)/(?P<secret>[\w/-]++)", "hooks.slack.com"
    ),
    _secret("webhook", r"(?i)webhook\.office\.com/(?P<secret>[\w/@-]++)", "webhook.office.com"),
    _secret("webhook", r"(?i)discord(?:app)?\.com/api/webhooks/(?P<secret>[\w/-]++)", "/api/webhooks/"),
    _secret(
        "bearer",
        _START + r"(?i:bearer)[ \t]{1,4}(?=[\w.~+/-]*?(?:[\d_]|[a-z][A-Z]|[A-Z]{2}))(?P<secret>[\w.~+/=-]{6,}+)",
        "bearer",
    ),
    _secret(
        "basic",
        _START + r"(?i:basic)[ \t]{1,4}(?=[\w+/-]*?(?:[\d=]|[a-z][A-Z][\w+/-]*?[a-z][A-Z]))(?P<secret>[\w+/=-]{12,}+)",
        "basic",
    ),
    _token("OpenAI, Anthropic", r"[sr]k-(?=[\w-]*?[A-Z0-9])", 6, "sk-", "rk-"),
    _token("Stripe", r"[sprw][kh](?:_live|_test|sec)?_(?=[\w-]*?[A-Z0-9])", 8, "k_", "whsec_"),
    _token("AWS", r"(?:AKIA|ASIA|AROA|AIDA)(?=[A-Z0-9]{12})", 12, "akia", "asia", "aroa", "aida"),
    _token("GitHub", r"(?:gh[oprsu]|github_pat)_", 10, "gho_", "ghp_", "ghr_", "ghs_", "ghu_", "github_pat_"),
    _token("GitLab, PyPI, npm", r"(?:glpat-|pypi-|npm_)(?=[\w-]*?[A-Z0-9])", 16, "glpat-", "pypi-", "npm_"),
    _token("Slack", r"(?:xox[a-z]|xapp)-", 8, "xox", "xapp-"),
    _token("Google", r"(?:AIza|GOCSPX-|ya29\.)", 16, "aiza", "gocspx-", "ya29."),
    _token(
        "model hosts",
        r"(?:hf_|gsk_|lsv2_|nvapi-|pplx-|r8_|tvly-|xai-)(?=[\w-]*?[A-Z0-9])",
        12,
        *("hf_", "gsk_", "lsv2_", "nvapi-", "pplx-", "r8_", "tvly-", "xai-"),
    ),
    _token("SendGrid", r"SG\.[\w-]{16,}+\.", 16, "sg."),
    _token("Shopify", r"shp(?:at|ca|pa|ss)_", 16, "shpat_", "shpca_", "shppa_", "shpss_"),
    _token("Databricks", r"dapi(?=[0-9a-f]{32})", 32, "dapi"),
    _token(
        "hosts of services",
        r"(?:csk-|dckr_pat_|dop_v1_|figd_|glsa_|hvs\.|lin_api_|NRAK-|ntn_|PMAK-|sbp_|sq0[a-z]{3}-|tgp_v1_)(?=[\w-]*?[A-Z0-9])",
        16,
        *("csk-", "dckr_pat_", "dop_v1_", "figd_", "glsa_", "hvs.", "lin_api_", "nrak-", "ntn_", "pmak-", "sbp_"),
        *("sq0", "tgp_v1_"),
    ),
    _secret("Telegram", r"(?<!\d)\d{8,10}:(?P<secret>AA[\w-]{30,}+)", ":aa"),
    _secret(
        "curl",
        # Of the options that take a name and a password, the short ones may follow others that take nothing, and stand at their value.
        r"\bcurl(?:\.exe)?[ \t\"',](?:[^\r\n]|(?<=\\)\r?\n){0,300}?(?<=[ \t\"'])"
        r"(?:-[0-46aBfgGiIjJklLMnNOpqRsSvVZ#]{0,16}+[uUE]|--(?:proxy-)?(?:user|cert)(?=[ \t=\"']))[ \t=\"',]{0,6}"
        r"[^\s:\"']{0,256}+:(?P<secret>[^\s\"'`]++)",
        "curl",
    ),
    _secret("JWT", _START + r"eyJ[\w-]{8,}+\.[\w-]{4,}+(?:\.[\w-]*+){0,3}", "eyj"),
    _secret(
        "told in words",
        r"(?i)\b(?:pass(?:word|phrase|code|wd)|(?:api|access|private|secret)[ _-]?key|secret|token|credentials?)"
        r"[ \t:\"'`(]{1,4}(?:(?:is|was|provided)[ \t:\"'`(]{1,4})"
        r"(?=[!-~]{0,64}?[a-z])(?=[!-~]{0,64}?[0-9])(?P<secret>[^\s\"'`,;()]{6,}+)",
        *("pass", "key", "secret", "token", "credential"),
    ),
    _secret(
        "long after a secret word",
        r"(?i)\b(?:pass(?:word|phrase|code|wd)|(?:api|access|private|secret)[ _-]?key|secret|token|credentials?)"
        r"[ \t:\"'`(]{1,4}(?:(?:for|of|value)[ \t:\"'`(]{1,4})?"
        r"(?=[\w+/-]{0,64}?[a-z])(?=[\w+/-]{0,64}?[0-9])(?P<secret>[\w+/=-]{16,}+)",
        *("pass", "key", "secret", "token", "credential"),
    ),
    _secret(
        "told in Chinese",
        r"(?:密码|口令|密钥|令牌|凭证)(?:是|为)?[ \t]{0,3}(?P<secret>[!-~]{6,}+)",
        "密",
        "口令",
        "令牌",
        "凭证",
    ),
)
