"""What settings must be beyond their types, and the secrets that files and the environment hold.
Called by `settings_file` only; every SettingsError names the key, none quotes a secret.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from prefold.backends.kv_events.subscriber import Source
from prefold.proxy.addresses import is_loopback
from prefold.proxy.errors import SettingsError
from prefold.proxy.masks import compiled
from prefold.proxy.ranks import with_ranks
from prefold.proxy.replicas.address import check_redis
from prefold.proxy.settings import (
    Arm,
    Backend,
    Compression,
    Discovery,
    Documents,
    Experiment,
    Key,
    Mask,
    Model,
    Routing,
    Server,
    Settings,
    Tracing,
)

HasKey = TypeVar("HasKey", Backend, Compression, Discovery)

SECRETS = frozenset(("admin_key", "api_key", "password", "secret"))
"""Settings that are never shown. Digests of keys are no secrets, long random keys given."""
ENV_MARK = "env:"


def with_named_backends(settings: Settings) -> Settings:
    """Names default to host:port of the URL and must be unique; URLs are http(s) without a path."""
    named = []
    seen: set[str] = set()
    for number, backend in enumerate(settings.backends):
        netloc = _checked_netloc(backend.url, f"backends[{number}].url")
        url = f"{urlsplit(backend.url).scheme}://{netloc}"
        name = backend.name or netloc
        if not name.isprintable():
            raise SettingsError(f"backends[{number}].name: only printable characters")
        if name in seen:
            raise SettingsError(f"backends[{number}].name: {name!r} is used twice")
        if backend.ca_file and not url.startswith("https:"):
            raise SettingsError(f"backends[{number}].ca_file: its url is not https")
        seen.add(name)
        named.append(dataclasses.replace(backend, url=url, name=name))
    return dataclasses.replace(settings, backends=tuple(named))


def with_secrets(settings: Settings, env: Mapping[str, str]) -> Settings:
    """Each `*_file` read into the setting that it stands for; a backend's api_key, which no
    environment variable of ours can hold, may be `env:NAME`."""
    server, routing, redis = settings.server, settings.routing, settings.redis
    password = _secret(redis.password, redis.password_file, "redis.password")
    admin_key = _secret(server.admin_key, server.admin_key_file, "server.admin_key")
    secret = _secret(routing.secret, routing.secret_file, "routing.secret")
    return dataclasses.replace(
        settings,
        server=dataclasses.replace(server, admin_key=admin_key),
        routing=dataclasses.replace(routing, secret=secret),
        discovery=_with_api_key(settings.discovery, env, "discovery.api_key"),
        compression=_with_api_key(settings.compression, env, "compression.api_key"),
        redis=dataclasses.replace(redis, password=password),
        backends=tuple(
            _with_api_key(backend, env, f"backends[{number}].api_key")
            for number, backend in enumerate(settings.backends)
        ),
    )


def checked(settings: Settings) -> Settings:
    """The settings, if they are fit to start with, with a backend for each data-parallel rank;
    raises SettingsError."""
    _check_server(settings.server)
    _check_keys(settings.keys)
    _check_aliases(settings.models)
    _check_hints(settings.routing)
    _check_masks(settings.masks)
    _check_arms(settings.arms)
    _check_experiment(settings.experiment, settings.arms)
    _check_tracing(settings.tracing)
    _check_discovery(settings.discovery)
    if settings.redis.url:
        _check_redis(settings)
    _check_kv_events(settings)
    _check_documents(settings.documents)
    _check_compression(settings.compression)
    settings = with_ranks(settings)
    pinned = settings.routing.pinned_backend
    if pinned and pinned not in {backend.name for backend in settings.backends}:
        raise SettingsError(f"routing.pinned_backend: no backend is named {pinned!r}")
    return settings


def warnings_of(settings: Settings) -> list[str]:
    """What is allowed and may not be meant, one line each."""
    found = []
    if not settings.keys and not is_loopback(settings.server.host):
        found.append(
            f"server.host is {settings.server.host!r} and no [[keys]] are set:"
            " whoever reaches this port may use the backends"
        )
    if settings.keys and not is_loopback(settings.server.host) and not settings.server.tls_key:
        found.append(
            f"server.host is {settings.server.host!r} without TLS:"
            " keys and prompts can be read on the way, unless something before it ends TLS"
        )
    by_time, ledger = settings.experiment.slice_s > 0, settings.ledger
    if settings.arms and not (ledger.path and (ledger.digests or by_time)):
        found.append("arms are set, and no ledger with digests that could tell them apart later")
    if len({frozenset(arm.models) for arm in settings.arms}) > 1:
        found.append("arms have different models: they would differ by the model, too")
    if settings.experiment.slice_s and not settings.experiment.washout_s:
        found.append("experiment.washout_s is 0: each slice begins with the last one's caches")
    return found + _missing_tokenizers(settings.models) + arms_without_backends(settings)


def _missing_tokenizers(models: Mapping[str, Model]) -> list[str]:
    """A file may come later, so this is no error; a hub id is no file."""
    return [
        f'models."{name}".tokenizer: there is no {model.tokenizer}, so its prompts have no ids'
        for name, model in models.items()
        if model.tokenizer.startswith(("/", ".")) or model.tokenizer.endswith((".gguf", ".json"))
        if not Path(model.tokenizer).exists()
    ]


def arms_without_backends(settings: Settings) -> list[str]:
    """One line for each arm whose labels no backend has: its requests go where others do."""
    return [
        f"arm {arm.name!r}: no backend has its labels, so any backend is taken for it"
        for arm in settings.arms
        if not any(arm.labels.items() <= backend.labels.items() for backend in settings.backends)
        and arm.labels
    ]


def _secret(value: str, file: str, where: str) -> str:
    if not file:
        return value
    if value:
        raise SettingsError(f"{where} and {where}_file: give one of them")
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{where}_file: cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{where}_file: {file} is not UTF-8") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise SettingsError(f"{where}_file: {file} is empty")
    return text


def _with_api_key(backend: HasKey, env: Mapping[str, str], where: str) -> HasKey:
    key = _secret(backend.api_key, backend.api_key_file, where)
    key = _header_value(_from_environment(key, env, where), where)
    return dataclasses.replace(backend, api_key=key)


def _from_environment(value: str, env: Mapping[str, str], where: str) -> str:
    if not value.startswith(ENV_MARK):
        return value
    name = value.removeprefix(ENV_MARK)
    if not env.get(name):
        raise SettingsError(f"{where}: the environment variable {name} is not set")
    return env[name]


def _header_value(value: str, where: str) -> str:
    """A line break would end the header it is sent in."""
    if not value.isascii() or not value.isprintable():
        raise SettingsError(f"{where}: only printable ASCII characters")
    return value


def _check_server(server: Server) -> None:
    if bool(server.tls_certificate) != bool(server.tls_key):
        missing = "tls_key" if server.tls_certificate else "tls_certificate"
        raise SettingsError(f"server.{missing}: tls_certificate and tls_key go together")
    if server.port == server.admin_port != 0 and server.host == server.admin_host:
        raise SettingsError("server.admin_port: the same as server.port; give it another")
    if not server.admin_key and not is_loopback(server.admin_host):
        raise SettingsError(
            f"server.admin_key: needed, since admin_host {server.admin_host!r} is open to others"
        )
    _header_value(server.admin_key, "server.admin_key")
    for origin in server.cors_origins:
        if origin != "*" and not re.fullmatch(r"https?://[^/?#@\s]+", origin):
            raise SettingsError(f"server.cors_origins: {origin!r} is not https://HOST[:PORT] or *")


def _check_keys(keys: tuple[Key, ...]) -> None:
    seen: dict[str, int] = {}
    for number, key in enumerate(keys):
        where = f"keys[{number}]"
        if not key.tenant or not key.tenant.isprintable():
            raise SettingsError(f"{where}.tenant: printable characters, at least one")
        if not re.fullmatch(r"[0-9a-fA-F]{64}", key.sha256):
            raise SettingsError(f"{where}.sha256: 64 hex digits; `prefold key` makes them")
        other = seen.setdefault(key.sha256.lower(), number)
        if other != number:
            raise SettingsError(f"{where}.sha256: the same key as keys[{other}]")


def _check_hints(routing: Routing) -> None:
    for name in routing.session_headers:
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise SettingsError(f"routing.session_headers: {name!r} is no name of a header")


def _check_masks(masks: tuple[Mask, ...]) -> None:
    for number, mask in enumerate(masks):
        try:
            compiled(mask.pattern)
        except ValueError as error:
            raise SettingsError(f"masks[{number}].pattern: {error}") from None
        except ImportError:
            raise SettingsError("masks: they need google-re2: prefold[masks]") from None


def _check_arms(arms: tuple[Arm, ...]) -> None:
    seen: set[str] = set()
    for number, arm in enumerate(arms):
        if not arm.name or not arm.name.isprintable():
            raise SettingsError(f"arms[{number}].name: printable characters, at least one")
        if arm.name in seen:
            raise SettingsError(f"arms[{number}].name: {arm.name!r} is used twice")
        if not math.isfinite(arm.weight):
            raise SettingsError(f"arms[{number}].weight: a finite number")
        seen.add(arm.name)
    if arms and not any(arm.weight for arm in arms):
        raise SettingsError("arms: all weights are 0")


def _check_experiment(experiment: Experiment, arms: tuple[Arm, ...]) -> None:
    """Arms of conversations have weights, arms of time slices equal shares."""
    if not experiment.slice_s:
        for number, arm in enumerate(arms):
            if arm.policy:
                raise SettingsError(
                    f"arms[{number}].policy: policies share caches and queues, so that they can be"
                    " compared by time only: set experiment.slice_s"
                )
        return
    if not experiment.washout_s < experiment.slice_s < math.inf:
        raise SettingsError("experiment.slice_s: a finite number greater than washout_s")
    if len(arms) < 2:
        raise SettingsError("experiment.slice_s: two [[arms]] at least take turns")
    for number, arm in enumerate(arms):
        if arm.weight != 1:
            raise SettingsError(
                f"arms[{number}].weight: with experiment.slice_s each arm has as many slices"
            )
        if arm.models != arms[0].models:
            raise SettingsError(
                f"arms[{number}].models: with experiment.slice_s those of all arms are the same"
            )


def _check_tracing(tracing: Tracing) -> None:
    if not tracing.endpoint:
        return
    parts = urlsplit(tracing.endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError("tracing.endpoint: expected http://HOST:4318/v1/traces")
    try:
        importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError:
        raise SettingsError("tracing.endpoint: it needs OpenTelemetry: prefold[otel]") from None


def _check_discovery(discovery: Discovery) -> None:
    if not discovery.dns:
        return
    netloc = _checked_netloc(discovery.dns, "discovery.dns")
    if not discovery.dns.startswith("http:"):
        raise SettingsError("discovery.dns: http only, since certificates are not of addresses")
    if ":" not in netloc.rpartition("]")[2]:
        raise SettingsError("discovery.dns: expected http://HOST:PORT")


def _check_redis(settings: Settings) -> None:
    redis = settings.redis
    check_redis(
        url=redis.url, name=redis.name, ca_file=redis.ca_file, secret=settings.routing.secret
    )


def _check_kv_events(settings: Settings) -> None:
    bound: dict[str, int] = {}
    topics: dict[str, list[str]] = {}
    for number, backend in enumerate(settings.backends):
        where = f"backends[{number}]"
        if backend.kv_events in ("", "auto"):
            if backend.kv_replay or backend.kv_topic:
                raise SettingsError(f"{where}.kv_events: kv_replay and kv_topic need an endpoint")
            continue
        port = _checked_endpoint(backend.kv_events, f"{where}.kv_events")
        if backend.kv_replay:
            _checked_endpoint(backend.kv_replay, f"{where}.kv_replay")
            if Source(endpoint=backend.kv_replay).binds:
                raise SettingsError(f"{where}.kv_replay: only an engine binds it: name its host")
        others = topics.setdefault(backend.kv_events, [])
        others.append(backend.kv_topic)
        if not Source(endpoint=backend.kv_events).binds:
            if len(others) > 1 and ("" in others or others.count(backend.kv_topic) > 1):
                raise SettingsError(f"{where}.kv_topic: must tell apart who shares an endpoint")
            continue
        if settings.server.workers > 1:
            raise SettingsError(
                f"{where}.kv_events: only one of the server.workers could bind it;"
                " let the engine bind it, and name its host"
            )
        if bound.setdefault(port, number) != number:
            raise SettingsError(f"{where}.kv_events: bound already for backends[{bound[port]}]")


def _checked_endpoint(endpoint: str, where: str) -> str:
    """Its port. ZeroMQ itself takes 99999 for 34463."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    decimal = port.isascii() and port.isdecimal()
    if not (endpoint.startswith("tcp://") and host and decimal and 0 < int(port) < 1 << 16):
        raise SettingsError(f"{where}: expected tcp://HOST:PORT")
    return port


def _checked_netloc(url: str, where: str) -> str:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        valid = valid and not re.search(r"\s", url)
    except ValueError:  # a port that is no port, a bracket that is not closed
        valid = False
    if not valid:
        raise SettingsError(f"{where}: expected http://HOST:PORT{_with_scheme(url)}")
    if parts.path.rstrip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise SettingsError(f"{where}: only scheme, host and port (paths such as /v1 are added)")
    return parts.netloc


def _with_scheme(url: str) -> str:
    """What was meant, where only http:// is missing."""
    host = re.fullmatch(r"[\w.-]+(:\d{1,5})?", url)
    return f"; did you mean http://{host[0]}?" if host else ""


def _check_documents(documents: Documents) -> None:
    start, end = documents.start, documents.end
    if not start or not end or start in end:
        raise SettingsError("documents.start, documents.end: two texts that can be told apart")


def _check_compression(compression: Compression) -> None:
    if not all(all(pair) for pair in (*compression.keep, *compression.quotes)):
        raise SettingsError("compression.keep, compression.quotes: pairs of texts, none empty")
    if compression.url:
        _checked_netloc(compression.url, "compression.url")
    vllm = compression.protocol == "vllm"
    if vllm and not (compression.url and compression.compressor == "llmlingua2"):
        raise SettingsError("compression.protocol: vllm is for llmlingua2, and needs a url")
    if compression.served_model and not vllm:
        raise SettingsError("compression.served_model: only with protocol vllm")
    here = vllm or not compression.url
    if here and compression.compressor.startswith("llmlingua") and not compression.model:
        name = compression.compressor
        raise SettingsError(f"compression.model: {name} needs one: a folder or a hub id")


def _check_aliases(models: Mapping[str, Model]) -> None:
    owners: dict[str, str] = {}
    for name, model in models.items():
        for alias in model.aliases:
            if owners.setdefault(alias, name) != name:
                raise SettingsError(f'models."{name}".aliases: {alias!r} is that of another model')
