"""From the settings to a link that can be started."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prefold.proxy.errors import SettingsError
from prefold.proxy.replicas.link import MIB, Link, LinkRules
from prefold.proxy.replicas.seal import Seal
from prefold.proxy.replicas.store import Address, RedisMissing, check_installed, opened
from prefold.proxy.settings import Settings


def seal_of(settings: Settings) -> Seal:
    """Raises SettingsError if what is needed is not installed."""
    try:
        check_installed()
    except RedisMissing as missing:
        raise SettingsError(str(missing)) from None
    return Seal(settings.routing.secret.encode())


def address_of(settings: Settings) -> Address:
    redis = settings.redis
    return Address(
        url=redis.url,
        password=redis.password,
        ca_file=redis.ca_file,
        name=redis.name,
        timeout_s=redis.timeout_s,
    )


def link_of(settings: Settings, seal: Seal, clock: Callable[[], float]) -> Link:
    redis = settings.redis
    return Link(
        seal=seal,
        opened=partial(opened, address_of(settings)),
        rules=LinkRules(
            interval_s=redis.interval_s,
            max_bytes=int(redis.max_mib * MIB),
            ttl_s=redis.ttl_s,
            pins_ttl_s=redis.pins_ttl_s,
            buffer_bytes=int(redis.buffer_mib * MIB),
        ),
        clock=clock,
    )
