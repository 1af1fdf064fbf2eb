"""Report of a simulated day: its result beside the baseline comes first, the log last and folded."""

from dataclasses import replace

import pytest

from simulator.day.report import BaselineDay, as_html, as_picture, headline, summary_of
from simulator.day.simulation import DayMoment


def moment(at_s: float, *news: str) -> DayMoment:
    return DayMoment(
        at_s=at_s,
        gpus=8,
        gpus_used=4.0,
        running=4,
        waiting=1,
        waits={"NoNodeFits": 1},
        why={"NoNodeFits": "Pod/ns/wide: all 8 GPUs of every node are held"},
        services_per_hour=10.0,
        loading_s=300.0,
        loading_dollars=0.25,
        jobs_gpus=2.0,
        whole=("ns/chat",),
        demand_share=0.5,
        bound=1,
        evicted=0,
        scaled=0,
        failed=0,
        plan_s=0.1,
        gap=0.0,
        out_of_time=0,
        lost="",
        news=news,
    )


DAY = (moment(0.0, "node a is lost"), moment(3600.0, "node a is back"))


def beside(*day: DayMoment) -> BaselineDay:
    return BaselineDay(day, {"ns/chat": "a100"})


def test_charts_stand_before_the_log_and_the_log_is_folded() -> None:
    html = as_html(DAY, facts=())

    before, _, log = html.partition('<details class="log">')
    assert before.count("<figure") == html.count("<figure") > 0
    assert "<summary>What happened: node a is lost at 00:00; node a is back at 01:00. 2 lines</summary>" in log
    assert "<td>node a is lost</td>" in log.partition("</details>")[0]
    assert "node a is lost" not in before


def test_the_headline_says_what_the_day_saves_on_its_baseline() -> None:
    dearer = [replace(each, services_per_hour=16.0, jobs_gpus=1.0) for each in DAY]

    said = headline(DAY, beside(*dearer))

    # Two hours: 2 x $10 against 2 x $16, 37.5 % less; jobs held 2 x 2 GPUs against 2 x 1.
    assert said.startswith("In the 2.0 hours in which every service ran whole in both days, services cost $20.00: ")
    assert "37.5\u00a0% less than the $32.00 of " in said
    assert "a100 for all" in said
    assert "Jobs held 4 GPU hours, against 2 under best fit" in said
    assert "100.0\u00a0% of the day, against 100.0\u00a0%" in said


def test_dollars_are_compared_while_every_service_is_whole_in_both_days() -> None:
    lacking = (replace(DAY[0], services_per_hour=16.0), replace(DAY[1], services_per_hour=1.0, whole=()))

    said = headline(DAY, beside(*lacking))

    # Of two hours the first counts: $10 against $16. In the second the baseline is cheaper for what it lacks.
    assert said.startswith("In the 1.0 hours in which every service ran whole in both days, services cost $10.00: ")
    assert "37.5\u00a0% less than the $16.00 of " in said
    assert "100.0\u00a0% of the day, against 50.0\u00a0%" in said
    assert ("services, the 1.0 hours whole in both", "$10.00", "$16.00") in summary_of(DAY, beside(*lacking))


def test_no_figure_of_a_day_depends_on_how_long_plans_took() -> None:
    slow = [replace(each, plan_s=9.0) for each in DAY]

    assert summary_of(slow) == summary_of(DAY)


def test_the_log_is_folded_behind_the_days_events_in_numbers() -> None:
    busy = replace(moment(7200.0, "ns/chat: 2 × a100", "ns/job-1 preempted on a"), evicted=1, scaled=3)

    assert "is back at 01:00; 1 pods preempted; 3 changes of mixes. 4 lines</summary>" in as_html((*DAY, busy), ())


def test_equal_work_of_jobs_is_called_equal() -> None:
    assert "Jobs held 4 GPU hours, as many as under best fit" in headline(DAY, beside(*DAY))


def test_no_saving_is_named_where_the_baseline_serves_more() -> None:
    refused = [replace(each, whole=()) for each in DAY]
    dearer = [replace(each, services_per_hour=16.0) for each in DAY]

    said = headline(refused, beside(*dearer))

    assert "less than" not in said
    assert "the baseline, which serves ns/chat too" in said


def test_services_that_only_the_day_serves_are_named() -> None:
    short = [replace(each, services_per_hour=16.0, whole=()) for each in DAY]

    assert "37.5\u00a0% less" in headline(DAY, beside(*short))
    assert "which never had room for all of ns/chat" in headline(DAY, beside(*short))


@pytest.mark.parametrize("baseline", [None, beside(*DAY)])
def test_figures_have_a_column_for_each_day(baseline: BaselineDay | None) -> None:
    assert {len(row) for row in summary_of(DAY, baseline)} == {3 if baseline else 2}


def test_reasons_for_waiting_are_drawn_and_explained() -> None:
    html = as_html(DAY, (), beside(*DAY))

    chart = html.partition("Why pods wait")[2].partition("</figure>")[0]
    assert "NoNodeFits" in chart
    assert "all 8 GPUs of every node are held" in html.partition('id="terms"')[2]


def test_a_day_that_was_stopped_says_so() -> None:
    assert "interrupted after 2 hours" in as_html(DAY, (), stopped="interrupted after 2 hours").partition("<h2")[0]


def test_the_picture_is_a_file_of_its_own_with_the_figures_of_both_days() -> None:
    lacking = (replace(DAY[0], services_per_hour=16.0), replace(DAY[1], services_per_hour=1.0, whole=()))

    svg = as_picture(DAY, beside(*lacking))

    assert svg.startswith("<svg ")
    assert 'xmlns="http://www.w3.org/2000/svg"' in svg
    assert "var(" not in svg
    assert "currentColor" not in svg
    # Of two hours the first counts: $10 against $16.
    assert "Tonnage: all run 100.0\u00a0% of the day; $10 in the 1 hours when both are whole" in svg
    assert "one type per service that follows demand, too: 50.0\u00a0%; $16 (dotted: not all run)" in svg
