"""One HTTP request as handlers see it."""

from __future__ import annotations

from multidict import CIMultiDict, CIMultiDictProxy

from prefold.proxy.http.answer import Answer
from prefold.proxy.http.body import Body
from prefold.proxy.rate_limit import Allowance


class Request:
    """Mutable only in what is noted on it: whose it is, its id, what its path holds, and in its
    headers the trace that it belongs to. Texts of head and path are latin-1, so that every byte of
    them can be passed on."""

    def __init__(
        self,
        *,
        method: str,
        path: str,
        query: str,
        headers: CIMultiDict[str],
        body: Body,
        answer: Answer,
    ) -> None:
        self.method = method
        self.path = path
        """As sent: nothing is decoded or resolved."""
        self.query = query
        self.headers = CIMultiDictProxy(headers)
        self.body = body
        self.answer = answer
        self.params: dict[str, str] = {}
        """What the route took from the path, decoded."""
        self.tenant = ""
        """Whose key it came with; "" where no keys are configured."""
        self.request_id = ""
        self.allowance: Allowance | None = None
        """What is left of its key's limit; None where it has none."""
        self.cut = False
        """It is ended because the process ends."""

    @property
    def content_type(self) -> str:
        """Without parameters, in lower case."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    def __repr__(self) -> str:
        return f"<Request {self.method}>"
