"""Reads the settings: the one place that looks into the TOML file and the environment.

Order: defaults < TOML file < environment (`PREFOLD_SERVER__PORT=8001`, tables joined by two
underscores) < the command line's few flags.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from prefold.proxy.errors import SettingsError
from prefold.proxy.settings import Arm, Backend, Key, Mask, Model, Settings
from prefold.proxy.settings_checks import checked, with_named_backends, with_secrets
from prefold.proxy.settings_errors import readable, unknown, with_source

ENV_PREFIX = "PREFOLD_"
LISTED: dict[str, type] = {"backends": Backend, "keys": Key, "masks": Mask, "arms": Arm}
"""Lists of tables, `[[backends]]` say."""


def load(
    path: Path | None,
    *,
    backends: tuple[str, ...] = (),
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    env: Mapping[str, str] = os.environ,
) -> Settings:
    """Settings from file, environment and flags; raises SettingsError with the key and the reason.

    `backends` are URLs from the command line; they are added to those of the file.
    """
    data = _read_toml(path) if path is not None else {}
    _merge_environment(data, env)
    for table, values in (overrides or {}).items():
        _table(data, table).update(values)
    if backends:
        listed = data.setdefault("backends", [])
        if not isinstance(listed, list):
            raise SettingsError("backends: expected [[backends]], a list of tables")
        data["backends"] = [*listed, *({"url": url} for url in backends)]
    _reject_unknown_keys(data, Settings, "")
    try:
        settings = msgspec.convert(data, Settings)
    except msgspec.ValidationError as error:
        message = readable(str(error), Settings)
        raise SettingsError(with_source(message, env, ENV_PREFIX)) from None
    return checked(with_secrets(with_named_backends(settings), env))


def backends_of(listed: Any, env: Mapping[str, str] = os.environ) -> tuple[Backend, ...]:
    """A list of tables as `[[backends]]` holds them, from elsewhere. Raises SettingsError."""
    data = {"backends": listed}
    _reject_in_collections(data)
    try:
        settings = msgspec.convert(data, Settings)
    except msgspec.ValidationError as error:
        raise SettingsError(readable(str(error), Settings)) from None
    return checked(with_secrets(with_named_backends(settings), env)).backends


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: {error}") from None


def _merge_environment(data: dict[str, Any], env: Mapping[str, str]) -> None:
    """Environment values are read as TOML values, else as plain strings."""
    for key in sorted(env):
        table, _, name = key.removeprefix(ENV_PREFIX).lower().partition("__")
        # Without the two underscores it is somebody else's: Kubernetes sets PREFOLD_PORT and more
        # for a Service of this name.
        if not key.startswith(ENV_PREFIX) or not name:
            continue
        if table in ("models", *LISTED):
            raise SettingsError(f"environment variable {key}: {table} are set in the file only")
        kind = get_type_hints(Settings).get(table)
        if kind is None:
            wrong = unknown(table, "", Settings, Settings)
            raise SettingsError(f"environment variable {key}: {wrong}")
        if name not in (hints := get_type_hints(kind)):
            wrong = unknown(name, f"{table}.", kind, Settings)
            raise SettingsError(f"environment variable {key}: {wrong}")
        plain = hints[name] is str
        _table(data, table)[name] = env[key] if plain else _toml_value(env[key])


def _table(data: dict[str, Any], name: str) -> dict[str, Any]:
    table = data.setdefault(name, {})
    if not isinstance(table, dict):
        raise SettingsError(f"{name}: expected a table")
    return table


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _reject_unknown_keys(value: Any, kind: type, where: str) -> None:
    if not isinstance(value, dict):
        return  # a wrong type is msgspec's to report
    types = get_type_hints(kind)
    for key, inner in value.items():
        if key not in types:
            raise SettingsError(unknown(key, where, kind, Settings))
        if dataclasses.is_dataclass(types[key]):
            _reject_unknown_keys(inner, types[key], f"{where}{key}.")
    if kind is Settings:
        _reject_in_collections(value)


def _reject_in_collections(data: dict[str, Any]) -> None:
    for table, kind in LISTED.items():
        listed = data.get(table, [])
        for number, one in enumerate(listed if isinstance(listed, list) else []):
            _reject_unknown_keys(one, kind, f"{table}[{number}].")
    models = data.get("models", {})
    for name, model in models.items() if isinstance(models, dict) else ():
        _reject_unknown_keys(model, Model, f'models."{name}".')
