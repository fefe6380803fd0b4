"""Whether the [redis] table says where Redis is. Pure; called when settings are read."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from prefold.proxy.errors import SettingsError

SCHEMES = frozenset(
    scheme + cluster for scheme in ("redis", "rediss") for cluster in ("", "+cluster")
)
MIN_SECRET = 16
"""Characters. Whoever can read Redis may try secrets at leisure."""


def check_redis(*, url: str, name: str, ca_file: str, secret: str) -> None:
    """`secret` is routing.secret. Raises SettingsError."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise SettingsError("redis.url: expected redis[s][+cluster]://[USER@]HOST[:PORT][/DB]")
    if parts.password is not None:
        raise SettingsError("redis.url: a password belongs into redis.password or password_file")
    if parts.query or parts.fragment:
        raise SettingsError("redis.url: no options")
    if ca_file and not parts.scheme.startswith("rediss"):
        raise SettingsError("redis.ca_file: its url is not rediss")
    if not re.fullmatch(r"[\w.:-]+", name):
        raise SettingsError("redis.name: letters, digits and . : - _")
    if len(secret) < MIN_SECRET:
        raise SettingsError(
            "redis.url: needs routing.secret (or secret_file), the same in all replicas, of at"
            f" least {MIN_SECRET} characters: what they share means nothing without it"
        )
