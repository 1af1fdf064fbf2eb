"""Daily power profile of each service: the draw of its GPUs by hour of the day (UTC), learnt from readings.

Placement uses these profiles to keep peaks apart (placement/engine/packer.py). Only nodes where every pod with
GPUs belongs to one service contribute. Readings name devices by UUID and pods have only a number of GPUs, so on mixed
nodes a draw cannot be attributed to a service.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.power import PowerTable
from cluster.power_floors import held_devices
from cluster.snapshot import PENDING, Snapshot

HOURS = 24
_HOUR_S = 3600.0
_NEW_SHARE = 0.3
"""Weight of the newest day in the profile of an hour: several days are remembered, and no single one decides."""
_LEAST_OF_HOUR_S = 600.0
"""Shortest observation of an hour that counts: the readings of a shorter one may all be of one request."""
_LONGEST_S = 300.0
"""Longest time that one reading represents: a controller that was away does not know what was drawn meanwhile."""
MOST_PACKED = 64
"""Most services whose hours outlive a controller: 8 kB of an object."""
_UNKNOWN = 255
_NEAR = 5
"""Difference of a packed hour that is no change, 2 %."""
_FORGOTTEN_S = 14 * 86_400.0
"""Time after which a service that was not observed is forgotten."""


@dataclass(frozen=True, slots=True, eq=False)
class DailyProfile:
    """Profile of one service. Draws are fractions of the range from idle to the highest limit, 0..1."""

    share: FloatArray
    """Mean draw by hour, shape (HOURS,); NaN for an hour that was not observed yet."""
    hour: int
    """Current hour, counted from the epoch."""
    gpu_s: float
    """GPU-seconds of readings in the current hour."""
    drawn_gpu_s: float
    """The same, each weighted by its draw."""
    seen_s: float
    """Seconds of the current hour that were observed."""
    at_s: float
    """Instant when the service was last observed."""


def profiles_after(
    before: Mapping[str, DailyProfile], snapshot: Snapshot, power: PowerTable, draw_w: FloatArray
) -> Mapping[str, DailyProfile]:
    """The profiles after this snapshot; applying the same snapshot again changes nothing.

    draw_w: shape (devices,), what each device of the table draws or would draw without its cap; NaN where unknown.
    """
    now_s = snapshot.at_s
    held = held_devices(snapshot.free().gpu_milli, snapshot.nodes.gpus)
    share, known = _busiest(snapshot, power, draw_w, held)
    sums: dict[str, tuple[float, float]] = {}
    for node, service in _alone(snapshot).items():
        if known[node] and held[node]:
            drawn, gpus = sums.get(service, (0.0, 0.0))
            sums[service] = (drawn + float(share[node]) * float(held[node]), gpus + float(held[node]))
    made = {name: profile for name, profile in before.items() if now_s - profile.at_s < _FORGOTTEN_S}
    for name, (drawn, gpus) in sums.items():
        made[name] = _with(made.get(name), drawn / gpus, gpus, now_s)
    return made


def complete_profiles(profiles: Mapping[str, DailyProfile]) -> Mapping[str, FloatArray]:
    """Service → its profile, for services that were observed in every hour of a day."""
    return {name: profile.share for name, profile in profiles.items() if not np.isnan(profile.share).any()}


def packed(profiles: Mapping[str, DailyProfile]) -> Mapping[str, str]:
    """Service → its hours in 48 characters, two a byte: 0 to 254 for 0 to 1, 255 for an hour not observed yet.

    At most MOST_PACKED services, those with most hours first; services without any are omitted.
    """
    known = {name: int(np.count_nonzero(~np.isnan(profile.share))) for name, profile in profiles.items()}
    names = sorted((name for name, hours in known.items() if hours), key=lambda name: (-known[name], name))
    made = {}
    for name in names[:MOST_PACKED]:
        level = np.round(np.clip(np.nan_to_num(profiles[name].share), 0.0, 1.0) * (_UNKNOWN - 1))
        made[name] = np.where(np.isnan(profiles[name].share), _UNKNOWN, level).astype(np.uint8).tobytes().hex()
    return made


def unpacked(hours: Mapping[str, str], at_s: float) -> Mapping[str, DailyProfile]:
    """The profiles that an earlier controller packed at this instant."""
    made = {}
    for name, text in hours.items():
        level = np.frombuffer(bytes.fromhex(text), dtype=np.uint8).astype(np.float64)
        share = np.where(level == _UNKNOWN, np.nan, level / (_UNKNOWN - 1))
        made[name] = DailyProfile(share, int(at_s // _HOUR_S), 0.0, 0.0, 0.0, at_s)
    return made


def is_near(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Whether packed hours differ by no more than readings ripple: the same services, no hour further off than 2 %."""
    if old.keys() != new.keys():
        return False
    pairs = (zip(bytes.fromhex(old[name]), bytes.fromhex(new[name]), strict=True) for name in old)
    return all(abs(was - now) <= _NEAR for pair in pairs for was, now in pair)


def _with(profile: DailyProfile | None, share: float, gpus: float, now_s: float) -> DailyProfile:
    """The profile with a reading of this many GPUs at this share of their range."""
    hour = int(now_s // _HOUR_S)
    if profile is None:
        return DailyProfile(np.full(HOURS, np.nan), hour, 0.0, 0.0, 0.0, now_s)
    if profile.hour != hour:  # the completed hour is included
        shares = profile.share
        if profile.seen_s >= _LEAST_OF_HOUR_S and profile.gpu_s > 0:
            drawn, at = profile.drawn_gpu_s / profile.gpu_s, profile.hour % HOURS
            shares = shares.copy()
            shares[at] = drawn if np.isnan(shares[at]) else shares[at] + _NEW_SHARE * (drawn - shares[at])
        profile = DailyProfile(shares, hour, 0.0, 0.0, 0.0, max(profile.at_s, hour * _HOUR_S))
    for_s = min(max(now_s - profile.at_s, 0.0), _LONGEST_S)
    return DailyProfile(
        share=profile.share,
        hour=hour,
        gpu_s=profile.gpu_s + gpus * for_s,
        drawn_gpu_s=profile.drawn_gpu_s + share * gpus * for_s,
        seen_s=profile.seen_s + for_s,
        at_s=now_s,
    )


def _alone(snapshot: Snapshot) -> Mapping[int, str]:
    """Node → the only service that holds its GPUs; nodes where others hold some too are omitted."""
    pods = snapshot.pods
    holds = np.array([shape.gpus > 0 for shape in pods.shapes], dtype=np.bool_)
    rows = np.flatnonzero((pods.node != PENDING) & (holds[pods.shape] if len(holds) else False))
    owner_of: dict[int, str] = {}
    for row, node in zip(rows.tolist(), pods.node[rows].tolist(), strict=True):
        owner = pods.owner[row]
        if owner_of.setdefault(node, owner) != owner:
            owner_of[node] = ""
    return {node: owner for node, owner in owner_of.items() if owner}


def _busiest(snapshot: Snapshot, power: PowerTable, draw_w: FloatArray, held: IntArray) -> tuple[FloatArray, BoolArray]:
    """Mean fraction drawn by the busiest devices of each node, as many as pods hold, and whether all of it is known.

    Shape (nodes,) each. The devices that draw most are assumed to be the ones that pods hold.
    """
    devices, domains = power.devices, len(power.domains)
    span_w = np.maximum(devices.max_w - devices.idle_w, 1.0)
    share = np.clip((draw_w - devices.idle_w) / span_w, 0.0, 1.0)
    unknown = np.bincount(devices.domain, np.isnan(share) | ~devices.managed, domains) > 0
    rows = [power.domains.names.row(name) for name in snapshot.nodes.names]
    domain_of = np.array([-1 if row is None else row for row in rows], dtype=np.int64)
    held_of = np.zeros(domains, dtype=np.int64)
    inside = np.flatnonzero(domain_of >= 0)
    held_of[domain_of[inside]] = held[inside]
    order = np.lexsort((-np.nan_to_num(share), devices.domain))
    domain = devices.domain[order]
    place = np.arange(len(order)) - np.searchsorted(domain, domain, side="left")
    counts = place < held_of[domain]
    drawn = np.bincount(domain, np.where(counts, np.nan_to_num(share[order]), 0.0), domains)
    number = np.bincount(domain, counts, domains)
    known = ~unknown & (number == held_of) & (number > 0)
    mean = np.append(drawn / np.maximum(number, 1), 0.0)
    return mean[domain_of], np.append(known, False)[domain_of]
