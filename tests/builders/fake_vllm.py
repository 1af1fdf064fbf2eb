"""Fake vLLM server: exports vLLM's metrics of a queue that a test loads, for a Prometheus that scrapes it."""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "llama-3.1-8b"
EDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
"""vLLM's buckets of request lengths: 1, 2 and 5 times powers of ten, up to the model's longest."""


@dataclass
class FakeVllm:
    """Requests arrive at `offered_per_s`; at most `capacity_per_s` of them end, the others wait.

    The rates may be changed at any time; counters go on from there.
    """

    clock: Callable[[], float]
    """Monotonic, seconds."""
    offered_per_s: float = 0.0
    capacity_per_s: float = 10.0
    prompt_tokens: Mapping[int, float] = field(default_factory=lambda: {200: 0.75, 1000: 0.25})
    """Fraction of the requests by the upper edge of their bucket; each is as long as that edge."""
    output_tokens: Mapping[int, float] = field(default_factory=lambda: {50: 0.5, 100: 0.5})
    ended: float = 0.0
    waiting: float = 0.0
    old_names: bool = False
    """Whether it exports the names before vLLM 0.9."""
    is_gone: bool = False
    """Whether it answers scrapes with an error."""

    def __post_init__(self) -> None:
        self._lock, self._at_s = threading.Lock(), self.clock()

    def change(self, *, offered_per_s: float | None = None, capacity_per_s: float | None = None) -> None:
        with self._lock:
            self._advance()
            self.offered_per_s = self.offered_per_s if offered_per_s is None else offered_per_s
            self.capacity_per_s = self.capacity_per_s if capacity_per_s is None else capacity_per_s

    def restart(self) -> None:
        """As a pod that is restarted: counters begin at 0, and what waited is lost."""
        with self._lock:
            self._advance()
            self.ended = self.waiting = 0.0

    def metrics(self) -> str:
        with self._lock:
            self._advance()
            return "\n".join((*self._lines(), ""))

    def _advance(self) -> None:
        now_s = self.clock()
        for_s, self._at_s = now_s - self._at_s, now_s
        came = self.waiting + self.offered_per_s * for_s
        ended = min(came, self.capacity_per_s * for_s)
        self.ended, self.waiting = self.ended + ended, came - ended

    def _lines(self) -> Iterator[str]:
        labels = f'engine="0",model_name="{MODEL}"'
        cache = "gpu_cache_usage_perc" if self.old_names else "kv_cache_usage_perc"
        busy = min(1.0, self.offered_per_s / self.capacity_per_s) if self.capacity_per_s else 1.0
        yield "# TYPE vllm:num_requests_waiting gauge"
        yield f"vllm:num_requests_waiting{{{labels}}} {self.waiting}"
        yield f"vllm:num_requests_running{{{labels}}} {busy * 8}"
        yield f"vllm:{cache}{{{labels}}} {busy}"
        yield "# TYPE vllm:request_success_total counter"
        yield f'vllm:request_success_total{{{labels},finished_reason="stop"}} {self.ended * 0.75}'
        yield f'vllm:request_success_total{{{labels},finished_reason="length"}} {self.ended * 0.25}'
        yield from self._histogram("vllm:request_prompt_tokens", self.prompt_tokens, labels)
        yield from self._histogram("vllm:request_generation_tokens", self.output_tokens, labels)

    def _histogram(self, name: str, shares: Mapping[int, float], labels: str) -> Iterator[str]:
        yield f"# TYPE {name} histogram"
        for edge in EDGES:
            below = sum(share for length, share in shares.items() if length <= edge)
            yield f'{name}_bucket{{{labels},le="{edge:.1f}"}} {self.ended * below}'
        yield f'{name}_bucket{{{labels},le="+Inf"}} {self.ended}'
        yield f"{name}_count{{{labels}}} {self.ended}"
        yield f"{name}_sum{{{labels}}} {self.ended * sum(length * share for length, share in shares.items())}"


class MetricsServer:
    """Serves the metrics of a fake at `http://127.0.0.1:port/metrics`."""

    def __init__(self, fake: FakeVllm) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = fake.metrics().encode()
                self.send_response(503 if fake.is_gone else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
