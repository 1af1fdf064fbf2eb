"""History for a real Prometheus: vLLM's metrics of days that never were, imported as blocks before it starts."""

import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.builders.fake_vllm import MODEL

STEP_S = 15
"""Between two scrapes of the history."""


def import_history(
    program: Path, folder: Path, labels: Mapping[str, str], rate_at: Callable[[float], float], start_s: int, end_s: int
) -> None:
    """Imports the history of one server that keeps up with its load.

    program: Prometheus, beside which promtool lies. folder: that of a LivePrometheus that has not started yet.
    labels: of the target. rate_at: requests per second at an instant.
    """
    text = folder / "history.om"
    text.write_text("\n".join((*_lines(labels, rate_at, start_s, end_s), "# EOF", "")), encoding="utf-8")
    command = [program.with_name("promtool"), "tsdb", "create-blocks-from", "openmetrics", text, folder / "data"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    text.unlink()


def _lines(labels: Mapping[str, str], rate_at: Callable[[float], float], start_s: int, end_s: int) -> Iterator[str]:
    instants = range(start_s, end_s, STEP_S)
    of_target = "".join(f',{name}="{value}"' for name, value in sorted(labels.items()))
    selector = f'engine="0",model_name="{MODEL}"{of_target}'
    for gauge in ("vllm:num_requests_waiting", "vllm:num_requests_running"):
        yield f"# TYPE {gauge} gauge"
        yield from (f"{gauge}{{{selector}}} 0 {at_s}" for at_s in instants)
    yield "# TYPE vllm:request_success counter"
    ended = 0.0
    for at_s in instants:
        yield f'vllm:request_success_total{{{selector},finished_reason="stop"}} {ended:.3f} {at_s}'
        ended += rate_at(at_s) * STEP_S
