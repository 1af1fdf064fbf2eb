"""`tonnage scaling backtest`: figures on standard output, histories from two sources."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from cli.main import tonnage
from cli.verbs.scaling import Ask, Spans, from_prometheus
from cluster.errors import ConfigError
from controller.loops.autoscaler.prometheus import MOST_POINTS, Series, SourceError, series_in
from simulator.scaling.traces import generated_trace

NOW_S = 1_760_000_000.0


def run(*words: str) -> Result:
    return CliRunner().invoke(tonnage, list(words))


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Four days of load every ten minutes."""
    trace = generated_trace(5, days=4, step_s=600.0)
    rows = "".join(f"{at_s:.0f},{value:g}\n" for at_s, value in zip(trace.at_s, trace.values, strict=True))
    path = tmp_path / "load.csv"
    path.write_text("t_s,requests\n" + rows, encoding="utf-8")
    return path


class FakePrometheus:
    """Answers range queries with a load of 100 + hour of the day, and keeps what it was asked."""

    def __init__(self, series: int = 1, kind: str = "matrix", warnings: tuple[str, ...] = ()) -> None:
        self.asked: list[tuple[float, float]] = []
        self._series, self._kind, self._warnings = series, kind, warnings

    async def __call__(self, _: str, __: str, spans: Spans, step_s: float) -> list[tuple[Series, ...]]:
        self.asked += spans
        return [series_in(self._answer(first_s, last_s, step_s)) for first_s, last_s in spans]

    def _answer(self, first_s: float, last_s: float, step_s: float) -> bytes:
        at_s = np.arange(first_s, last_s + 0.5, step_s)
        values = [[instant, "NaN" if instant % 7200.0 == 0 else str(100 + instant // 3600 % 24)] for instant in at_s]
        result = [{"metric": {"n": str(number)}, "values": values} for number in range(self._series)]
        data = {"resultType": self._kind, "result": result}
        return json.dumps({"status": "success", "data": data, "warnings": self._warnings}).encode()


def test_a_users_own_history_is_replayed_under_each_policy_with_the_dollars_between_them(history: Path) -> None:
    done = run("scaling", "backtest", str(history), "--lead", "10", "--price", "2.5", "--train-days", "2")
    assert done.exit_code == 0, done.output
    for policy in ("tonnage", "hpa", "fixed", "oracle"):
        assert f"\n{policy} " in done.stdout
    assert "DIFFERENCE $" in done.stdout


def test_json_has_the_same_figures_for_machines(history: Path) -> None:
    done = run("scaling", "backtest", str(history), "--policy", "tonnage,oracle", "--train-days", "2", "-o", "json")
    record = json.loads(done.stdout)
    ours, oracle = record["policies"]
    assert (record["record"], ours["policy"], oracle["gpu_hours_ratio"]) == (1, "tonnage", 1.0)
    assert ours["j"] == pytest.approx(ours["gpu_hours_ratio"] + 99 * ours["shortfall_ratio"])
    assert ours["replica_dollars"] > oracle["replica_dollars"]


def test_the_report_is_one_page_with_its_charts(history: Path, tmp_path: Path) -> None:
    page = tmp_path / "out" / "report.html"
    done = run("scaling", "backtest", str(history), "--train-days", "2", "--report", str(page))
    assert done.exit_code == 0, done.output
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg role") == 2
    assert "Load, forecast and capacity" in text


def test_without_a_source_the_load_is_a_generated_one() -> None:
    done = run("scaling", "backtest", "--policy", "hpa,oracle", "--train-days", "1", "--days", "1")
    assert done.exit_code == 0, done.output
    assert "oracle" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("load.csv", "--prometheus", "http://p", "--query", "x"),
        ("--prometheus", "http://p"),
    ],
)
def test_one_source_is_given_whole(words: tuple[str, ...]) -> None:
    done = run("scaling", "backtest", *words)
    assert done.exit_code == 2
    assert "give either FILE" in done.stderr


def test_an_unknown_policy_is_refused_with_those_that_are_known(history: Path) -> None:
    done = run("scaling", "backtest", str(history), "--policy", "guess")
    assert done.exit_code == 2
    assert "guess" in done.stderr
    assert "oracle" in done.stderr


def test_prometheus_is_asked_in_parts_that_it_answers_and_gaps_stay_gaps() -> None:
    server = FakePrometheus()
    load = from_prometheus("http://prom:9090/", "sum(up)", days=14, step_s=60.0, asks=server, now_s=NOW_S)
    assert len(load.values) == 14 * 1440
    assert len(server.asked) == 3  # 20,160 points
    assert all((last_s - first_s) / 60.0 + 1 <= MOST_POINTS for first_s, last_s in server.asked)
    assert np.isnan(load.values).sum() == 14 * 12  # a NaN every two hours
    assert np.nanmin(load.values) >= 100.0
    assert load.at_s[-1] == NOW_S // 60.0 * 60.0


async def unreachable(url: str, _: str, __: Spans, ___: float) -> list[tuple[Series, ...]]:
    raise SourceError("PrometheusUnreachable", f"asking {url}: connection refused")


@pytest.mark.parametrize(
    ("asks", "words"),
    [
        (FakePrometheus(series=2), "sum"),
        (FakePrometheus(series=0), "no samples"),
        (FakePrometheus(kind="string"), "string"),
        (FakePrometheus(warnings=("store 10.0.0.1 is down",)), "store 10.0.0.1 is down"),
        (unreachable, "connection refused"),
    ],
)
def test_an_answer_that_is_no_history_is_refused_in_words(asks: Ask, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        from_prometheus("http://prom:9090", "x", days=1, step_s=60.0, asks=asks, now_s=NOW_S)


def test_only_http_is_asked() -> None:
    with pytest.raises(ConfigError, match="is no address"):
        from_prometheus("file:///etc/passwd", "x", days=1, step_s=60.0, now_s=NOW_S)
