"""OpenAPI 3.1 of both ports. What a path takes and does comes from `routes`, the members of a
request from the structs that read it; only what prefold answers itself is written out here.

Bodies that are passed on are described by what prefold needs of them: the rest is the engine's.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from prefold import __version__
from prefold.proxy.openapi_schemas import OWN_SCHEMAS, REF, Json
from prefold.proxy.routes import ROUTES, Passage, Route

DATA, ADMIN = "data", "admin"
_WEIGHTS = REF.format(name="Weights")
METHODS_OF_ANY = ("get", "post", "delete")
"""What is described of a path that takes every method."""


def document(data_url: str, admin_url: str) -> Json:
    """Both ports in one document: each path names the server that has it."""
    paths: Json = {}
    for route in ROUTES:
        for path, parameters in described_paths(route.path):
            item = paths.setdefault(path, {"servers": [{"url": data_url}]})
            if parameters:
                item["parameters"] = parameters
            for method in METHODS_OF_ANY if route.method == "*" else (route.method.lower(),):
                item[method] = _data_operation(route, path, method)
    for path, operations in _admin_paths().items():
        paths[path] = {"servers": [{"url": admin_url}], **operations}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "prefold",
            "version": __version__,
            "summary": "OpenAI-compatible reverse proxy that makes LLM prefill cheap",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [
            {"name": DATA, "description": "What OpenAI clients talk to."},
            {"name": ADMIN, "description": "For operators, never for clients."},
        ],
        # Either is off where the settings hold no keys.
        "security": [{"key": []}, {}],
        "paths": paths,
        "components": {
            "schemas": {**_body_schemas(), **OWN_SCHEMAS},
            "responses": _error_responses(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def described_paths(path: str) -> Iterator[tuple[str, list[Json]]]:
    """aiohttp's pattern as OpenAPI's paths, with their parameters: `/v1/files{rest:(/.*)?}` is the
    folder and what is below it."""
    plain, _, rest = path.partition("{")
    if not rest:
        yield plain, []
        return
    name, _, after = rest.partition("}")
    name, _, pattern = name.partition(":")
    if pattern == "(/.*)?":
        yield plain, []
    if pattern.endswith("/.*") or pattern == "(/.*)?":
        plain += "/"
    described = {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    yield f"{plain}{{{name}}}{after}", [described]


SUMMARIES = {
    Passage.PREFIX: "Routed by the prefix of its prompt",
    Passage.LOAD: "Passed to the least loaded backend that serves the model",
    Passage.PINNED: "Passed to the backend that made the response",
    Passage.STATEFUL: "Passed to the backend that the settings name for state, else refused",
    Passage.OWN: "Answered by prefold",
    Passage.REFUSED: "Refused: no plain HTTP exchange",
}


def _data_operation(route: Route, path: str, method: str) -> Json:
    operation: Json = {"tags": [DATA], "summary": SUMMARIES[route.passage]}
    error = "AnthropicError" if path.startswith("/v1/messages") else "Error"
    if route.passage is Passage.OWN:
        operation["responses"] = _own_responses(path)
        return operation
    if route.passage is Passage.REFUSED:
        # 404: a line end in the path is no part of any path here.
        operation["responses"] = _errors(error, 401, 404, 429, 501)
        return operation
    statuses = [400, 401, 404, 413, 429, 502, 503, 504]
    if route.passage is Passage.STATEFUL:
        statuses.append(501)
    operation["responses"] = {
        "200": {"description": "The backend's answer.", "content": _any_content(route)},
        **_errors(error, *statuses),
        "default": {"description": "The backend's own answer, passed on."},
    }
    if method == "post":
        operation["requestBody"] = _request_body(route)
    return operation


def _request_body(route: Route) -> Json:
    if route.body is not None:
        schema = {"$ref": REF.format(name=route.body.__name__)}
        return {"required": True, "content": {"application/json": {"schema": schema}}}
    named = {"schema": {"type": "object", "properties": {"model": {"type": "string"}}}}
    content = {"application/json": named}
    if route.path.startswith(("/v1/audio/", "/v1/images/edits")):
        content["multipart/form-data"] = named
    return {"required": False, "content": content}


def _any_content(route: Route) -> Json:
    if route.passage is not Passage.PREFIX:
        return {"*/*": {}}
    return {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}}


def _own_responses(path: str) -> Json:
    if path == "/health":
        return {"200": _json("The process lives.", "Health")}
    if path == "/ready":
        return {
            "200": _json("A backend is ready.", "Ready"),
            "503": _json("None is, or the process was told to end.", "Ready"),
        }
    if path == "/v1/models":
        return {"200": _json("The union over backends, and aliases.", "ModelList")} | _errors(
            "Error", 401, 429
        )
    return {"200": _json("The model.", "Model")} | _errors("Error", 401, 404, 429)


REASONS = {
    400: "The request is malformed, or asks for too much.",
    401: "No key, or a wrong one.",
    403: "Not for web pages, and only by address where no key is set.",
    404: "Unknown model, path, or name.",
    409: "There is one of this name.",
    413: "The body is too large.",
    429: "Over the rate of this key; or the backends', passed on.",
    501: "prefold does not serve this path.",
    502: "The backend failed.",
    503: "No backend is available, or the queue is full.",
    504: "The backend took too long.",
}


def _errors(schema: str, *statuses: int) -> Json:
    return {
        str(status): {"$ref": f"#/components/responses/{schema}{status}"}
        for status in sorted(statuses)
    }


def _error_responses() -> Json:
    return {
        f"{schema}{status}": _json(reason, schema)
        for schema in ("Error", "AnthropicError")
        for status, reason in REASONS.items()
    }


def _json(description: str, schema: str) -> Json:
    content = {"application/json": {"schema": {"$ref": REF.format(name=schema)}}}
    return {"description": description, "content": content}


def _body_schemas() -> Json:
    """Of the structs by which requests are read: they name what decides the routing."""
    bodies = [route.body for route in ROUTES if route.body is not None]
    _, schemas = msgspec.json.schema_components(bodies, ref_template=REF)
    return schemas


def _admin_paths() -> Json:
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    new = {"application/json": {"schema": {"$ref": REF.format(name="NewBackend")}}}
    metrics = {
        kind: {"schema": {"type": "string"}}
        for kind in ("text/plain", "application/openmetrics-text")
    }
    page = {"text/html": {"schema": {"type": "string"}}}
    files = {f"text/{kind}": {"schema": {"type": "string"}} for kind in ("javascript", "css")}
    return {
        "/metrics": {
            "get": _admin(
                "Figures for Prometheus", {"200": {"description": "Figures.", "content": metrics}}
            )
        },
        "/report": {
            "get": _admin("Totals since start", {"200": _json("Totals.", "Report")}),
        },
        "/": {
            "get": _admin("The dashboard", {"200": {"description": "A page.", "content": page}}),
        },
        "/dashboard/{file}": {
            "parameters": [{**name, "name": "file"}],
            "get": _admin(
                "A file of that page", {"200": {"description": "The file.", "content": files}}, 404
            ),
        },
        "/dashboard/figures": {
            "get": _admin(
                "What the dashboard shows", {"200": _json("Figures and the last hour.", "Figures")}
            ),
        },
        "/dashboard/ledger": {
            "get": _admin(
                "What the ledger's last day tells, as far as it was read",
                {"200": _json("Report and diagnosis.", "LedgerView")},
            ),
        },
        "/openapi.json": {
            "get": _admin("This document", {"200": _json("The document.", "Any")}),
        },
        "/backends": {
            "get": _admin("The backends", {"200": _json("The backends.", "BackendList")}),
            "post": {
                **_admin("Add a backend", {"201": _json("It is there.", "Backend")}, 400, 409, 413),
                "requestBody": {"required": True, "content": new},
            },
        },
        "/backends/{name}": {
            "parameters": [name],
            "delete": _admin(
                "Remove a backend; its streams finish",
                {"200": _json("It takes nothing new.", "Removed")},
                400,
                404,
            ),
        },
        "/arms": {
            "get": _admin("The arms of an experiment", {"200": _json("The arms.", "ArmList")}),
            "patch": {
                **_admin(
                    "Change weights of arms", {"200": _json("The arms.", "ArmList")}, 400, 404, 413
                ),
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": _WEIGHTS}}},
                },
            },
        },
        "/reload": {
            "post": _admin(
                "Read the settings again", {"200": _json("What changed.", "Changes")}, 400
            )
        },
    }


def _admin(summary: str, responses: Json, *errors: int) -> Json:
    return {
        "tags": [ADMIN],
        "summary": summary,
        "responses": responses | _errors("Error", 401, 403, *errors),
    }
