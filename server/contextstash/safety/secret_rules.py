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
"""Characters from which on letters and digits by chance are taken for a key because of a name before them."""

MIN_SHORT = 8
"""The same for a shorter value, which has to be more of a mixture: `tok9Xw2q`, but not `node18` or `step_2`."""

MIN_SHORT_BITS = 2.3
"""MIN_BITS for it: 8 different characters have 3, 8 of which half stand twice 2.5."""

GATE_CHARACTERS = 10
"""Of what follows a key's beginning, when a text is searched for texts that may hold one: with fewer, more texts are
searched rule by rule."""

SHAPE_CHARACTERS = 16
"""The same for kinds with a form of their own, whose beginnings are shorter."""

MAX_COMMAND = 400
"""Characters between a command's name and the option with a password in it; of a longer command it is not masked."""

MIN_BITS = 3.0
"""Bits of entropy for each character of a value that is taken for a key: random text of 16 characters has 3.5 and
more, words of a language below 3."""

MIN_LETTERS = 24
"""The same for letters alone, of which one in 300 random keys of 32 characters consists: these must be no camelCase."""

MIN_LETTER_BITS = 4.0
"""Bits for each of them: 24 random letters of both cases have 4.2 and more, a name of the length 3.5 to 3.9."""

MIN_BASE64_BITS = 4.2
"""The same for base64 of 32 characters and more: random ones have 4.4 to 5.5."""

# Expressions as text: Python compiles each at its first use, which most processes do not come to.
_DUMMY_BEGINNINGS = ("$", "%", "{", "<", "*", "xxx", "..", "env.", "env:", "process.", "os.")
_DUMMY_WORDS = ("example", "your_", "your-", "changeme", "change_me", "placeholder", "redacted", "dummy")
_PLAIN_PASSWORD = r"(?i)(?:pass(?:word|wd)?|pwd|secret|user|token|none|null|true|false|undefined)\d{0,3}"
_WORD = r"(?:[A-Za-z][a-z]*|[A-Z]+|v?\d+(?:\.\d+)*)"
_NAME_PART = r"(?:^|[-_])[A-Za-z][a-z]{2,}(?:[-_]|$)"
_DATED = r"(?i)[\dTZ:.+-]+|0x[0-9a-f]+|v?\d+(?:[.-]\w+)+|[0-9a-f]{7,12}|[a-z]+[-_]?[a-z]*\d+[a-z]?"
_IDENTIFIER = r"(?:[A-Z]?[a-z]{2,}|\d{1,2}|[._-])+"
_CODE = r"[A-Za-z_][\w]*(?:(?:\.|->|::)[A-Za-z_]\w*)*"
_CAMEL_CASE = r"[a-z]*(?:[A-Z]+[a-z]{2,}|[A-Z]{2,})*"
_SETTERS = ("set", "with", "add", "put")
"""Beginnings of the names of functions that are given a secret; other functions ask for one by its name."""

_NOT_SECRET_WORDS = (
    "page", "continu", "cursor", "count", "limit", "max", "num", "total", "type", "usage", "budget", "public",
    "tokeniz", "tokens", "csrf", "hash", "sha1", "sha2", "sha5", "fingerprint", "checksum", "cache_key", "cachekey",
    "path", "file", "name", "url", "length", "expir", "hint", "placeholder",
)  # fmt: skip
"""In names of things that are not secret, such as an account; as words, since an expression takes 0.2 ms to compile."""


class Rule:
    """A kind of secret. `gate` finds texts that may hold one, in the syntax of Rust's expressions; `pattern` matches at
    the place of one of the `literals`, and its group `v`, `w`, `x` or `y` is the secret itself, or else the whole
    match. `holds` looks at the name before it, the value and what follows it. The pattern begins `back` characters
    before the literal; with `folds` letters of both cases are equal."""

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
    return next((found.span(each) for each in "vwxy" if each in names and found[each] is not None), found.span())


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


def _is_dummy(value: str) -> bool:
    """Whether a value only stands for one, as in an example or a template."""
    lower = value.lower()
    return lower.startswith(_DUMMY_BEGINNINGS) or any(word in lower for word in _DUMMY_WORDS)


def _is_plain_name(name: str) -> bool:
    """Whether a name with a word for a secret in it is one of something else."""
    lower = name.lower().replace("account", "acc")
    return lower.endswith("_id") or any(word in lower for word in _NOT_SECRET_WORDS)


def _is_opaque(value: str) -> bool:
    parts = re.split(r"[-_+/=]", value)
    if len(value) >= MIN_LETTERS and "".join(parts).isalpha():
        return bits(value) >= MIN_LETTER_BITS and not all(re.fullmatch(_CAMEL_CASE, part) for part in parts)
    has_both = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return len(value) >= MIN_OPAQUE and has_both and bits(value) >= MIN_BITS and _is_mixed(value)


def _is_short_key(value: str) -> bool:
    """Whether 8 to 15 characters are no word, name, number or date: letters of both cases and digits take turns."""
    if not MIN_SHORT <= len(value) < MIN_OPAQUE or bits(value) < MIN_SHORT_BITS or re.fullmatch(_DATED, value):
        return False
    turns = len(re.findall(r"(?=[0-9][A-Za-z]|[a-z][0-9A-Z]|[A-Z][0-9])", value))
    return any(c.isdigit() for c in value) and turns + sum(c.isdigit() for c in value) // 2 >= 3 and _is_mixed(value)


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
    between = found.groupdict().get("b") or ""
    is_call = "(" in between
    if _is_plain_name(name) or _is_dummy(value) or text[end : end + 1] in ("(", "[", "{"):
        return False
    if is_call and not name.rpartition(".")[2].lower().startswith(_SETTERS):
        return False
    if found.groupdict().get("y"):
        return (
            not re.search(_NAME_PART, value)
            and not _is_path(f"/{value}" if "/" in value else value)
            and _is_opaque(value)
        )
    value = value.rstrip(".!?:")
    if between.strip(" \t:") == "is" and re.fullmatch(_IDENTIFIER, value):
        return False  # "the password is hashed2times"
    if re.search(r"(?i)passw|passphrase|pwd|_pass$", name) and "\n" not in value:
        return _is_password(value)
    is_whole = "://" not in value and " " not in value and not _is_path(value)
    is_code = re.fullmatch(_IDENTIFIER, value) and ("." in value or len(value) < MIN_OPAQUE)
    return is_whole and not is_code and (_is_opaque(value) or _is_short_key(value))


def _is_named(found: re.Match[str]) -> bool:
    """Whether the variable that a command sets has a secret's name, and its value stands for itself."""
    return any(name in found["n"].lower() for name in _NAMES) and _assigned(found)


def _is_path(value: str) -> bool:
    """Base64 can begin with a slash too; a path of its length has fewer bits, as its parts are words."""
    is_base64 = re.fullmatch(r"[A-Za-z0-9+/]{32,}={0,2}", value) is not None and bits(value) >= MIN_BASE64_BITS
    return value[:1] in "/." and not is_base64


def _signed_in(found: re.Match[str]) -> bool:
    """Whether the password of an address stands for itself."""
    value = value_of(found)
    return not (_is_dummy(value) or re.fullmatch(_PLAIN_PASSWORD, value))


def _is_quoted_password(found: re.Match[str]) -> bool:
    """Whether what stands in quotation marks behind the word is a password; SQL has no sign between them."""
    return _signed_in(found) and _is_password(found["v"])


def _is_opaque_value(found: re.Match[str]) -> bool:
    value = value_of(found)
    return not _is_dummy(value) and not _is_path(value) and _is_opaque(value)


def _is_address_token(found: re.Match[str]) -> bool:
    """Whether what stands before a host's name is a token, and no user's name."""
    return _is_opaque_value(found) or _is_short_key(value_of(found))


def _is_login(found: re.Match[str]) -> bool:
    """Whether the value behind `-u name:` is a password: `--user node:nodejs` names a group. curl takes no other."""
    line = found.string[max(0, found.start() - MAX_COMMAND) : found.start()].rpartition("\n")[2]
    value = value_of(found)
    return _signed_in(found) and (_is_password(value) or ("curl" in line and not value.isdigit()))


def _basic(found: re.Match[str]) -> bool:
    try:
        decoded = base64.b64decode(found["v"] + "=" * (-len(found["v"]) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return False
    return ":" in decoded and decoded.isprintable()


def _bearer(found: re.Match[str]) -> bool:
    value = found["v"]
    return not _is_dummy(value) and any(c.isdigit() for c in value) and _is_mixed(value)


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
    "private_key", "privatekey", "presharedkey", "auth_key", "encryption_key", "signing_key", "account_key",
    "accountkey", "credential", "_key", "_pat", "_auth", "api key", "access key", "secret key",
)  # fmt: skip
_NAME = r"(?:(?:api|access|secret) key|[A-Za-z_-][A-Za-z0-9_-]{2,44})"
"""From a name on, and what may follow it. It is looked for where a name stands: to list the names takes 0.4 ms."""

_LINE = r"(?:\\?\r?\n|\\{1,3}n)(?:[ \t]{0,8}[0-9]{1,6}(?:[\t:|-]|→))?[ \t]{0,40}"
"""A line break, also in JSON, and a line's number, as tools that read files write it. The arrow is not in the class: a
class with a character beyond Latin-1 takes 0.1 ms to compile."""

_GAP = r"(?:[ \t\r\n]|\\{1,3}[nrt]){0,40}"
_QUOTE_NEXT = r"(?=[\x5c\"'`])"
_BETWEEN = (
    r"[\x5c\"'`\]]{0,3}(?:[ \t]{0,8}(?:=>|:=|=|:)[ \t]{0,8}(?:(?:[|>][+-]?)?" + _LINE + r")?"
    rf"|,?[ \t]{{0,8}}(?:{_LINE})?[\x5c\"']{{0,2}}(?i:value)[\x5c\"']{{0,2}}[ \t]{{0,4}}[:=][ \t]{{0,4}}"
    rf"|[\x5c\"'`]{{1,2}},[ \t]{{0,4}}{_QUOTE_NEXT}|\([ \t]{{0,4}}{_QUOTE_NEXT}|[ \t]is:?[ \t])"
)
"""What stands between a name and its value: a sign, with which the value may begin in the next line (YAML), the name
of the value's field (Kubernetes, .NET), a comma between arguments, the call of a function, or a verb."""

_ASSIGNED = (
    rf"(?P<n>{_NAME})(?:(?P<b>{_BETWEEN})"
    r"""(?:(?P<q>\\?["'`])(?P<v>[^"'`\\\n‹›•]{6,300})(?P=q)|(?P<w>[^\s"'`\\,;&<>(){}\[\]|‹›•]{6,300}))"""
    r"""|[\x5c"']{0,2}(?:</key>""" + _GAP + r"""<string)?>(?P<x>[^\s"'`<>‹›•]{6,300})(?=<\x5c?/)"""
    r"""|[ \t]+[\x5c"']{0,2}(?P<y>[A-Za-z0-9+/_-]{20,300}={0,2})(?![=.]))"""
)
"""The last kind of value stands behind a name and a space, as in a Dockerfile's `ENV` or `aws configure set`; it is
longer than a word."""


_ASSIGNED_GATE = (
    rf"(?i-u:{'|'.join(_NAMES)})[A-Za-z0-9_-]*(?:[ \t]+[\"']?[A-Za-z0-9+/_-]{{20}}|{_BETWEEN.replace(_QUOTE_NEXT, '')}"
    r"""(?:[\x5c]?["'`][^"'`\x5c\n]{6}|[^\s"'`\x5c,;&<>(){}\[\]|]{6})"""
    r"""|[\x5c"']{0,2}(?:</key>""" + _GAP + r"""<string)?>[^\s"'`<>]{6})"""
)
_PAIR = r"""[^\s=;"'\\‹›•]{1,80}=[^\s;"'\\‹›•]"""
_COOKIE = (
    rf"cookie\\?[\"']?[ \t]?:[ \t]*\\?[\"']?(?:{_PAIR}{{0,15}}; ?){{0,40}}[^\s=;\"'\\‹›•]{{1,80}}="
    rf"(?P<v>[^\s;\"'\\‹›•]{{16,4096}}(?:(?:; ?{_PAIR}{{0,4096}}){{0,40}}; ?{_PAIR}{{16,4096}})?)"
)
"""From the first value that is long enough for a key to the last one."""

_OTHER_PREFIXES = (
    "gsk_ xai- r8_ pplx- fw_ csk- tgp_v1_ nvapi- sbp_ figd_ lin_api_ ntn_ secret_ pscale_tkn_ pscale_pw_ dp.pt."
    " dp.st. NRAK- PMAK- PMAT- sntrys_ sntryu_ glc_ glsa_ rubygems_ tfp_ ATATT3 ATCTT3 fio-u- phc_ phx_ phs_ re_ vcp_"
    " cfut_ lsv2_pt_ lsv2_sk_ pat-na1- pul- rnd_ fly_ sgp_ oy2 tskey- whs_ ops_ CFPAT- shippo_live_ shippo_test_ EZAK"
    " EZTK PRVT- PRVR- duffel_live_ rdme_ scw- AGE-SECRET-KEY-1 p8e- CLOJARS_ dt0c01. dt0s01. fo1_ HRKU-AA ico-"
    " s-s4t2ud- s-s4t2af- sha256~ pscale_oauth_ pnu_ tk-us- xkeysib- xsmtpsib- squ_ sqp_ sqa_ NRII- CCIPAT_ bkua_ nfp_"
    " pcsk_ tvly- jina_ ctx7sk- crsr_ napi_ aio_ odt_ slk_ VF.DM. VF.WS. FLWSECK- FLWSECK_TEST- access-sandbox-"
    " access-development- access-production- e2b_ wandb_v1_ dp.ct. dp.sa. dp.scim. dp.audit. BBFF- _gitlab_session="
    " sk.eyJ 1//0 scp-live- KEY01"
)
"""Of issuers with fewer users: Groq, xAI, Replicate, Perplexity, Supabase, Figma, Linear, Notion, PlanetScale, Doppler,
New Relic, Postman, Sentry, Grafana, RubyGems, Atlassian, PostHog, Resend, LangSmith, HubSpot, Pulumi, Render, Fly,
Tailscale, Contentful and others that gitleaks and kingfisher list."""

_LONG_PREFIXES = (
    "ABSK bedrock-api-key- fm1a_ fm1r_ fm2_ IQoJb3JpZ2lu ops_eyJ eyJrIjoi AKCp cmVmd EAAM EAAC AQVN tkn.v1_ glc_ sl.u."
)
"""Of Amazon, Fly, 1Password, Grafana, Artifactory, Facebook, Yandex and others: longer, or with `/` and `+`."""

_SHAPES: tuple[tuple[str, str, str] | tuple[str, str, str, int], ...] = (
    ("1Password key", "A3-", "A3-[A-Z0-9]{6}-[A-Z0-9-]{24,30}"),
    ("Airtable token", "pat", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    ("Alibaba key", "LTAI", "LTAI[A-Za-z0-9]{16,24}"),
    ("Authress key", ".acc", r"\.acc[-_][a-z0-9-]{10,32}\.[A-Za-z0-9+/_=-]{30,120}"),
    ("Azure secret", "Q~", r"[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}", 4),
    ("Azure token", "JQQJ", "[A-Za-z0-9]{52}JQQJ[A-Za-z0-9]{20,28}={0,2}", 52),
    ("Braintree token", "access_token$", r"access_token\$[a-z]{7,10}\$[0-9a-z]{16}\$[0-9a-f]{32}"),
    ("ClickHouse key", "4b1d", "4b1d[A-Za-z0-9]{38}"),
    ("ClickUp token", "pk_", "pk_[0-9]{6,8}_[A-Z0-9]{32}"),
    ("Cloudflare key", "v1.0-", r"v1\.0-[0-9a-f]{24,64}-[0-9a-f]{100,160}"),
    ("Cursor key", "key_", "key_[0-9a-f]{64}"),
    ("Dropbox token", "sl.", r"sl\.[A-Za-z0-9_=-]{120,160}"),
    ("ElevenLabs key", "sk_", "sk_[0-9a-f]{48}"),
    ("Firecrawl key", "fc-", "fc-[0-9a-f]{32}"),
    ("Harness token", "pat. sat.", r"[ps]at\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}"),
    ("Lob key", "live_ test_", "(?:live|test)_[0-9a-f]{35}"),
    ("MaxMind key", "_mmk", "[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk", 36),
    ("Octopus key", "API-", "API-[A-Z0-9]{25,26}"),
    ("SettleMint token", "sm_aat_ sm_pat_ sm_sat_", "sm_[aps]at_[A-Za-z0-9]{16}"),
    ("Square token", "EAAA", "EAAA[A-Za-z0-9_-]{60}"),
    ("Teams webhook", "office.com/webhookb2/", r"office\.com/webhookb2/[A-Za-z0-9@/-]{60,260}"),
    ("Terraform token", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,70}", 14),
    ("Tines webhook", ".tines.com/webhook/", r"\.tines\.com/webhook/[0-9a-f]{32}/[0-9a-f]{32}"),
    ("Twilio key", "SK", "SK[0-9a-f]{32}"),
    ("Twitter token", "AAAAAAAAAAAAAAAAAAAA", "A{20}[A-Za-z0-9]{20,60}%[A-Za-z0-9%]{20,60}"),
    ("Zapier webhook", "hooks.zapier.com/", r"hooks\.zapier\.com/hooks/catch/[A-Za-z0-9/]{16,80}"),
    ("Zoho token", "1000.", r"1000\.[0-9a-f]{32}\.[0-9a-f]{32}"),
)
"""Kinds with a form of their own, as gitleaks and kingfisher list them: kind, literals, expression, and how many of its
characters are before the literal."""


def _shaped(kind: str, literals: str, pattern: str, back: int = 0) -> Rule:
    """The gate of one that begins before its literal is the literal: a counted class before it makes the search of all
    texts fifty times slower (measured). Otherwise it looks at SHAPE_CHARACTERS of the last class."""
    each = tuple(literals.split())
    gate = re.escape(literals) if back else re.sub(r"\{\d+(?:,\d+)?\}[^{]*$", f"{{{SHAPE_CHARACTERS}}}", pattern)
    before = "(?<![A-Za-z0-9])" if back or each[0][0].isalnum() else ""
    return Rule(kind, each, f"{before}{pattern}(?![A-Za-z0-9])", gate=gate, back=back)


_VALUE = (
    r"""(?:(?P<q>\\?["'])(?P<v>[^"'\\\n‹›•]{3,200})(?P=q)"""
    r"""|(?P<w>[^\s"'\\<>|‹›•]{3,200}))"""
)
_UP_TO = rf"[ \t](?:[^\n|;]{{0,{MAX_COMMAND}}}?[ \t])??"
_OPTION = (
    rf"(?:(?:mysql|mariadb|mycli)[a-z_-]{{0,12}}{_UP_TO}-p(?!rint|ort|rotocol|lugin|ath)|sshpass[ \t]{{1,4}}-p[ \t]?"
    rf"|(?: login|mongo[a-z]{{0,8}}){_UP_TO}-p[ \t]{{1,4}}(?!https?\b|ssh\b)|redis-cli{_UP_TO}-a[ \t]{{1,4}}"
    rf"|ldap[a-z]{{3,8}}{_UP_TO}-w[ \t]{{1,4}}|(?:zip|sqlcmd){_UP_TO}-P[ \t]?|7z[az]?{_UP_TO}[\"']?-p(?=[^\s\"'])"
    r"|htpasswd[ \t]+(?:-[A-Za-z]{0,3}n[A-Za-z]{0,3}[ \t]+|(?:-\w+[ \t]+){1,4}[^\s-]\S*[ \t]+)[^\s-]\S*[ \t]+)"
)
"""Commands whose options have one letter: a password follows, of the first ones without a space."""

_WITH_OPTIONS = (
    "mysql", "mariadb", "mycli", "sshpass", " login", "mongo", "redis-cli", "ldap", "zip", "7z", "sqlcmd", "htpasswd",
)  # fmt: skip

COMMON_RULES: tuple[Rule, ...] = (
    _prefixed("AWS key", "AKIA ASIA ABIA ACCA", "[A-Z2-7]{16}"),
    _prefixed("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", f"{_ALNUM}{{30,255}}"),
    _prefixed("GitHub token", "github_pat_", "[A-Za-z0-9_]{36,255}"),
    _prefixed(
        "GitLab token",
        "glpat- gldt- glrt- glptt- glft- glsoat- glcbt- glffct- glimt- glagent- gloas- GR1348941",
        "[A-Za-z0-9_.-]{20,200}",
    ),
    _prefixed("Slack token", "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-", "[A-Za-z0-9.-]{10,400}"),
    Rule(
        "Slack webhook",
        ("hooks.slack.com/",),
        r"hooks\.slack\.com/(?P<v>(?:services|workflows|triggers)/[A-Za-z0-9/_-]{20,200})",
        gate=r"hooks\.slack\.com/",
    ),
    Rule(
        "Discord webhook",
        ("/api/webhooks/",),
        r"/api/webhooks/(?P<v>\d{15,22}/[A-Za-z0-9_-]{50,120})",
        gate="/api/webhooks/",
    ),
    _prefixed("Stripe key", "sk_live_ sk_test_ rk_live_ rk_test_ sk_prod_ rk_prod_", f"{_ALNUM}{{10,250}}"),
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
    _prefixed("Hugging Face token", "hf_ api_org_", f"{_ALNUM}{{30,60}}"),
    _prefixed("DigitalOcean token", "dop_v1_ doo_v1_ dor_v1_", f"{_HEX}{{40,80}}"),
    _prefixed("Shopify token", "shpat_ shpca_ shppa_ shpss_", "[0-9a-fA-F]{32}"),
    _prefixed("Square token", "sq0atp- sq0csp-", f"{_TOKEN}{{22,80}}", holds=_is_mixed_match),
    _prefixed("Docker token", "dckr_pat_ dckr_oat_", f"{_TOKEN}{{20,80}}"),
    _prefixed("Vault token", "hvs. hvb.", f"{_TOKEN}{{20,300}}"),
    _prefixed("Databricks token", "dapi", f"{_HEX}{{32}}(?:-[0-9])?"),
    Rule(
        "Telegram token",
        (":AA",),
        rf":AA{_TOKEN}{{30,36}}(?![A-Za-z0-9_-])",
        gate=rf"[0-9]{{8,10}}:AA{_TOKEN}{{30}}",
    ),
    Rule(
        "JWT",
        ("eyJ",),
        rf"eyJ{_TOKEN}{{8,4000}}+\.eyJ{_TOKEN}{{4,}}+(?:\.{_TOKEN}*){{1,3}}",
        gate=rf"eyJ{_TOKEN}{{8,}}\.eyJ",
    ),
    Rule(
        "password in an address",
        ("://",),
        r"""://[^\s/:@"'<>‹›]{0,100}:(?!\d{2,5}[?#])(?P<v>[^\s"'<>/‹›•]{3,200})@(?=[\w.\[$-])""",
        gate=r"""://[^\s/:@"'<>]*:[^\s"'<>@/]+@""",
        holds=_signed_in,
    ),
    Rule(
        "token in an address",
        ("://",),
        r"""://(?P<v>[A-Za-z0-9_.~-]{8,255})@(?=[\w\[-])""",
        gate=r"""://[A-Za-z0-9_.~-]{8}[A-Za-z0-9_.~-]*@""",
        holds=_is_address_token,
    ),
    Rule(
        "bearer token",
        ("bearer",),
        r"bearer[ \t\"':=]+(?P<v>[A-Za-z0-9._~+/=-]{16,})",
        gate=r"""(?i-u:bearer)[ \t"':=]+[A-Za-z0-9._~+/=-]{16}""",
        holds=_bearer,
        folds=True,
    ),
    Rule(
        "basic login",
        ("basic ",),
        r"basic +(?P<v>[A-Za-z0-9+/]{8,}={0,2})",
        gate=r"(?i-u:basic) +[A-Za-z0-9+/]{8}",
        holds=_basic,
        folds=True,
    ),
    Rule(
        "password",
        (" -u", "-user", " -U "),
        r"(?: -u ?|-user[ =]| -U )['\"]?[^\s:'\"/]{1,80}:(?P<v>[^\s'\"‹›•]{4,200})",
        gate=r"(?: -u ?|-user[ =]| -U )['\"]?[^ \n:'\"/]+:[^ \n'\"]{4}",
        holds=_is_login,
    ),
    Rule(
        "password",
        _WITH_OPTIONS,
        _OPTION + _VALUE,
        gate=rf"(?:{'|'.join(_WITH_OPTIONS)})[^\n\x5c]*-[a-zA-Z]*[pawPnbB] ?['\"]?[^ \n-]|htpasswd -",
        holds=_signed_in,
    ),
    Rule(
        "secret value",
        ("ENV ", "ARG ", "setx ", "setenv ", "set -", "config set "),
        rf"(?:ENV|ARG|setx|setenv|set -[gUx]{{1,3}}|config set)[ \t]+(?P<n>{_NAME})[ \t]+[\"']?"
        r"(?P<v>[^\s\"'\\‹›•=]{6,300})",
        gate=r"(?:ENV|ARG|setx|setenv|set -[gUx]+|config set)[ \t]+[A-Za-z0-9_-]+[ \t]+[\"']?[^\s\"'=]{6}",
        holds=_is_named,
    ),
    Rule(
        "password",
        ("-pass", "-token", "-secret", "-api-key", "-access-key"),
        r"-(?P<n>(?:pass|token|secret|api-key|access-key)[a-z-]{0,30})[ \t]+['\"]?(?P<v>[^\s'\"‹›•]{6,300})",
        gate=r"--[a-z-]*(?:pass|token|secret|api-key|access-key)[a-z-]*[ \t]+['\"]?[^ \n'\"]{6}",
        holds=_assigned,
    ),
    Rule("password", ("pass:",), rf" ['\"]?pass:{_VALUE}", gate=r" ['\"]?pass:[^ \n]{3}", holds=_signed_in, back=1),
    Rule(
        "password",
        ("password", "identified by"),
        r"(?:password|identified by)[ \t]{1,4}(?P<q>\\?['\"])(?P<v>[^\s'\"\\‹›•]{6,200})(?P=q)",
        gate=r"(?i-u:password|identified by)[ \t]+[\x5c]?['\"][^ \n'\"]{6}",
        holds=_is_quoted_password,
        folds=True,
    ),
    Rule(
        "password",
        (":5432:",),
        r":5432:[^\s:]{1,80}:[^\s:]{1,80}:(?P<v>[^\s‹›•]{4,200})",
        gate=":5432:[^ \n:]+:[^ \n:]+:[^ \n]{4}",
        holds=_signed_in,
    ),
    Rule(
        "authorization",
        ("authorization",),
        r"authorization\\?[\"']?[ \t]*[:=][ \t]*\\?[\"']?(?:[a-z][a-z-]{0,20}[ \t]+)?(?P<v>[a-z0-9._~+/=|:-]{16,})",
        gate=r"""(?i-u:authorization)[\x5c"']*[ \t]*[:=][ \t\x5c"']*(?:[A-Za-z-]+[ \t]+)?[A-Za-z0-9._~+/=|:-]{16}""",
        holds=_is_opaque_value,
        folds=True,
    ),
    Rule(
        "basic login",
        ("auth",),
        r"auth\\?[\"'][ \t]*:[ \t]*\\?[\"'](?P<v>[A-Za-z0-9+/]{8,}={0,2})",
        gate=r"""auth[\x5c]?["'][ \t]*:[ \t]*[\x5c]?["'][A-Za-z0-9+/]{8}""",
        holds=_basic,
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
        gate=r"""(?i-u:cookie)[\x5c"']{0,2}[ \t]?:[^\n=]{1,100}=[^\s;]""",
        holds=_cookie,
        folds=True,
    ),
    Rule("secret value", _NAMES, _ASSIGNED, gate=_ASSIGNED_GATE, holds=_assigned, folds=True),
)

RARE_RULES = (
    _prefixed("API key", _OTHER_PREFIXES, "[A-Za-z0-9_.=-]{24,300}", holds=_is_mixed_match),
    _prefixed("API key", _LONG_PREFIXES, "[A-Za-z0-9_+/=%-]{36,2000}", holds=_is_mixed_match),
    *(_shaped(*shape) for shape in _SHAPES),
)
"""Those with the most literals, and the fewest texts that have one of them."""

RULES = (*COMMON_RULES, *RARE_RULES)

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
