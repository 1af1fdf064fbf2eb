"""Settings of power management: delays, ages, bands, each with the reason for its value."""

from dataclasses import dataclass, fields

from cluster.errors import ConfigError, Mistake


@dataclass(frozen=True, slots=True)
class PowerRules:
    """How the allocator and the estimator behave. Nothing here can lift a budget: that is arithmetic."""

    control_delay_s: float = 2.0
    """Seconds from a decision to its effect being read back. 2 in band (measured on limits and locked clocks: at the
    floor after 1 s, settled by 4 s); 45 through a BMC: a limit is at work after 40, a look comes after 5."""
    settle_s: float = 2.0
    """From a limit that a device says to enforce to readings that show it: its limiter takes so long, and the mean that
    its meter tells. However long orders travel."""
    stale_s: float = 10.0
    """A device that was not heard for so long is sent to its safe floor. 10 s: what a UPS gives after a feed failed."""
    lease_s: float = 10.0
    """Life of a lease from the report that it answers; then the agent falls to the safe floor by itself."""
    stuck_s: float = 120.0
    """A device at work whose reading is the same to the last digit for so long is taken for stuck; 0: never."""
    distrust_s: float = 3600.0
    """A device that drew more than its cap counts at its highest limit for so long after the last time."""
    retry_s: float = 300.0
    """A device that kept a higher limit than it was given is not asked for less than that limit for so long."""
    tolerance_share: float = 0.05
    """So far a reading may pass the worst case of the cap before it is held against the device (meters err by 5 %)."""
    pinned_share: float = 0.98
    """From this share of its cap on, a device is taken to be held back by it: its need is not known, only more."""
    probe_share: float = 0.15
    """A device that its cap holds back is tried at this much more than its cap, as a share of its highest limit."""
    known_s: float = 60.0
    """A device without bursts that was content with some watts is not tried at more than that for so long while it has
    less (power/estimation/known_need.py): where watts are short everyone would be moved for ever."""
    mean_s: float = 8.0
    """Time constant of the mean draw that a need is made of: longer than a prompt, shorter than a request."""
    burst_share: float = 1.0
    """Of the bursts that breakers stand (power/bursts/burst_credit.py), so much is used; 0 makes every lease a hard
    limit."""
    credit_back_s: float = 300.0
    """Credit for bursts that was used up is back after so long: no sooner than a breaker cools."""
    calm_share: float = 0.97
    """Of the budget: while fresh readings add up to less, and no domain was over its budget since, for as long as a
    breaker cools, the breaker is cold, and credit comes back sooner."""
    calm_credit_back_s: float = 20.0
    """About one request: each may begin with a burst."""
    debt_forgiven_s: float = 60.0
    """Time constant: who draws a twelfth above its limit for good is found, who errs by that now and then is not."""
    prove_every_s: float = 600.0
    """A device at work whose lease allows bursts is put to the test so often (power/estimation/compliance.py); 0:
    never."""
    prove_mixed_every_s: float = 1800.0
    """So often where phases alternate or are not told: there a test slows prompts, too."""
    prove_share: float = 0.06
    """Of all devices, so many are under test at once at most, and one at least."""
    prove_cut_share: float = 0.15
    """A test asks for so much less than the device draws: more than meters and limiters err by. At work on tokens it
    is a thirtieth slower meanwhile."""
    low_bursts_room: float = 1.5
    """In measured spikes: with so much room below a budget bursts of all but the first class are free, with less they
    end the lower the less there is."""
    low_floor_room: float = 0.5
    """With so little they end at the useful floor, where that is above the lease; with none, at the lease."""
    bursts_room: float = 0.8
    floor_room: float = 0.3
    """The same for bursts of the first class."""
    calm_look_s: float = 8.0
    """While every domain is far from its budget, caps are moved so often at most, unless one begins to work whose lease
    is less than it usually needs."""
    calm_look_share: float = 0.85
    """Of the budget: so far. Room for the largest rise within a control delay, which was about a tenth (Poisson)."""
    margin_share: float = 0.05
    """Room over the present draw that belongs to the need (limiters and averages ripple by some per cent)."""
    band_share: float = 0.04
    """Caps are left alone while they are within this share of the highest limit of where they should be."""
    reserve_spikes: float = 1.4
    """Room that present needs leave alone, in measured spikes: the largest one that was seen is not the largest."""
    alternating_share: float = 0.6
    """Of the largest excess over the smoothed draw, so much is counted on where phases alternate
    (power/bursts/headroom.py)."""
    reserve_most_share: float = 0.15
    """The reserve never exceeds this share of a budget, however large a spike was."""
    spike_memory_s: float = 604_800.0
    """Time constant with which a measured spike is forgotten: a week, the longer period of demand. After calm days the
    first full hour comes with the rises of full hours."""
    first_spike_share: float = 0.08
    """Of the budget: what spikes are taken to be before any was measured, as after a restart in a full hour. Rows of
    inference servers rise by 7 to 12 % within a control delay."""
    rise_memory_s: float = 3600.0
    """Time constant with which a device's rises are forgotten."""
    culprit_periods: float = 3.0
    """After so many control delays without effect a device is named as not enforcing its cap."""

    def __post_init__(self) -> None:
        wrong = tuple(
            Mistake(f"power rules, {field.name}", f"is {value:g}", "give a number above 0")
            for field in fields(self)
            if not ((value := float(getattr(self, field.name))) > 0 or (field.name in _MAY_BE_NOTHING and value == 0))
        )
        if wrong:
            raise ConfigError(wrong)


_MAY_BE_NOTHING = ("stuck_s", "burst_share", "prove_every_s", "first_spike_share")
