"""Profiles that a service has for itself: estimates of a model without any, and what adapters leave of a model's."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from cluster.arrays import column
from cluster.demand import LengthGrid, Slo, ThroughputProfile
from cluster.workloads import InstanceType, instance_type_named
from controller.api import notation
from controller.api.conditions import PROFILE_ESTIMATED, condition_of
from controller.api.model_service import ModelService, ModelServiceSpec
from controller.objects.read import Findings, Read
from controller.snapshot.nodes import TypeIndex
from placement import roofline
from placement.roofline import Chip, ModelCard

SIZE_IN_NAME = re.compile(r"(?<![a-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bm])(?![a-z0-9])", re.IGNORECASE)
"""Parameters in a model's name, as in `Llama-3.1-8B`, `embedder-400m` and `Mixtral-8x7B`."""
UNKNOWN_SIZE = 70e9
"""Parameters that are assumed where nothing says how many. Chosen: most open models that are served have fewer, so the
mix is rather too large than too small."""
WIDTHS = (1, 2, 4, 8)
NO_PART_OF_NAMES = re.compile(r"[^a-z0-9-]+")
USUAL_CONTEXT = 16_384


def card_of(spec: ModelServiceSpec, model: str) -> tuple[ModelCard, str]:
    """Card of a model that has no profile, and what it is known by. Raises ValueError for a config that is none."""
    facts = spec.model_facts if model == spec.model else None
    precision = (facts and facts.precision) or ""
    if facts is not None and facts.config is not None:
        card, known_by = roofline.card_from(facts.config.model_dump()), "spec.modelFacts"
    elif facts is not None and facts.billion_parameters is not None:
        card, known_by = roofline.usual_card(facts.billion_parameters * 1e9), "spec.modelFacts"
    elif sizes := [int(n or 1) * float(x) * {"b": 1e9, "m": 1e6}[u.lower()] for n, x, u in SIZE_IN_NAME.findall(model)]:
        card, known_by = roofline.usual_card(max(sizes)), f"the size in its name, {max(sizes) / 1e9:g} billion"
    else:
        card = roofline.usual_card(UNKNOWN_SIZE)
        known_by = f"an assumed size of {UNKNOWN_SIZE / 1e9:g} billion, as nothing says it; give spec.modelFacts"
    return replace(card, precision=precision, expert_precision="") if precision else card, known_by


def pool_of(spec: ModelServiceSpec, model: str) -> str:
    """The pool of a model's instances, as part of names; empty where the service has one model."""
    return NO_PART_OF_NAMES.sub("-", model.lower())[:63].strip("-") if len(spec.all_models) > 1 else ""


def own_profiles(
    read: Read[ModelService],
    profiles: Sequence[ThroughputProfile],
    types: TypeIndex,
    chips: Mapping[str, Chip],
    findings: Findings,
) -> Iterator[ThroughputProfile]:
    """Profiles of models for which `profiles` has none, or none with the service's adapters. chips: by GPU type.

    What runs by measured profiles is not planned by estimates where these are gone: it stays as it is.
    """
    spec, status = read.object.spec, read.object.status
    runs = {instance_type_named(name, types.names).phase for name, count in (status.replicas or {}).items() if count}
    said = condition_of(status.conditions, PROFILE_ESTIMATED)
    for model in spec.all_models:
        known = [p for p in profiles if p.model == model]
        was_measured = pool_of(spec, model) in runs and (said is None or said.status != "True")
        if not spec.adapters if known else was_measured:
            continue
        try:
            of_model = known or _estimates(spec, model, types, chips)
        except ValueError as error:
            remedy = "give a model's whole config.json"
            findings.mistake(read.mistake(("spec", "modelFacts", "config"), str(error), remedy))
            continue
        adapter_bytes = len(spec.adapters) * notation.whole(spec.adapter_memory)
        yield from (_beside_adapters(each, adapter_bytes) for each in of_model)


def _estimates(
    spec: ModelServiceSpec, model: str, types: TypeIndex, chips: Mapping[str, Chip]
) -> list[ThroughputProfile]:
    """Profiles of a model that nobody measured, within the service's SLO, on the usual lengths and those it names."""
    card, made = card_of(spec, model)[0], list[ThroughputProfile | None]()
    grid, demand = roofline.grid_up_to(USUAL_CONTEXT), spec.demand
    if demand is not None:
        inputs = {*grid.input_tokens, *demand.input_tokens}
        outputs = {*grid.output_tokens, *demand.output_tokens}
        grid = LengthGrid(tuple(sorted(inputs)), tuple(sorted(outputs)))
    for gpu_type, chip in chips.items():
        per_pod = types.types[types.named(gpu_type) or 0].per_pod or WIDTHS
        for gpus in (n for n in WIDTHS if n in per_pod):
            if gpus == 1 or InstanceType(gpu_type, gpus).name not in types.names:
                made.append(_estimate(gpu_type, card, chip, gpus, grid, spec.slo.tpot))
    return [replace(each, model=model) for each in made if each is not None]


@lru_cache(maxsize=4096)
def _estimate(
    gpu_type: str, card: ModelCard, chip: Chip, gpus: int, grid: LengthGrid, tpot_s: float
) -> ThroughputProfile | None:
    """Profile by the roofline; None where such an instance serves nothing within the SLO."""
    engine = roofline.ENGINES["vllm"]
    found = roofline.sustained(card, chip, engine, gpus, grid, tpot_s)
    serves = found.requests_per_s > 0
    if not serves.any():
        return None
    return ThroughputProfile(
        model="",
        gpu_type=gpu_type,
        slo=Slo(tpot_s),
        grid=grid,
        requests_per_s=column(found.requests_per_s, np.float64),
        gpus_per_instance=gpus,
        error_share=engine.error_share,
        prefill_s=tuple(roofline.prefill_s(card, chip, engine, gpus, grid.input_tokens).tolist()),
        decoded_per_s=column(found.decoded_per_s, np.float64),
        cache_bytes_per_token=float(card.cache_bytes(8192.0)) / 8192,
        cache_tokens=roofline.cache_tokens(card, chip, engine, gpus),
        watts=float(found.watts[serves].mean()),
    )


def _beside_adapters(profile: ThroughputProfile, adapter_bytes: float) -> ThroughputProfile:
    """The profile with so much less memory for the cache, where it says how much there is.

    A step with k requests takes no less than with fewer, so throughput is concave in k: with a share of the cache, and
    of the requests in flight, an instance sustains at least that share of them.
    """
    if not adapter_bytes or profile.cache_tokens is None or not profile.cache_bytes_per_token:
        return profile
    cache_bytes = profile.cache_tokens * profile.cache_bytes_per_token
    kept = max(0.0, 1 - adapter_bytes / cache_bytes) if cache_bytes else 0.0
    decoded = profile.decoded_per_s
    return replace(
        profile,
        requests_per_s=column(profile.requests_per_s * kept, np.float64),
        decoded_per_s=None if decoded is None else column(decoded * kept, np.float64),
        cache_tokens=profile.cache_tokens * kept,
    )
