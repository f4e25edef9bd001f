"""Keys of the forms that gitleaks and kingfisher list and planted_secrets has not; all of them random."""

from __future__ import annotations

import string
from random import Random
from uuid import UUID

from tests.support.planted_secrets import ALNUM, BASE64, HEX, URL, Maker, some

LOWER = string.ascii_lowercase + string.digits
UPPER = string.ascii_uppercase + string.digits


def _uuid(random: Random) -> str:
    return str(UUID(int=random.getrandbits(128)))


PUBLISHED: dict[str, Maker] = {
    "1password secret key": lambda r: (
        f"A3-{some(r, UPPER, 6)}-{some(r, UPPER, 6)}-{some(r, UPPER, 5)}-{some(r, UPPER, 5)}-{some(r, UPPER, 5)}"
    ),
    "1password service": lambda r: "ops_eyJ" + some(r, ALNUM, 260),
    "adobe": lambda r: "p8e-" + some(r, LOWER, 32),
    "age": lambda r: "AGE-SECRET-KEY-1" + some(r, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    "airtable": lambda r: f"pat{some(r, ALNUM, 14)}.{some(r, HEX, 64)}",
    "alibaba id": lambda r: "LTAI" + some(r, LOWER, 20),
    "artifactory": lambda r: "AKCp" + some(r, ALNUM, 69),
    "artifactory ref": lambda r: "cmVmd" + some(r, ALNUM, 59),
    "bedrock": lambda r: "ABSK" + some(r, ALNUM, 130),
    "bedrock short": lambda r: "bedrock-api-key-YmVkcm9jay5hbWF6b25hd3MuY29t" + some(r, ALNUM, 100),
    "authress": lambda r: f"sc_{some(r, LOWER, 20)}.{some(r, LOWER, 5)}.acc-{some(r, LOWER, 15)}.{some(r, LOWER, 60)}",
    "azure ad": lambda r: f"{some(r, ALNUM, 3)}8Q~{some(r, URL, 32)}",
    "cloudflare origin": lambda r: f"v1.0-{some(r, HEX, 24)}-{some(r, HEX, 146)}",
    "clickhouse": lambda r: "4b1d" + some(r, ALNUM, 38),
    "clojars": lambda r: "CLOJARS_" + some(r, LOWER, 60),
    "dynatrace": lambda r: f"dt0c01.{some(r, UPPER, 24)}.{some(r, UPPER, 64)}",
    "facebook": lambda r: "EAAM" + some(r, ALNUM, 110),
    "flutterwave": lambda r: f"FLWSECK_TEST-{some(r, HEX, 32)}-X",
    "fly fo1": lambda r: "fo1_" + some(r, URL, 43),
    "fly fm2": lambda r: "fm2_" + some(r, BASE64, 110),
    "gitlab ff": lambda r: "glffct-" + some(r, URL, 20),
    "gitlab mail": lambda r: "glimt-" + some(r, URL, 25),
    "gitlab agent": lambda r: "glagent-" + some(r, URL, 50),
    "gitlab oauth": lambda r: "gloas-" + some(r, URL, 64),
    "gitlab rrt": lambda r: "GR1348941" + some(r, URL, 20),
    "gitlab cbt": lambda r: "glcbt-1a_" + some(r, URL, 20),
    "gitlab session": lambda r: "_gitlab_session=" + some(r, LOWER, 32),
    "grafana": lambda r: "eyJrIjoi" + some(r, ALNUM, 80),
    "harness": lambda r: f"pat.{some(r, URL, 22)}.{some(r, ALNUM, 24)}.{some(r, ALNUM, 20)}",
    "terraform": lambda r: f"{some(r, ALNUM, 14)}.atlasv1.{some(r, URL, 64)}",
    "heroku": lambda r: "HRKU-AA" + some(r, URL, 58),
    "hf org": lambda r: "api_org_" + some(r, string.ascii_letters, 34),
    "infracost": lambda r: "ico-" + some(r, ALNUM, 32),
    "42": lambda r: "s-s4t2ud-" + some(r, HEX, 64),
    "lob": lambda r: "live_" + some(r, HEX, 35),
    "maxmind": lambda r: f"{some(r, ALNUM, 6)}_{some(r, ALNUM, 29)}_mmk",
    "teams": lambda r: (
        f"https://acme.webhook.office.com/webhookb2/{_uuid(r)}@{_uuid(r)}/IncomingWebhook/{some(r, HEX, 32)}/{_uuid(r)}"
    ),
    "octopus": lambda r: "API-" + some(r, UPPER, 26),
    "openshift": lambda r: "sha256~" + some(r, URL, 43),
    "openai": lambda r: f"sk-proj-{some(r, URL, 74)}T3BlbkFJ{some(r, URL, 74)}",
    "plaid": lambda r: f"access-sandbox-{_uuid(r)}",
    "planetscale oauth": lambda r: "pscale_oauth_" + some(r, URL, 40),
    "prefect": lambda r: "pnu_" + some(r, ALNUM, 36),
    "scalingo": lambda r: "tk-us-" + some(r, URL, 48),
    "sendinblue": lambda r: f"xkeysib-{some(r, HEX, 64)}-{some(r, ALNUM, 16)}",
    "settlemint": lambda r: "sm_pat_" + some(r, ALNUM, 16),
    "slack triggers": lambda r: (
        f"https://hooks.slack.com/triggers/T{some(r, UPPER, 9)}/{some(r, '0123456789', 13)}/{some(r, HEX, 32)}"
    ),
    "slack cfg": lambda r: f"xoxe.xoxp-1-{some(r, UPPER, 164)}",
    "sonar": lambda r: "squ_" + some(r, HEX, 40),
    "square": lambda r: "EAAA" + some(r, URL, 60),
    "stripe prod": lambda r: "sk_prod_" + some(r, ALNUM, 24),
    "twilio": lambda r: "SK" + some(r, HEX, 32),
    "yandex api": lambda r: "AQVN" + some(r, URL, 36),
    "mapbox secret": lambda r: f"sk.eyJ{some(r, ALNUM, 60)}.{some(r, URL, 22)}",
    "newrelic insert": lambda r: "NRII-" + some(r, LOWER, 32),
    "deepseek": lambda r: "sk-" + some(r, HEX, 32),
    "openrouter": lambda r: "sk-or-v1-" + some(r, HEX, 64),
    "firebase refresh": lambda r: "1//0" + some(r, URL, 90),
    "azure sas": lambda r: "sig=" + some(r, ALNUM, 43) + "%3D",
    "circleci": lambda r: f"CCIPAT_{some(r, ALNUM, 22)}_{some(r, HEX, 40)}",
    "buildkite": lambda r: "bkua_" + some(r, HEX, 40),
    "netlify": lambda r: "nfp_" + some(r, ALNUM, 40),
    "cloudinary": lambda r: f"cloudinary://{some(r, '0123456789', 15)}:{some(r, ALNUM, 27)}@acme",
    "langfuse": lambda r: f"sk-lf-{_uuid(r)}",
    "pinecone": lambda r: f"pcsk_{some(r, ALNUM, 5)}_{some(r, ALNUM, 60)}",
    "elevenlabs": lambda r: "sk_" + some(r, HEX, 48),
    "weights&biases": lambda r: "wandb_v1_" + some(r, ALNUM, 50),
    "tavily": lambda r: "tvly-dev-" + some(r, ALNUM, 32),
    "firecrawl": lambda r: "fc-" + some(r, HEX, 32),
    "jina": lambda r: "jina_" + some(r, ALNUM, 60),
    "exa": lambda r: "ctx7sk-" + some(r, HEX, 32),
    "cursor": lambda r: "key_" + some(r, HEX, 64),
    "crsr": lambda r: "crsr_" + some(r, HEX, 64),
    "e2b": lambda r: "e2b_" + some(r, HEX, 40),
    "fireworks": lambda r: "fw_" + some(r, ALNUM, 24),
    "together": lambda r: "tgp_v1_" + some(r, URL, 43),
    "neon": lambda r: "napi_" + some(r, LOWER, 60),
    "dropbox": lambda r: "sl." + some(r, URL, 135),
    "dropbox u": lambda r: "sl.u." + some(r, URL, 1000),
    "paypal": lambda r: f"access_token$production${some(r, LOWER, 16)}${some(r, HEX, 32)}",
    "braintree": lambda r: f"access_token$sandbox${some(r, LOWER, 16)}${some(r, HEX, 32)}",
    "supabase new": lambda r: "sb_secret_" + some(r, ALNUM, 31),
    "resend": lambda r: f"re_{some(r, ALNUM, 8)}_7{some(r, ALNUM, 23)}",
    "doppler service": lambda r: "dp.sa." + some(r, ALNUM, 43),
    "gcp refresh": lambda r: "1//0g" + some(r, URL, 60),
    "aws session": lambda r: "IQoJb3JpZ2lu" + some(r, BASE64, 300),
}
