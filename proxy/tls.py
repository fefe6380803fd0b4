"""TLS contexts: one for our own port, one for backends with an authority of their own. Knows files,
no settings; protocol versions and verification are not negotiable.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from prefold.proxy.errors import SettingsError


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """For a listener: TLS 1.2 or later, HTTP/1.1 only. `certificate` holds the chain, leaf first.
    Raises SettingsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    _require_readable(certificate, "server.tls_certificate")
    _require_readable(key, "server.tls_key")
    try:
        # An encrypted key would be asked for on the terminal: that is no way to start a server.
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, OSError):
        raise SettingsError(
            "server.tls_certificate, server.tls_key: not a PEM certificate and its unencrypted key"
        ) from None
    return context


def client_context(ca_file: Path) -> ssl.SSLContext:
    """For backends: their certificate and host name are checked against the authorities in this
    file, and only those. Raises SettingsError."""
    _require_readable(ca_file, "ca_file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies chain and host name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_verify_locations(cafile=ca_file)
    except (ssl.SSLError, OSError):
        raise SettingsError(f"ca_file: {ca_file} holds no PEM certificates") from None
    if not context.cert_store_stats()["x509"]:
        raise SettingsError(f"ca_file: {ca_file} holds no PEM certificates")
    return context


def _require_readable(path: Path, key: str) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise SettingsError(f"{key}: cannot read {path}: {error.strerror}") from None


def _no_password() -> bytes:
    return b""
