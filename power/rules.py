"""Settings of power management: delays, ages and bands, each with the reason for its value."""

from dataclasses import dataclass, fields

from cluster.errors import ConfigError, Mistake

MEANT_W = 1.0
"""Resolution of caps: whole watts above the lowest limit; differences below one watt do not count."""
ROUNDING_W = 0.5
"""Largest rounding of a limit by a device. A limit that differs by more is another cap: caps differ by whole watts."""


@dataclass(frozen=True, slots=True)
class PowerRules:
    """Behaviour of the allocator and the estimator. No setting can raise a budget: arithmetic enforces budgets."""

    control_delay_s: float = 2.0
    """Seconds from a decision until its effect can be read back. In band: 2 (measured on limits and locked clocks: at
    the floor after 1 s, settled by 4 s). Through a BMC: 45 (a limit takes effect after up to 40 s, and the BMC is
    polled every 5 s)."""
    stale_s: float = 10.0
    """Age of the last reading after which a device is sent to its safe floor. 10 s: the time that a UPS bridges after a
    feed fails."""
    lease_s: float = 10.0
    """Lifetime of a lease from the report that it answers; after that the agent falls to the safe floor on its own."""
    stuck_s: float = 120.0
    """Time after which a working device with a reading identical to the last digit counts as stuck; 0: never."""
    distrust_s: float = 300.0
    """Time for which a device that exceeded its cap counts at its highest limit, from the last time that it did."""
    retry_s: float = 300.0
    """Time for which a device that kept a higher limit than the granted one is not asked for less than that limit."""
    tolerance_share: float = 0.05
    """Fraction by which a reading may exceed the worst case of the cap before it counts against the device (meters err
    by 5 %)."""
    pinned_share: float = 0.98
    """Fraction of its cap from which a device counts as held back by the cap. Its need is then unknown, except that it
    is more."""
    probe_share: float = 0.15
    """Increase granted on trial to a device held back by its cap, as a fraction of its highest limit."""
    mean_s: float = 8.0
    """Time constant of the mean draw from which a need is derived: longer than a prompt, shorter than a request."""
    burst_share: float = 1.0
    """Fraction used of the bursts that breakers tolerate (power/safety/bursts.py); 0 makes every lease a hard
    limit."""
    credit_back_s: float = 300.0
    """Time in which used burst credit is restored: no sooner than a breaker cools."""
    calm_share: float = 0.97
    """Fraction of the budget below which a domain is calm. The breaker is cold while the sum of fresh readings stays
    below it and no domain exceeded its budget for as long as a breaker cools; credit is then restored sooner."""
    calm_credit_back_s: float = 20.0
    """Time in which credit is restored while calm. About the length of one request, since each may begin with a
    burst."""
    debt_forgiven_s: float = 60.0
    """Time constant with which small debts are forgiven: a device that permanently draws a twelfth above its limit is
    found, one that does so now and then is not."""
    burst_swings: float = 1.0
    """Room, in swings of the draw, with which devices of the first class whose phases alternate have whole bursts."""
    low_burst_swings: float = 10.0
    """The same of all other classes."""
    margin_share: float = 0.05
    """Margin above the present draw that counts as part of the need (limiters and averages ripple by some per cent)."""
    band_share: float = 0.04
    """Deadband of caps, as a fraction of the highest limit: a cap closer than this to its target is not changed."""
    spike_swings: float = 4.0
    """Rise to plan for within a control delay, in swings of the draw."""
    swing_memory_s: float = 1800.0
    """Time constant with which a measured swing is forgotten."""
    together_share: float = 0.35
    """Fraction of the devices in token generation of which prompts may begin within one control delay."""
    first_swing_share: float = 0.02
    """Assumed swing, as a fraction of the budget, until it was measured, as after a restart in a busy hour."""
    culprit_periods: float = 3.0
    """Control delays without effect after which a device is reported as not enforcing its cap."""

    def __post_init__(self) -> None:
        wrong = tuple(
            Mistake(f"power rules, {field.name}", f"is {value:g}", "give a number above 0")
            for field in fields(self)
            if not ((value := float(getattr(self, field.name))) > 0 or (field.name in _MAY_BE_NOTHING and value == 0))
        )
        if wrong:
            raise ConfigError(wrong)


_MAY_BE_NOTHING = ("stuck_s", "burst_share", "first_swing_share")
