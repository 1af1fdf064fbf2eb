"""Names and descriptions of the faults that the estimator finds, in the order of its codes."""

FAULTS = ("", "Stale", "Impossible", "WrongUnit", "Stuck", "OverCap", "NotEnforced")
"""Names of the faults, as reasons in conditions and events."""

FAULT_WORDS = (
    "",
    "has not been heard from for too long: it counts at the worst case of its last cap and goes to its safe floor",
    "reports a draw that no such device can have: the reading is ignored, it counts at the worst case of its cap",
    "is wrong by a factor of a thousand, as when milliwatts or kilowatts are taken for watts: ignored",
    "reports the same draw to the last digit although it works: ignored, it counts at the worst case of its cap",
    "drew more than its cap allows: it counts at its highest limit until it has complied for a long time",
    "does not enforce its cap: it counts at the limit that it does enforce",
)
