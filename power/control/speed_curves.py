"""Speed under a power limit, by GPU type and phase of work: published measurements, until a fleet has its own."""

import re

from cluster.power import PHASE_COMPUTE_BOUND, PHASE_IDLE, PHASE_MEMORY_BOUND, PHASE_UNKNOWN, SpeedUnderCap

_ZEUS = "zeus power-limit sweep (ml-energy/zeus 75a8b93, Apache-2.0): median over its training runs"
_MODEL = (
    "fit: power above idle ∝ f^1.3, prompts ∝ f^0.9, tokens ∝ f^0.2; idle 0.2 of the limit (docs/power-simulation.md)"
)

PHASES = (PHASE_IDLE, PHASE_MEMORY_BOUND, PHASE_COMPUTE_BOUND, PHASE_UNKNOWN)
"""Phases that agents report."""

PUBLISHED: tuple[SpeedUnderCap, ...] = (
    SpeedUnderCap(
        "V100", PHASE_COMPUTE_BOUND, (0.4, 0.5, 0.6, 0.7, 0.8, 1.0), (0.730, 0.866, 0.903, 0.945, 0.966, 1.0), _ZEUS
    ),
    SpeedUnderCap(
        "A40", PHASE_COMPUTE_BOUND, (1 / 3, 0.5, 7 / 12, 2 / 3, 1.0), (0.360, 0.762, 0.944, 0.959, 1.0), _ZEUS
    ),
    SpeedUnderCap(
        "",
        PHASE_COMPUTE_BOUND,
        (0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0),
        (0.147, 0.237, 0.383, 0.507, 0.619, 0.819, 1.0),
        _MODEL,
    ),
    SpeedUnderCap(
        "", PHASE_MEMORY_BOUND, (0.25, 0.3, 0.4, 0.5, 0.6, 1.0), (0.726, 0.808, 0.899, 0.957, 1.0, 1.0), _MODEL
    ),
)
"""Published curves; entries without a GPU type apply where none matches the device. At 0.6 of the limit token
generation draws less than the limit and loses nothing. Splitwise's tables rate an H100 held at half its limit at 0.77
of its prompt speed and all of its token speed: faster than the fit, so the fit errs towards leaving power where it
is."""


_FORM = r"(-(SXM\d*|PCI[Ee]|FHHL|DGXS|\d+GB))*"
"""Suffixes that NVIDIA appends to a type's name: form factor and memory. Any other suffix is another card or a slice
(`A40-8Q`)."""


def speed_of(measured: tuple[SpeedUnderCap, ...], gpu_type: str, phase: int) -> SpeedUnderCap:
    """Curve measured in this fleet, else the published one of the type, else the fit. Unknown phases use the costliest
    curve.

    gpu_type: as the device reports it (NVML: `Tesla V100-SXM2-16GB`).
    """
    phase = PHASE_COMPUTE_BOUND if phase in (PHASE_UNKNOWN, PHASE_IDLE) else phase
    known = [each for each in (*measured, *PUBLISHED) if each.phase == phase]
    fitting = [each for each in known if is_of(gpu_type, each.gpu_type)] or [
        each for each in known if not each.gpu_type
    ]
    if not fitting:
        raise AssertionError(f"the fit covers every phase; {phase} is not one")
    return fitting[0]


def is_of(product: str, gpu_type: str) -> bool:
    """Whether a product's name contains this type as a word: `NVIDIA A40` is an A40, `NVIDIA RTX A4000` is not."""
    return bool(gpu_type) and re.search(rf"(^|\s){re.escape(gpu_type)}{_FORM}(?!\S)", product) is not None
