"""Which requests are sent, with what in them, and when each is due."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from prefold.proxy.replay.drive import arrivals
from prefold.proxy.replay.prompts import (
    Form,
    Planned,
    ReplayError,
    Shape,
    planned,
    read_requests,
)
from prefold.proxy.simulate.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One of `requests_file` and `trace`. The other fields are the command's options."""

    requests_file: Path | None
    trace: Callable[[], Trace] | None
    form: Form
    num_requests: int | None
    max_input_tokens: int | None
    max_tokens: int | None
    ignore_eos: bool
    request_rate: float | None
    burstiness: float
    speed: float
    seed: int

    def requests(self, salt: str, model: str) -> list[Planned]:
        """The same for the same salt. Raises ReplayError and TraceError."""
        if self.requests_file is not None:
            return read_requests(self.requests_file, model=model)[: self.num_requests]
        if self.trace is None:
            raise ReplayError("there is nothing to replay")
        trace = self.trace()
        limit = self.max_input_tokens
        chosen = [
            request for request in trace.requests if limit is None or request.prompt_tokens <= limit
        ]
        shape = Shape(
            form=self.form,
            model=model,
            salt=salt,
            max_tokens=self.max_tokens,
            ignore_eos=self.ignore_eos,
        )
        return list(planned(trace, chosen[: self.num_requests], shape))

    def due_s(self, requests: Sequence[Planned]) -> list[float]:
        """Seconds from the first one on. Raises ReplayError where no times are known."""
        if self.request_rate is not None:
            return arrivals(len(requests), self.request_rate, self.burstiness, self.seed)
        times = [request.at_s for request in requests if request.at_s is not None]
        if len(times) < len(requests):
            raise ReplayError("the requests have no times: give --request-rate or --concurrency")
        return [(at - times[0]) / self.speed for at in times]
