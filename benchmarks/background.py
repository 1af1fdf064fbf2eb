"""Background work: how soon the forecasts of many policies are fitted, with and without Ray, and what that takes."""

import time
from collections.abc import Iterator, Sequence

from benchmarks.cases import RAY, Row, case
from controller.background.host import BackgroundHost
from controller.background.launcher import ChildDriver
from controller.background.on_ray import DriverStart
from tests.rigs.background_fits import measured_policies, pss_mb, session_of

LOOK_S = 0.5


@case(
    "background-fits",
    "Minutes to fit forecasts of many policies in the background, by where the tasks run, and memory meanwhile.",
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
        forecasts = measured_policies(host, policies, days)
        began_s, memory_mb = time.monotonic(), 0.0
        try:
            while forecasts.waiting and time.monotonic() < began_s + 60 * most_minutes:
                time.sleep(LOOK_S)
                forecasts.take_fits()
                memory_mb = max(memory_mb, pss_mb(session_of(child.folder)))
        finally:
            host.close()
        left = forecasts.waiting
        yield {
            "mode": mode,
            "policies": policies,
            "minutes": round((time.monotonic() - began_s) / 60, 2),
            "most_pss_mb": round(memory_mb),
            "losses": host.standing.losses.total(),
            "wrong": f"{left} policies are not fitted" if left else "",
        }
