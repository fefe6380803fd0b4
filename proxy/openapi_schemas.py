"""JSON schemas of what prefold answers itself, and of what its admin port takes. Data only."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

REF = "#/components/schemas/{name}"


def _object(properties: Json, *, closed: bool = False) -> Json:
    """All of them are there."""
    made: Json = {"type": "object", "properties": properties, "required": list(properties)}
    if closed:
        made["additionalProperties"] = False
    return made


STRING: Json = {"type": "string"}
STRING_OR_NULL: Json = {"type": ["string", "null"]}
COUNT: Json = {"type": "integer", "minimum": 0}
STRINGS: Json = {"type": "array", "items": STRING}
ANY_OBJECT: Json = {"type": "object"}
NOT_NEGATIVE: Json = {"type": "number", "minimum": 0}

OWN_SCHEMAS: Json = {
    "Error": _object(
        {
            "error": _object(
                {
                    "message": STRING,
                    "type": STRING,
                    "param": STRING_OR_NULL,
                    "code": STRING_OR_NULL,
                }
            )
        }
    ),
    "AnthropicError": _object(
        {"type": {"const": "error"}, "error": _object({"type": STRING, "message": STRING})}
    ),
    "Model": _object({"id": STRING, "object": {"const": "model"}}),
    "ModelList": _object(
        {
            "object": {"const": "list"},
            "data": {"type": "array", "items": {"$ref": REF.format(name="Model")}},
        }
    ),
    "Health": _object({"status": {"const": "ok"}}, closed=True),
    "Ready": _object(
        {
            "status": {"enum": ["ready", "waiting", "draining"]},
            "backends": STRINGS,
        },
        closed=True,
    ),
    "Report": _object(
        {
            "total": ANY_OBJECT,
            "backends": {"type": "object", "additionalProperties": ANY_OBJECT},
            "arms": {"type": "object", "additionalProperties": ANY_OBJECT},
            "divergence": ANY_OBJECT,
            "definitions": {"type": "object", "additionalProperties": STRING},
            "tokenizers": {"type": "object", "additionalProperties": ANY_OBJECT},
        }
    ),
    "Figures": _object(
        {
            "now": NOT_NEGATIVE,
            "interval_s": NOT_NEGATIVE,
            "waiting": COUNT,
            "backends": {"type": "array", "items": ANY_OBJECT},
            "report": ANY_OBJECT,
            "distributions": {"type": "object", "additionalProperties": ANY_OBJECT},
            "series": {
                "type": "object",
                "additionalProperties": {"type": "array", "items": {"type": "number"}},
            },
        },
        closed=True,
    ),
    "LedgerView": _object({"state": {"enum": ["none", "reading", "ready", "failed"]}}),
    "Backend": _object(
        {
            "name": STRING,
            "url": STRING,
            "engine": STRING_OR_NULL,
            "state": {"enum": ["up", "half_open", "ejected", "down"]},
            "mode": STRING,
            "mode_reason": STRING,
            "in_flight": COUNT,
            "max_in_flight": COUNT,
            "queued_tokens": COUNT,
            "models": STRINGS,
            "engine_load": {"type": ["object", "null"]},
        },
        closed=True,
    ),
    "BackendList": _object(
        {"backends": {"type": "array", "items": {"$ref": REF.format(name="Backend")}}}
    ),
    "NewBackend": {
        "type": "object",
        "description": "A [[backends]] table of the settings.",
        "properties": {
            "url": {"type": "string", "format": "uri", "pattern": "^https?://[^/?#@]+$"},
            "name": STRING,
            "engine": {"enum": ["auto", "llama.cpp", "vllm", "sglang", "tensorrt-llm", "openai"]},
            "api_key": STRING,
            "pass_client_key": {"type": "boolean"},
            "max_in_flight": {"type": "integer", "minimum": 1},
            "kv_events": STRING,
            "kv_replay": STRING,
            "kv_topic": STRING,
            "data_parallel_rank": {"type": "integer", "minimum": -1},
            "labels": {"type": "object", "additionalProperties": STRING},
        },
        "required": ["url"],
        "additionalProperties": False,
    },
    "Removed": _object({"removed": STRINGS}, closed=True),
    "Changes": _object(
        {"added": STRINGS, "removed": STRINGS, "kept": STRINGS, "restart_needed_for": STRINGS},
        closed=True,
    ),
    "ArmList": _object(
        {
            "arms": {
                "type": "array",
                "items": _object(
                    {
                        "name": STRING,
                        "weight": NOT_NEGATIVE,
                        "share": NOT_NEGATIVE,
                        "compression": STRING,
                        "labels": {"type": "object", "additionalProperties": STRING},
                        "models": STRINGS,
                        "policy": STRING,
                    },
                    closed=True,
                ),
            }
        },
        closed=True,
    ),
    "Weights": {
        "type": "object",
        "description": "New weights by the names of arms.",
        "additionalProperties": NOT_NEGATIVE,
    },
    "Any": ANY_OBJECT,
}
