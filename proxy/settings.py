"""Every setting of prefold, its type and its default. `settings_file` reads them, and
`settings_checks` judges them.

Only `proxy/app.py` and the CLI see these objects; everything else takes plain arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
EngineName = Literal["auto", "llama.cpp", "vllm", "sglang", "tensorrt-llm", "openai"]
CompressionMode = Literal["off", "shadow", "on", "auto"]
Rank = Annotated[int, msgspec.Meta(ge=-1)]
"""-1: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    host: str = "127.0.0.1"
    port: Port = 8000
    admin_host: str = "127.0.0.1"
    admin_port: Port = 8001
    workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    max_body_mib: Positive = 32.0
    max_upload_mib: Positive = 512.0
    max_json_depth: Count = 64
    max_messages: Count = 10_000
    max_n: Count = 128
    max_header_kib: Count = 64
    lame_duck_s: NotNegative = 5.0
    drain_s: NotNegative = 30.0
    decision_header: bool = True
    normalise_errors: bool = True
    log_requests: bool = True
    tls_certificate: str = ""
    tls_key: str = ""
    admin_key: str = field(default="", repr=False)
    admin_key_file: str = ""
    cors_origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    connect_s: Positive = 5.0
    first_byte_s: Positive = 600.0
    idle_s: Positive = 120.0
    write_s: Positive = 60.0
    read_s: Positive = 60.0
    queue_s: NotNegative = 10.0
    total_s: NotNegative = 0.0
    heartbeat_s: NotNegative = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    queue: Annotated[int, msgspec.Meta(ge=0)] = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    budget: NotNegative = 0.1
    after_first_byte_timeout: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    policy: Literal["prefix", "round_robin", "least_load", "rendezvous", "random"] = "prefix"
    eviction_price: NotNegative = 1.0
    copy_price: NotNegative = 2.0
    crowd_price: NotNegative = 5.0
    decode_penalty_s: NotNegative = 0.02
    noise_relative: NotNegative = 0.02
    noise_s: NotNegative = 0.005
    noise_work: NotNegative = 0.05
    initial_prefill_tokens_per_s: Positive = 5000.0
    tenant_header: str = ""
    pinned_backend: str = ""
    prompt_cache_key: bool = True
    session_headers: tuple[str, ...] = (
        "X-Session-ID",
        "X-Session-Affinity",
        "X-Claude-Code-Session-Id",
        "X-SMG-Routing-Key",
    )
    secret: str = field(default="", repr=False)
    secret_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    default_capacity_tokens: Count = 262_144
    default_block_tokens: Count = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    memo_mib: Positive = 64.0
    inline_chars: Annotated[int, msgspec.Meta(ge=0)] = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    interval_s: Positive = 5.0
    timeout_s: Positive = 5.0
    failures_to_eject: Count = 3
    eject_s: Positive = 5.0
    eject_max_s: Positive = 60.0
    slow_start_s: NotNegative = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    url: str
    name: str = ""
    engine: EngineName = "auto"
    api_key: str = field(default="", repr=False)
    api_key_file: str = ""
    pass_client_key: bool = False
    ca_file: str = ""
    max_in_flight: Count = 512
    kv_events: str = ""
    kv_replay: str = ""
    kv_topic: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    data_parallel: Count = 1
    data_parallel_rank: Rank = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An API key of clients. `sha256` is the hex digest of the key: the key itself is not kept."""

    tenant: str
    sha256: str
    requests_per_minute: NotNegative = 0.0
    parallel: Annotated[int, msgspec.Meta(ge=0)] = 0
    compression: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Redis:
    """Where replicas of this proxy share what they learn: see docs/replicas.md."""

    url: str = ""
    password: str = field(default="", repr=False)
    password_file: str = ""
    ca_file: str = ""
    name: str = "prefold"
    interval_s: Positive = 0.025
    timeout_s: Positive = 1.0
    max_mib: Annotated[float, msgspec.Meta(ge=1)] = 64.0
    ttl_s: Annotated[float, msgspec.Meta(ge=1)] = 3600.0
    pins_ttl_s: Annotated[float, msgspec.Meta(ge=1)] = 86400.0
    segments_mib: NotNegative = 64.0
    segments_ttl_s: Annotated[float, msgspec.Meta(ge=1)] = 86400.0
    segments_wait_s: Positive = 0.05
    buffer_mib: Annotated[float, msgspec.Meta(ge=1)] = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """Backends beside those that are named: every address of a name, and a list in a file."""

    dns: str = ""
    dns_family: Literal["any", "ipv4", "ipv6"] = "any"
    file: str = ""
    interval_s: Positive = 10.0
    engine: EngineName = "auto"
    api_key: str = field(default="", repr=False)
    api_key_file: str = ""
    max_in_flight: Count = 512
    kv_events: Literal["", "auto"] = ""

    @property
    def wanted(self) -> bool:
        return bool(self.dns or self.file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """A part of prompts that differs in each request: see `proxy/masks.py`."""

    pattern: str
    models: tuple[str, ...] = ()
    stripped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """How clients mark the documents of a RAG prompt: see `proxy/documents/marks.py`."""

    by_header: bool = False
    start: str = "<document>"
    end: str = "</document>"
    fence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A share of the conversations, or of the time, and what is different for them: see
    docs/report.md."""

    name: str
    weight: NotNegative = 1.0
    compression: Literal["", "off", "shadow", "on", "auto"] = ""
    labels: dict[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    policy: Literal["", "prefix", "round_robin", "least_load", "rendezvous", "random"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """`slice_s` 0: arms are of conversations; else they have the whole fleet by turns."""

    slice_s: NotNegative = 0.0
    washout_s: NotNegative = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression:
    """Of prompts: see docs/compression.md. `mode` is that of models that have none of their own."""

    mode: CompressionMode = "off"
    by_header: bool = False
    compressor: Literal["lexical", "sentences", "surprisal", "llmlingua2", "llmlingua", "null"] = (
        "lexical"
    )
    model: str = ""
    model_revision: str = ""
    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16", "int8"] = "auto"
    language: str = "en"
    url: str = ""
    protocol: Literal["prefold", "vllm"] = "prefold"
    served_model: str = ""
    api_key: str = field(default="", repr=False)
    api_key_file: str = ""
    rate: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.5
    min_tokens: Count = 512
    min_chars: Count = 400
    documents: tuple[Literal["parts", "member", "delimited"], ...] = (
        "parts",
        "member",
        "delimited",
    )
    tools: bool = False
    keep: tuple[tuple[str, str], ...] = (("<keep>", "</keep>"),)
    quotes: tuple[tuple[str, str], ...] = ()
    deadline_s: Positive = 1.0
    margin_s: NotNegative = 0.02
    speculative: bool = True
    workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    hang_s: Positive = 30.0
    cache_mib: Positive = 64.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    tokenizer: str = ""
    chat_template: str = ""
    aliases: tuple[str, ...] = ()
    documents: tuple[Literal["parts", "member", "delimited"], ...] = ()
    compression: CompressionMode | Literal[""] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    path: str = ""
    max_age_days: NotNegative = 30.0
    max_mib: Annotated[float, msgspec.Meta(ge=1)] = 1024.0
    token_times: bool = True
    digests: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What is looked at while requests pass, for `prefold diagnose`: see docs/diagnose.md."""

    divergence: bool = False
    divergence_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.125


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracing:
    """Requests as OpenTelemetry spans: see docs/observability.md."""

    endpoint: str = ""
    sample: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    service_name: str = "prefold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    server: Server = Server()
    timeouts: Timeouts = Timeouts()
    limits: Limits = Limits()
    retry: Retry = Retry()
    routing: Routing = Routing()
    index: Index = Index()
    tokens: Tokens = Tokens()
    health: Health = Health()
    ledger: Ledger = Ledger()
    diagnosis: Diagnosis = Diagnosis()
    tracing: Tracing = Tracing()
    discovery: Discovery = Discovery()
    redis: Redis = Redis()
    documents: Documents = Documents()
    compression: Compression = Compression()
    experiment: Experiment = Experiment()
    backends: tuple[Backend, ...] = ()
    keys: tuple[Key, ...] = ()
    masks: tuple[Mask, ...] = ()
    arms: tuple[Arm, ...] = ()
    models: dict[str, Model] = field(default_factory=dict)
