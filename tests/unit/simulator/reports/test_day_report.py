"""Report of a simulated day: what matters comes first, the log last and folded."""

from simulator.day.report import as_html
from simulator.day.simulation import Moment


def moment(at_s: float, *news: str) -> Moment:
    return Moment(
        at_s=at_s,
        gpus=8,
        gpus_used=4.0,
        running=4,
        waiting=1,
        services_per_hour=10.0,
        demand_share=0.5,
        bound=1,
        evicted=0,
        scaled=0,
        failed=0,
        plan_s=0.1,
        gap=0.0,
        out_of_time=0,
        news=news,
    )


def test_charts_stand_before_the_log_and_the_log_is_folded() -> None:
    html = as_html([moment(0.0, "node a is lost"), moment(600.0, "node a is back")], facts=())

    before, _, log = html.partition('<details class="log">')
    assert before.count("<figure") == html.count("<figure") > 0
    assert "<summary>What happened. 2 lines</summary>" in log
    assert "node a is lost" in log.partition("</details>")[0]
    assert "node a is lost" not in before
