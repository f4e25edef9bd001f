"""The forms of secrets: one row for each kind, with the beginning by which a text is searched for it quickly.

The forms are those that the issuers document, or that GitHub's and GitLab's secret scanning list.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter
from collections.abc import Callable
from functools import cached_property

_TOKEN = "[A-Za-z0-9_-]"
_ALNUM = "[A-Za-z0-9]"
_HEX = "[0-9a-f]"

MIN_OPAQUE = 16
"""Characters of the shortest value that is taken for a key because of its name; shorter ones are words or numbers."""

GATE_CHARACTERS = 10
"""Of what follows a key's beginning, when a text is searched for texts that may hold one: with fewer, more texts are
searched rule by rule."""

MIN_BITS = 3.0
"""Bits of entropy for each character of a value that is taken for a key: random text of 16 characters has 3.5 and
more, words of a language below 3."""

MIN_BASE64_BITS = 4.2
"""The same for base64 of 32 characters and more: random ones have 4.4 to 5.5."""

# Expressions as text: Python compiles each at its first use, which most processes do not come to.
_DUMMY = (
    r"(?i)^(?:\$|%|\{|<|\*+|x{3,}|\.{2,}|env[.:]|process\.|os\.)|example|your[_-]|change_?me|placeholder|redacted|dummy"
)
_PLAIN_PASSWORD = r"(?i)(?:pass(?:word|wd)?|pwd|secret|user|token|none|null|true|false|undefined)\d{0,3}"
_WORD = r"(?:[A-Za-z][a-z]*|[A-Z]+|v?\d+(?:\.\d+)*)"
_CODE = r"[A-Za-z_][\w]*(?:(?:\.|->|::)[A-Za-z_]\w*)*"
_NOT_SECRET_NAME = (
    r"(?i)page|continu|cursor|(?<!ac)count|limit|max|num|total|type|usage|budget|public|tokeniz|tokens|csrf|hash|path|file|name"
    r"|url|_id$|length|expir|hint|placeholder"
)


class Rule:
    """A kind of secret. `gate` finds texts that may hold one (the syntax that Rust's and Python's expressions have in
    common); `pattern` matches at the place of one of the `literals`, and its group `v` is the secret itself, or else
    the whole match. `holds` looks at the name before it, the value and what follows it. The pattern begins `back`
    characters before the literal; with `folds` letters of both cases are equal."""

    def __init__(
        self,
        kind: str,
        literals: tuple[str, ...],
        pattern: str,
        *,
        gate: str | None = None,
        holds: Callable[[re.Match[str]], bool] | None = None,
        folds: bool = False,
        back: int = 0,
    ) -> None:
        self.kind = kind
        self.literals = literals
        self.gate = pattern if gate is None else gate
        self.holds = holds
        self.folds = folds
        self.back = back
        self._pattern = pattern

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled when a text may hold one: all of them together take longer than a client's hook may."""
        return re.compile(self._pattern, re.IGNORECASE if self.folds else 0)


def span_of(found: re.Match[str]) -> tuple[int, int]:
    """Where the secret of a match is."""
    names = found.re.groupindex
    return next((found.span(each) for each in "vwx" if each in names and found[each] is not None), found.span())


def value_of(found: re.Match[str]) -> str:
    """The secret of a match."""
    start, end = span_of(found)
    return found.string[start:end]


def bits(value: str) -> float:
    """The entropy of a value's characters, in bits for each."""
    return -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values())


def _is_mixed(value: str) -> bool:
    """Whether it has letters and digits in one of its parts: an identifier, a path and a version do not."""
    parts = [part for part in re.split(r"[-_./:@+=~]", value) if part]
    return any(not re.fullmatch(_WORD, part) and len(part) > 3 for part in parts)


def _is_opaque(value: str) -> bool:
    has_both = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return len(value) >= MIN_OPAQUE and has_both and bits(value) >= MIN_BITS and _is_mixed(value)


def _is_password(value: str) -> bool:
    if re.fullmatch(_PLAIN_PASSWORD, value) or len(value) < 6 or value[0] in "/. " or value[-1] == " ":
        return False
    kinds = sum(any(test(c) for c in value) for test in (str.isdigit, str.islower, str.isupper))
    symbols = any(not c.isalnum() and c not in "_.-" for c in value)
    return (kinds + symbols >= 2 and not re.fullmatch(_CODE, value)) or (kinds >= 2 and any(c.isdigit() for c in value))


def _assigned(found: re.Match[str]) -> bool:
    """Whether a value stands for itself, under a name that says that it is secret."""
    value, text, end = value_of(found), found.string, span_of(found)[1]
    start = found.start()
    while start > 0 and found.start() - start < 40 and (text[start - 1].isalnum() or text[start - 1] in "_-."):
        start -= 1
    name = text[start : found.end("n")]
    if re.search(_NOT_SECRET_NAME, name) or re.search(_DUMMY, value) or text[end : end + 1] in ("(", "[", "{"):
        return False
    value = value.rstrip(".!?:")
    if re.search(r"(?i)passw|passphrase|pwd|_pass$", name) and "\n" not in value:
        return _is_password(value)
    return "://" not in value and " " not in value and not _is_path(value) and _is_opaque(value)


def _is_path(value: str) -> bool:
    """Base64 can begin with a slash too; a path of its length has fewer bits, as its parts are words."""
    is_base64 = re.fullmatch(r"[A-Za-z0-9+/]{32,}={0,2}", value) is not None and bits(value) >= MIN_BASE64_BITS
    return value[:1] in "/." and not is_base64


def _signed_in(found: re.Match[str]) -> bool:
    """Whether the password of an address stands for itself."""
    value = found["v"]
    return not (re.search(_DUMMY, value) or re.fullmatch(_PLAIN_PASSWORD, value))


def _basic(found: re.Match[str]) -> bool:
    try:
        decoded = base64.b64decode(found["v"] + "=" * (-len(found["v"]) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return False
    return ":" in decoded and decoded.isprintable()


def _bearer(found: re.Match[str]) -> bool:
    value = found["v"]
    return not re.search(_DUMMY, value) and any(c.isdigit() for c in value) and _is_mixed(value)


def _cookie(found: re.Match[str]) -> bool:
    values = (pair.partition("=")[2] or pair for pair in found["v"].split(";"))
    return any(_is_opaque(value) for value in values)


def _has_key(found: re.Match[str]) -> bool:
    return re.search(r"[A-Za-z0-9+/]{32}", found[0]) is not None


def _is_mixed_match(found: re.Match[str]) -> bool:
    return any(c.isdigit() for c in found[0]) and _is_mixed(found[0])


_NO_WORD_BEFORE = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
"""In JSON, where a call's arguments stand, a line break is a letter too."""


def _prefixed(kind: str, literals: str, rest: str, holds: Callable[[re.Match[str]], bool] | None = None) -> Rule:
    """Keys that begin with one of these, not in the middle of a word. The gate looks at GATE_CHARACTERS of the rest:
    each further one takes time to compile."""
    each = tuple(literals.split())
    begin = f"(?:{'|'.join(map(re.escape, each))})"
    gate = f"{begin}{re.sub(r'{.*', '', rest)}{{{GATE_CHARACTERS}}}".replace(r"\-", "-")
    return Rule(kind, each, rf"{_NO_WORD_BEFORE}{begin}{rest}", gate=gate, holds=holds)


_NAMES = (
    "passw", "passphrase", "_pass", "pwd", "secret", "token", "api_key", "apikey", "api-key", "access_key", "accesskey",
    "private_key", "auth_key", "encryption_key", "signing_key", "account_key", "accountkey", "credential", "_key",
    "_pat", "_auth",
)  # fmt: skip
_AFTER_NAME = r"[A-Za-z0-9_-]{0,30}"
_LINE = r"(?:\\?\r?\n|\\n)(?:[ \t]{0,8}\d{1,6}[\t→:|-])?[ \t]{0,40}"
"""A line break, also in JSON, and a line's number, as tools that read files write it."""

_BETWEEN = (
    r"[\x5c\"'`\]]{0,3}(?:[ \t]{0,8}(?:=>|:=|=|:)[ \t]{0,8}(?:(?:[|>][+-]?)?" + _LINE + r")?"
    rf"|,?[ \t]{{0,8}}(?:{_LINE})?[\x5c\"']{{0,2}}(?i:value)[\x5c\"']{{0,2}}[ \t]{{0,4}}[:=][ \t]{{0,4}})"
)
"""What stands between a name and its value: a sign, with which the value may begin in the next line (YAML), or the
name of the value's field (Kubernetes, .NET)."""

_ASSIGNED = (
    rf"(?P<n>(?:{'|'.join(_NAMES)}){_AFTER_NAME})(?:{_BETWEEN}"
    r"""(?:(?P<q>\\?["'`])(?P<v>[^"'`\\\n‹›•]{6,300})(?P=q)|(?P<w>[^\s"'`\\,;&<>(){}\[\]|‹›•]{6,300}))"""
    r"""|[\x5c"']{0,2}>(?P<x>[^\s"'`<>‹›•]{6,300})(?=<\x5c?/))"""
)

_ASSIGNED_GATE = (
    rf"(?i:{'|'.join(_NAMES)})[A-Za-z0-9_-]*(?:{_BETWEEN}"
    r"""(?:[\x5c]?["'`][^"'`\x5c\n]{6}|[^\s"'`\x5c,;&<>(){}\[\]|]{6})"""
    r"""|[\x5c"']{0,2}>[^\s"'`<>]{6})"""
)
_PAIR = r"""[^\s=;"'\\‹›•]{1,80}=[^\s;"'\\‹›•]"""
_COOKIE = (
    rf"cookie\\?[\"']?[ \t]?:[ \t]*\\?[\"']?(?:{_PAIR}{{0,15}}; ?){{0,40}}[^\s=;\"'\\‹›•]{{1,80}}="
    rf"(?P<v>[^\s;\"'\\‹›•]{{16,4096}}(?:(?:; ?{_PAIR}{{0,4096}}){{0,40}}; ?{_PAIR}{{16,4096}})?)"
)
"""From the first value that is long enough for a key to the last one."""

_OTHER_PREFIXES = (
    "gsk_ xai- r8_ pplx- fw_ csk- tgp_v1_ nvapi- sbp_ figd_ lin_api_ ntn_ secret_ pscale_tkn_ pscale_pw_ dp.pt. dp.st."
    " NRAK- PMAK- PMAT- sntrys_ sntryu_ glc_ glsa_ rubygems_ tfp_ ATATT3 ATCTT3 fio-u- phc_ phx_ phs_ re_ vcp_ cfut_"
    " lsv2_pt_ lsv2_sk_ pat-na1- pul- rnd_ fly_ sgp_ oy2 tskey- whs_ ops_ CFPAT- shippo_live_ shippo_test_ EZAK EZTK"
    " PRVT- PRVR- duffel_live_ rdme_ scw- AGE-SECRET-KEY-1"
)
"""Of issuers with fewer users: Groq, xAI, Replicate, Perplexity, Supabase, Figma, Linear, Notion, PlanetScale, Doppler,
New Relic, Postman, Sentry, Grafana, RubyGems, Atlassian, PostHog, Resend, LangSmith, HubSpot, Pulumi, Render, Fly,
Tailscale, Contentful and others."""

RULES: tuple[Rule, ...] = (
    _prefixed("AWS key", "AKIA ASIA ABIA ACCA", "[A-Z2-7]{16}"),
    _prefixed("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", f"{_ALNUM}{{30,255}}"),
    _prefixed("GitHub token", "github_pat_", "[A-Za-z0-9_]{36,255}"),
    _prefixed("GitLab token", "glpat- gldt- glrt- glptt- glft- glsoat- glcbt-", "[A-Za-z0-9_.-]{20,200}"),
    _prefixed("Slack token", "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-", "[A-Za-z0-9.-]{10,400}"),
    Rule(
        "Slack webhook",
        ("hooks.slack.com/",),
        r"hooks\.slack\.com/(?P<v>(?:services|workflows)/[A-Za-z0-9/_-]{20,200})",
        gate=r"hooks\.slack\.com/",
    ),
    Rule(
        "Discord webhook",
        ("/api/webhooks/",),
        r"/api/webhooks/(?P<v>\d{15,22}/[A-Za-z0-9_-]{50,120})",
        gate="/api/webhooks/",
    ),
    _prefixed("Stripe key", "sk_live_ sk_test_ rk_live_ rk_test_", f"{_ALNUM}{{10,250}}"),
    _prefixed("webhook secret", "whsec_", "[A-Za-z0-9+/=]{20,100}"),
    _prefixed("API key", "sk-", f"{_TOKEN}{{20,300}}", holds=_is_mixed_match),
    _prefixed("npm token", "npm_", f"{_ALNUM}{{30,60}}"),
    _prefixed("PyPI token", "pypi-Ag", f"{_TOKEN}{{30,400}}"),
    _prefixed("Google key", "AIza", f"{_TOKEN}{{35}}"),
    _prefixed("Google token", "GOCSPX- ya29.", f"{_TOKEN}{{20,600}}"),
    _prefixed("SendGrid key", "SG.", rf"{_TOKEN}{{16,40}}\.{_TOKEN}{{16,80}}"),
    _prefixed("Mailgun key", "key-", f"{_HEX}{{32}}"),
    Rule(
        "Mailchimp key",
        ("-us",),
        rf"(?<![0-9a-f]){_HEX}{{32}}-us\d{{1,2}}(?![A-Za-z0-9])",
        back=32,
        gate=f"{_HEX}{{32}}-us[0-9]",
    ),
    _prefixed("Hugging Face token", "hf_", f"{_ALNUM}{{30,60}}"),
    _prefixed("DigitalOcean token", "dop_v1_ doo_v1_ dor_v1_", f"{_HEX}{{40,80}}"),
    _prefixed("Shopify token", "shpat_ shpca_ shppa_ shpss_", "[0-9a-fA-F]{32}"),
    _prefixed("Square token", "sq0atp- sq0csp-", f"{_TOKEN}{{22,80}}", holds=_is_mixed_match),
    _prefixed("Docker token", "dckr_pat_ dckr_oat_", f"{_TOKEN}{{20,80}}"),
    _prefixed("Vault token", "hvs. hvb.", f"{_TOKEN}{{20,300}}"),
    _prefixed("Databricks token", "dapi", f"{_HEX}{{32}}(?:-[0-9])?"),
    _prefixed("API key", _OTHER_PREFIXES, "[A-Za-z0-9_.=-]{24,300}", holds=_is_mixed_match),
    Rule(
        "Telegram token",
        (":AA",),
        rf":AA{_TOKEN}{{30,36}}(?![A-Za-z0-9_-])",
        gate=rf"[0-9]{{8,10}}:AA{_TOKEN}{{30}}",
    ),
    Rule(
        "JWT", ("eyJ",), rf"eyJ{_TOKEN}{{8,}}\.eyJ{_TOKEN}{{4,}}(?:\.{_TOKEN}*){{1,3}}", gate=rf"eyJ{_TOKEN}{{8,}}\.eyJ"
    ),
    Rule(
        "password in an address",
        ("://",),
        r"""://[^\s/:@"'<>‹›]{0,100}:(?P<v>[^\s"'<>@/‹›•]{3,200})@(?=[\w.\[$-])""",
        gate=r"""://[^\s/:@"'<>]*:[^\s"'<>@/]+@""",
        holds=_signed_in,
    ),
    Rule(
        "bearer token",
        ("bearer",),
        r"bearer[ \t\"':=]+(?P<v>[A-Za-z0-9._~+/=-]{16,})",
        gate=r"""(?i:bearer)[ \t"':=]+[A-Za-z0-9._~+/=-]{16}""",
        holds=_bearer,
        folds=True,
    ),
    Rule(
        "basic login",
        ("basic ",),
        r"basic +(?P<v>[A-Za-z0-9+/]{8,}={0,2})",
        gate=r"(?i:basic) +[A-Za-z0-9+/]{8}",
        holds=_basic,
        folds=True,
    ),
    Rule(
        "password",
        (" -u ", "--user "),
        r"(?: -u |--user )['\"]?[^\s:'\"/]{1,80}:(?P<v>[^\s'\"‹›•]{6,200})",
        gate=r"(?: -u |--user )['\"]?[^ \n:'\"/]{1,80}:[^ \n'\"]{6}",
        holds=_signed_in,
    ),
    Rule(
        "password",
        ("--pass", "--token", "--secret", "--api-key"),
        r"--(?P<n>pass[a-z-]*|token|secret|api-key)[ \t]+['\"]?(?P<v>[^\s'\"‹›•]{6,300})",
        gate=r"--(?:pass[a-z-]*|token|secret|api-key)[ \t]+['\"]?[^ \n'\"]{6}",
        holds=_assigned,
    ),
    Rule(
        "password",
        ("machine ",),
        r"machine \S+\s+login \S+\s+password (?P<v>[^\s‹›•]{4,200})",
        gate=r"machine [^ ]+ login [^ ]+ password ",
    ),
    Rule("access signature", ("sig=",), r"sig=(?P<v>[A-Za-z0-9%+/]{40,}={0,2})", gate=r"sig=[A-Za-z0-9%+/]{40}"),
    Rule(
        "cookie",
        ("cookie",),
        _COOKIE,
        gate=r"""(?i:cookie)[\x5c"']{0,2}[ \t]?:[^\n=]{1,100}=[^\s;]""",
        holds=_cookie,
        folds=True,
    ),
    Rule("secret value", _NAMES, _ASSIGNED, gate=_ASSIGNED_GATE, holds=_assigned, folds=True),
)

PRIVATE_KEY = Rule(
    "private key",
    ("-----BEGIN",),
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    # Up to the next BEGIN at most: a text that is full of them would be searched again and again.
    r"(?P<v>(?:(?!-----BEGIN)[A-Za-z0-9+/=\s:,._→|\\#*>-]){20,12000}?)"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|(?=-----BEGIN)|(?![A-Za-z0-9+/=\s:,._→|\\#*>-]))",
    gate="PRIVATE KEY(?: BLOCK)?-----",
    holds=_has_key,
)
"""The one kind that has several lines, so that it is searched for in the whole text."""
