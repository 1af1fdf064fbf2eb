"""Background work: how soon the forecasts of many policies are fitted, with and without Ray, and what that takes."""

import time
from collections.abc import Iterator, Sequence

from benchmarks.cases import RAY, Row, case
from controller.background.host import BackgroundHost
from controller.background.launcher import ChildDriver
from controller.background.on_ray import DriverStart
from tests.rigs.background_fits import cpu_s, measured_policies, pss_mb, session_of

LOOK_S = 0.5


@case(
    "background-fits",
    "Time to fit forecasts of many policies by where the tasks run, and what a new leader has of the fits.",
    quick={"policies": 2, "days": 2, "modes": ("none",)},
)
@case(
    "background-fits-ray",
    "The same on an embedded Ray.",
    given={"modes": ("embedded",)},
    quick={"policies": 2, "days": 2},
    needs=(RAY,),
)
def background_fits(
    *,
    policies: int = 200,
    days: int = 14,
    modes: Sequence[str] = ("none",),
    cpus: int = 2,
    most_minutes: float = 60.0,
) -> Iterator[Row]:
    """A row for each mode, `none` or `embedded`. The operator's part runs too: it asks for fits, and adopts them.

    days: of each series, at a minute, with trees. cpus: of an embedded Ray.
    """
    for mode in modes:
        child = ChildDriver(DriverStart("embedded" if mode == "embedded" else "none", cpus=cpus))
        host = BackgroundHost([child])
        host.want(wanted=True)
        began_s, memory_mb, spent_s = time.monotonic(), 0.0, dict[int, float]()
        mine = measured_policies(host, policies, days)
        try:
            while mine.forecasts.waiting and time.monotonic() < began_s + 60 * most_minutes:
                time.sleep(LOOK_S)
                mine.forecasts.take_fits()
                pids = session_of(child.folder)
                memory_mb, spent_s = max(memory_mb, pss_mb(pids)), {**spent_s, **cpu_s(pids)}
        finally:
            host.close()
        left, took_s = mine.forecasts.waiting, time.monotonic() - began_s
        later = measured_policies(host, policies, days, mine.forecasts.take_unsaved().values())
        lost, made = later.forecasts.waiting, (mine.digest(), later.digest())
        yield {
            "mode": mode,
            "policies": policies,
            "minutes": round(took_s / 60, 2),
            "cpu_s": round(sum(spent_s.values()), 1),
            "most_pss_mb": round(memory_mb),
            "losses": host.standing.losses.total(),
            "new_leader_lacks": lost,
            "forecasts": made[0],
            "wrong": f"{left} not fitted, {lost} lost, forecasts {made}" if left or lost or len({*made}) > 1 else "",
        }
