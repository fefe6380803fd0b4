"""Our exceptions, and the OpenAI error object each becomes.

    PrefoldError
      SettingsError                 one line, and status 1 of the command line
      TokenizerError                a model without exact tokens: its backends drop a mode
      NotEncodable                  one request without exact tokens: it is routed by its bytes
      ApiError                      has a status, a type and a code: what the client is told
        BadRequest            400   invalid_request_error
        Unauthorized          401   authentication_error, invalid_api_key
        Forbidden             403   permission_error
        ModelNotFound         404   invalid_request_error, model_not_found
        UnknownPath           404   invalid_request_error, unknown_url
        MethodNotAllowed      405   invalid_request_error
        TooLarge              413   invalid_request_error, request_too_large
        RateLimited           429   rate_limit_error, rate_limit_exceeded, with Retry-After
        UnsupportedCoding     415   invalid_request_error, unsupported_content_encoding
        ExpectationFailed     417   invalid_request_error, expectation_failed
        HeaderTooLong         431   invalid_request_error, header_too_long
        NotSupported          501   invalid_request_error, not_supported
        ResponseNotFound      404   invalid_request_error, previous_response_not_found
        NoBackendAvailable    503   server_error, with Retry-After
        Overloaded            503   server_error, with Retry-After
        UpstreamFailed        502   server_error
        UpstreamTimedOut      504   server_error

An engine's own 4xx or 5xx is no exception here: its answer passes, put into this form if need be.
"""

from __future__ import annotations

import msgspec


class PrefoldError(Exception):
    """Root of everything prefold raises on purpose."""


class SettingsError(PrefoldError):
    """A setting is wrong; the message names the key."""


class TokenizerError(PrefoldError):
    """There is no tokenizer here, or none whose ids would be the engine's."""


class NotEncodable(PrefoldError):
    """The token ids of one request cannot be known here; the message quotes no content."""


class ApiError(PrefoldError):
    """An error the client is told about, in OpenAI's form."""

    status: int = 500
    kind: str = "server_error"
    code: str | None = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code

    @property
    def headers(self) -> dict[str, str]:
        return {}

    def body(self) -> bytes:
        """OpenAI's error object; all four members, since the Node client drops other shapes."""
        return msgspec.json.encode(
            {
                "error": {
                    "message": self.message,
                    "type": self.kind,
                    "param": self.param,
                    "code": self.code,
                }
            }
        )


class BadRequest(ApiError):
    status = 400
    kind = "invalid_request_error"


class Unauthorized(ApiError):
    """No key, no known one, or two at once; the message does not say which."""

    status = 401
    kind = "authentication_error"
    code = "invalid_api_key"

    @property
    def headers(self) -> dict[str, str]:
        return {"WWW-Authenticate": "Bearer"}


class Forbidden(ApiError):
    status = 403
    kind = "permission_error"
    code = "forbidden"


class ModelNotFound(ApiError):
    status = 404
    kind = "invalid_request_error"
    code = "model_not_found"


class UnknownPath(ApiError):
    status = 404
    kind = "invalid_request_error"
    code = "unknown_url"


class MethodNotAllowed(ApiError):
    status = 405
    kind = "invalid_request_error"
    code = "method_not_allowed"


class TooLarge(ApiError):
    status = 413
    kind = "invalid_request_error"
    code = "request_too_large"


class RateLimited(ApiError):
    """`retry_after_s`, 1 to 60: official clients ignore longer waits, or take them literally."""

    status = 429
    kind = "rate_limit_error"
    code = "rate_limit_exceeded"

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = min(max(retry_after_s, 1), 60)

    @property
    def headers(self) -> dict[str, str]:
        return {"Retry-After": str(self.retry_after_s)}


class UnsupportedCoding(ApiError):
    status = 415
    kind = "invalid_request_error"
    code = "unsupported_content_encoding"


class ExpectationFailed(ApiError):
    status = 417
    kind = "invalid_request_error"
    code = "expectation_failed"


class HeaderTooLong(ApiError):
    status = 431
    kind = "invalid_request_error"
    code = "header_too_long"


class NotSupported(ApiError):
    status = 501
    kind = "invalid_request_error"
    code = "not_supported"


class NoBackendAvailable(ApiError):
    status = 503
    code = "no_backend_available"

    @property
    def headers(self) -> dict[str, str]:
        # Both official clients wait this long before they try again.
        return {"Retry-After": "2"}


class Overloaded(NoBackendAvailable):
    code = "overloaded"


class ResponseNotFound(ApiError):
    """The backend that made it is not known, or is gone: no other one could answer."""

    status = 404
    kind = "invalid_request_error"
    code = "previous_response_not_found"


class UpstreamFailed(ApiError):
    status = 502
    code = "upstream_failed"


class UpstreamTimedOut(ApiError):
    status = 504
    code = "upstream_timeout"
