"""Which headers cross the proxy."""

from multidict import CIMultiDict, CIMultiDictProxy

from prefold.proxy.headers import downstream_headers, upstream_headers


def proxied(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(pairs))


def test_a_backends_credentials_replace_the_clients() -> None:
    """Never both, whatever the case of the name."""
    client = proxied(("authorization", "Bearer client"), ("X-A", "1"))
    sent = upstream_headers(client, {"Authorization": "Bearer own"}, pass_keys=True)

    assert sent.getall("Authorization") == ["Bearer own"]
    assert sent["X-A"] == "1"


def test_a_clients_own_key_stays_behind() -> None:
    """In whatever place it comes, unless the settings say that the backend is to have it."""
    client = proxied(("Authorization", "Bearer k"), ("x-api-key", "k"), ("Api-Key", "k"))

    assert set(upstream_headers(client, {}, pass_keys=False)) == {"Accept-Encoding"}
    assert len(upstream_headers(client, {}, pass_keys=True)) == 4


def test_repeated_headers_stay_repeated() -> None:
    """In their order."""
    pairs = (("X-A", "1"), ("x-a", "2"))

    assert upstream_headers(proxied(*pairs), {}, pass_keys=True).getall("X-A") == ["1", "2"]
    assert downstream_headers(proxied(*pairs)).getall("X-A") == ["1", "2"]


def test_headers_that_connection_names_stay_behind_in_both_directions() -> None:
    """RFC 9110 section 7.6.1."""
    named = proxied(("Connection", "close, X-Hop"), ("X-Hop", "1"), ("X-Pass", "1"))

    assert "X-Hop" not in upstream_headers(named, {}, pass_keys=True)
    assert list(downstream_headers(named)) == ["X-Pass"]


def test_what_an_engine_says_passes() -> None:
    """Rate limits, ids and retry advice; not its framing, nor cookies."""
    kept = downstream_headers(
        proxied(
            ("Retry-After", "3"),
            ("x-request-id", "r"),
            ("x-ratelimit-remaining-tokens", "9"),
            ("x-should-retry", "false"),
            ("Content-Type", "application/json"),
            ("Content-Length", "5"),
            ("Transfer-Encoding", "chunked"),
            ("Set-Cookie", "a=b"),
            ("Keep-Alive", "timeout=5"),
        )
    )

    assert [name.lower() for name in kept] == [
        "retry-after",
        "x-request-id",
        "x-ratelimit-remaining-tokens",
        "x-should-retry",
        "content-type",
    ]
