"""What keeps prompts apart: the model, the tenant, a salt. As seeds of the index's keys, and as the
salt that an engine is given. Knows no requests' bodies.
"""

from __future__ import annotations

import hashlib

from multidict import CIMultiDictProxy

from prefold.prefix_index.prefix import namespace_seed
from prefold.proxy.kv_events import engine_seed

MAX_SEEDS = 1024


class Namespaces:
    """Mutable: of few namespaces most requests are, and a digest for each would be a waste."""

    def __init__(self, secret: bytes, *, isolate: bool, tenant_header: str) -> None:
        """`isolate`: tenants are kept apart in the engines, too; `tenant_header` ("": none)
        separates users further."""
        self._secret = secret
        self._isolate = isolate
        self._header = tenant_header
        self._seeds: dict[tuple[str, str | None, str], int] = {}
        self._engine_seeds: dict[tuple[str | None, str | None], int] = {}

    def tenant(self, tenant: str, headers: CIMultiDictProxy[str]) -> str:
        """The key's tenant, and within it what the header separates."""
        user = headers.get(self._header) if self._header else None
        return tenant if user is None else f"{len(tenant)}:{tenant}{user}"

    def seed(self, model: str, cache_salt: str | None, tenant: str) -> int:
        key = model, cache_salt, tenant
        seed = self._seeds.get(key)
        if seed is None:
            if len(self._seeds) >= MAX_SEEDS:
                self._seeds.clear()
            seed = self._seeds[key] = namespace_seed(
                self._secret,
                model=model,
                adapter=None,
                cache_salt=cache_salt,
                tenant=tenant or None,
            )
        return seed

    def engine_seed(self, adapter: str | None, salt: str | None) -> int:
        """For the backends that tell what they hold."""
        key = adapter, salt
        seed = self._engine_seeds.get(key)
        if seed is None:
            if len(self._engine_seeds) >= MAX_SEEDS:
                self._engine_seeds.clear()
            seed = self._engine_seeds[key] = engine_seed(self._secret, *key)
        return seed

    def salt(self, tenant: str, own: str | None) -> str | None:
        """None where tenants share. The client's own salt goes on separating within a tenant."""
        if not self._isolate:
            return None
        digest = hashlib.blake2b(key=self._secret[:64], digest_size=16, person=b"cache_salt")
        for field in (tenant, "" if own is None else f"={own}"):
            raw = field.encode("utf-8", "surrogatepass")
            digest.update(len(raw).to_bytes(8, "little") + raw)
        return digest.hexdigest()
