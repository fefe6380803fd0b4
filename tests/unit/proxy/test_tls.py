"""TLS contexts shake hands with who they should, and with nobody else."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from prefold.proxy.errors import SettingsError
from prefold.proxy.tls import client_context, server_context


class Files:
    """A certificate for localhost and the authority that signed it, as PEM files."""

    def __init__(self, folder: Path, name: str = "localhost") -> None:
        folder.mkdir()
        self.ca, self.certificate, self.key = (folder / part for part in ("ca", "chain", "key"))
        authority = trustme.CA()
        issued = authority.issue_cert(name)
        authority.cert_pem.write_to_path(str(self.ca))
        issued.private_key_pem.write_to_path(str(self.key))
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        self.certificate.write_bytes(chain)

    def server(self) -> ssl.SSLContext:
        return server_context(self.certificate, self.key)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "ours")


def shake(client: ssl.SSLContext, server: ssl.SSLContext, name: str = "localhost") -> ssl.SSLObject:
    """A handshake in memory; the client's end of it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in (ours, theirs):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ours


def test_a_handshake_with_our_own_authority(files: Files) -> None:
    """TLS 1.3 where both can, and HTTP/1.1, the one protocol spoken here."""
    made = shake(client_context(files.ca), files.server())

    assert made.version() == "TLSv1.3"
    assert made.selected_alpn_protocol() == "http/1.1"


def test_another_authority_or_name_fails(files: Files, tmp_path: Path) -> None:
    """What is not verified is not trusted: there is no setting to skip it."""
    other = Files(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError, match="verify failed"):
        shake(client_context(other.ca), files.server())
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake(client_context(files.ca), files.server(), name="elsewhere.example")


def test_old_versions_are_refused(files: Files) -> None:
    """TLS 1.1 is gone from both ends; 1.2 is spoken with those that have no 1.3."""
    limited = client_context(files.ca)
    limited.maximum_version = ssl.TLSVersion.TLSv1_2
    assert shake(limited, files.server()).version() == "TLSv1.2"
    for context in (files.server(), client_context(files.ca)):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_only_the_given_authority_counts(files: Files) -> None:
    """The system's authorities are not added to it."""
    assert len(client_context(files.ca).get_ca_certs()) == 1


def test_files_that_cannot_be_used_are_named(files: Files, tmp_path: Path) -> None:
    """In one line, with the setting; nothing of their content."""
    missing, junk = tmp_path / "missing", tmp_path / "junk"
    junk.write_text("SENTINEL")
    attempts: list[tuple[Callable[[], object], str]] = [
        (lambda: server_context(missing, files.key), "tls_certificate: cannot read"),
        (lambda: server_context(files.certificate, missing), "tls_key: cannot read"),
        (lambda: server_context(junk, files.key), "not a PEM certificate"),
        (lambda: server_context(files.certificate, junk), "not a PEM certificate"),
        (lambda: client_context(missing), "ca_file: cannot read"),
        (lambda: client_context(junk), "holds no PEM certificates"),
        (lambda: client_context(files.key), "holds no PEM certificates"),
    ]
    for make, said in attempts:
        with pytest.raises(SettingsError, match=said) as error:
            make()
        assert "SENTINEL" not in str(error.value)


def test_a_key_of_another_certificate_is_refused(files: Files, tmp_path: Path) -> None:
    """At the start, and not at the first client."""
    with pytest.raises(SettingsError, match="not a PEM certificate and its"):
        server_context(files.certificate, Files(tmp_path / "other").key)
