"""Measurements of an endpoint that speaks OpenAI's protocol, at growing numbers of requests in flight."""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import aiohttp

from cli.inputs.benchmark_results import Measurement
from cluster.errors import ObservationError

LONGEST_S = 600.0
"""Most time of one request. Chosen."""
ROUNDS = 3
"""Requests for each that is in flight, in a run. Chosen: the first round fills the batch, which counts as well."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    url: str
    """Up to and with the version, as `http://host:8000/v1`."""
    model: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class _Answered:
    input_tokens: int
    output_tokens: int
    ttft_s: float
    whole_s: float


def measured(
    endpoint: Endpoint, buckets: Sequence[tuple[int, int]], in_flight: Sequence[int], tpot_s: float
) -> Iterator[Measurement]:
    """Runs of each bucket with so many requests in flight, until one is slower than the loosest SLO.

    Raises ObservationError where the endpoint refuses or answers nothing.
    """
    for inputs, outputs in buckets:
        for count in in_flight:
            run = asyncio.run(_run(endpoint, inputs, outputs, count))
            yield run
            if run.tpot_s > tpot_s:
                break


async def _run(endpoint: Endpoint, inputs: int, outputs: int, in_flight: int) -> Measurement:
    headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
    timeout = aiohttp.ClientTimeout(total=LONGEST_S)
    left = iter(range(ROUNDS * in_flight))
    answered: list[_Answered] = []

    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:

        async def one_after_another() -> None:
            answered.extend([await _asked(session, endpoint, inputs, outputs, number) for number in left])

        begun = time.perf_counter()
        try:
            await asyncio.gather(*(one_after_another() for _ in range(in_flight)))
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ObservationError(f"measuring {endpoint.url}: {str(error) or type(error).__name__}") from error
        whole_s = time.perf_counter() - begun
    count = len(answered)
    tokens = sum(each.output_tokens for each in answered) / count
    decoding = [(each.whole_s - each.ttft_s) / max(1, each.output_tokens - 1) for each in answered]
    return Measurement(
        inputs if not answered[0].input_tokens else sum(each.input_tokens for each in answered) / count,
        tokens, count / whole_s, sum(decoding) / count, sum(each.ttft_s for each in answered) / count, float(in_flight),
    )  # fmt: skip


async def _asked(
    session: aiohttp.ClientSession, endpoint: Endpoint, inputs: int, outputs: int, number: int
) -> _Answered:
    """One streamed completion. Its prompt begins with a number, so that no cache of prefixes answers for the engine."""
    body = {
        "model": endpoint.model,
        "prompt": f"{number} " + "hello " * max(1, inputs - 1),
        "max_tokens": outputs,
        "min_tokens": outputs,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    begun = time.perf_counter()
    first_s, chunks, prompt, written = 0.0, 0, 0, 0
    async with session.post(f"{endpoint.url}/completions", json=body) as response:
        if response.status != 200:
            raise ObservationError(f"{endpoint.url} answers {response.status}: {(await response.text())[:200]}")
        async for line in response.content:
            if not line.startswith(b"data:") or line.strip() == b"data: [DONE]":
                continue
            event = json.loads(line[5:])
            if event.get("choices"):
                chunks += 1
                first_s = first_s or time.perf_counter() - begun
            usage = event.get("usage") or {}
            prompt, written = usage.get("prompt_tokens", prompt), usage.get("completion_tokens", written)
    if not chunks:
        raise ObservationError(f"{endpoint.url} ended an answer without a token")
    return _Answered(prompt, written or chunks, first_s, time.perf_counter() - begun)
