"""Services and throughput profiles from their objects, and the cross-checks between them."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from msgspec import ValidationError

from cluster.arrays import column
from cluster.demand import Demand, LengthGrid, Slo, ThroughputProfile
from cluster.pods import PodTable
from cluster.scaling import instance_type_of
from cluster.suggestions import meant
from cluster.workloads import InstanceType, instance_type_named
from cluster.workloads import ModelService as Service
from controller.api import model_profile as profile_kind
from controller.api import notation
from controller.api.model_profile import ModelProfile
from controller.api.model_service import ModelService, ServiceDemand
from controller.api.structs import NodeConstraints, PodSpec, object_from
from controller.objects.read import Findings, Read
from controller.snapshot.node_affinity import Complain, terms_of, tolerations_of
from controller.snapshot.nodes import TypeIndex


def profiles_from(
    read: Sequence[Read[ModelProfile]], types: TypeIndex, findings: Findings
) -> tuple[ThroughputProfile, ...]:
    """One profile per table of each ModelProfile, without those that contradict the GPU types or an earlier profile."""
    seen: _Profiled = {}
    made: list[ThroughputProfile] = []
    for each in read:
        try:
            made += tuple(_profiles_of(each, types, seen, findings))
        except Exception as error:  # noqa: BLE001 - one profile must not stop the others
            findings.mistake(each.unreadable(error))
    return tuple(made)


_Profiled = dict[tuple[str, str, int, float], Read[ModelProfile]]
"""First profile of each model, GPU type, number of GPUs, and SLO."""


def _profiles_of(
    each: Read[ModelProfile], types: TypeIndex, seen: _Profiled, findings: Findings
) -> Iterator[ThroughputProfile]:
    spec = each.object.spec
    if types.named(spec.gpu_type) is None:
        problem = f"there is no GPUType {spec.gpu_type!r}"
        findings.mistake(each.mistake(("spec", "gpuType"), problem, meant(spec.gpu_type, types.names)))
        return
    instance_type = InstanceType(spec.gpu_type, spec.gpus_per_instance)
    names = {instance_type.name, replace(instance_type, spot=True).name} - {spec.gpu_type}
    if taken := sorted(names & set(types.names)):
        problem = f"its instances are called {taken[0]}, and so is a GPUType"
        findings.mistake(each.mistake(("spec", "gpusPerInstance"), problem, "rename that GPUType"))
        return
    for n, table in enumerate(spec.throughput):
        other = seen.setdefault((spec.model, spec.gpu_type, spec.gpus_per_instance, table.slo.tpot), each)
        if other is each:
            yield _profile(each.object, table)
        else:
            problem = f"{spec.model} on {instance_type} at this SLO is already in {other.subject}"
            findings.mistake(each.mistake(("spec", "throughput", n, "slo"), problem, "keep one of them"))


def _profile(obj: ModelProfile, table: profile_kind.ThroughputTable) -> ThroughputProfile:
    spec = obj.spec
    return ThroughputProfile(
        model=spec.model,
        gpu_type=spec.gpu_type,
        slo=Slo(table.slo.tpot),
        grid=LengthGrid(spec.grid.input_tokens, spec.grid.output_tokens),
        requests_per_s=column(np.array(table.requests_per_second, dtype=np.float64), np.float64),
        gpus_per_instance=spec.gpus_per_instance,
    )


def service_from(read: Read[ModelService], gpu_types: Collection[str]) -> Service:
    """Service of a valid object, with the replicas in its status; None where the status has none.

    A service without a template has no replicas but the mix that was planned last, so that a plan changes it only where
    another mix is better by what a change must save.
    """
    spec, status = read.object.spec, read.object.status
    replicas = status.mix if spec.template is None and status.replicas is None else status.replicas
    constraints = node_constraints_of(read)
    return Service(
        name=read.name,
        model=spec.model,
        demand=None if spec.demand is None else _demand(spec.demand),
        slo=Slo(spec.slo.tpot),
        headroom_share=spec.headroom,
        gpu_types=tuple(sorted(spec.gpu_types)),
        spot=spec.spot,
        continuous_split=spec.split == "continuous",
        slice_factor=spec.slice_factor,
        instance_cpu_milli=notation.milli(spec.instance.cpu),
        instance_memory_bytes=notation.whole(spec.instance.memory),
        priority=spec.priority,
        replicas=None if replicas is None else _by_type(replicas, gpu_types),
        node_terms=terms_of(constraints, lambda *_: None),
        tolerations=tolerations_of(constraints, lambda *_: None),
        is_planned_only=spec.template is None,
    )


def _by_type(replicas: Mapping[str, int], gpu_types: Collection[str]) -> dict[InstanceType, int]:
    return {instance_type_named(name, gpu_types): count for name, count in sorted(replicas.items())}


def node_constraints_of(read: Read[ModelService]) -> NodeConstraints:
    """Node constraints of the pod template; none without a template. Raises msgspec.ValidationError, too, for a part
    of the template that Deployments are made from and that has another form than in a Pod."""
    template = read.object.spec.template
    return PodSpec() if template is None else object_from(template.spec.model_dump(by_alias=True), PodSpec)


def with_instances_counted(services: Sequence[Service], pods: PodTable) -> tuple[Service, ...]:
    """Services with existing instances as `replicas` where the status has none; None when there are no instances."""
    uncounted = {service.name for service in services if service.replicas is None}
    counted = Counter[tuple[str, InstanceType]]()
    types = [instance_type_of(shape) for shape in pods.shapes]
    for row, owner in enumerate(pods.owner) if uncounted else ():
        instance_type = types[pods.shape[row]]
        if owner in uncounted and instance_type:
            counted[owner, instance_type] += 1
    found: dict[str, dict[InstanceType, int]] = {}
    for (name, instance_type), count in sorted(counted.items()):
        found.setdefault(name, {})[instance_type] = count
    return tuple(replace(s, replicas=found[s.name]) if s.name in found else s for s in services)


def _demand(written: ServiceDemand) -> Demand:
    """Demand with its histogram scaled to a sum of exactly 1."""
    share = np.array(written.histogram, dtype=np.float64)
    return Demand(
        rate_per_s=written.requests_per_second,
        grid=LengthGrid(written.input_tokens, written.output_tokens),
        share=column(share / share.sum(), np.float64),
    )


def valid_services(
    read: Sequence[Read[ModelService]],
    profiles: Sequence[ThroughputProfile],
    types: TypeIndex,
    findings: Findings,
) -> tuple[Service, ...]:
    """Services whose GPU types exist and whose lengths are within some profile of their model.

    A model without any profile is no error, because the profile may be measured later: the plan refuses the service
    with that reason and leaves its instances unchanged.
    """
    valid = []
    for each in read:
        own = Findings()
        try:
            _check_service(each, profiles, types, own)
            if not own.mistakes:
                valid.append(service_from(each, types.names))
        except Exception as error:  # noqa: BLE001 - one service must not stop the others
            own.mistake(each.unreadable(error))
        findings.extend(own)
    return tuple(valid)


def _check_service(
    read: Read[ModelService], profiles: Sequence[ThroughputProfile], types: TypeIndex, findings: Findings
) -> None:
    spec = read.object.spec
    _check_template(read, findings)
    for n, name in enumerate(spec.gpu_types):
        if types.named(name) is None:
            problem = f"there is no GPUType {name!r}"
            findings.mistake(read.mistake(("spec", "gpuTypes", n), problem, meant(name, types.names)))
    usable = [p for p in profiles if p.model == spec.model and p.gpu_type in (spec.gpu_types or types.names)]
    for name in sorted(set(spec.gpu_types) & set(types.names) - {p.gpu_type for p in usable}):
        words = f"it may use {name}, but no ModelProfile of {spec.model} exists for it: never used"
        findings.note(read.subject, "GpuTypeWithoutProfile", words)
    if usable and spec.demand is not None:
        _check_lengths(read, spec.demand, usable, findings)


def _check_template(read: Read[ModelService], findings: Findings) -> None:
    """Check the parts of a template that are read here; the API server checks the rest."""
    here = ("spec", "template", "spec")

    def complain(field: str) -> Complain:
        return lambda problem, remedy: findings.mistake(read.mistake((*here, field), problem, remedy))

    try:
        constraints = node_constraints_of(read)
        terms_of(constraints, complain("affinity"))
        tolerations_of(constraints, complain("tolerations"))
    except ValidationError as error:
        remedy = "write it as in a Pod"
        findings.mistake(read.mistake(here, str(error), remedy))


def _check_lengths(
    read: Read[ModelService], demand: ServiceDemand, usable: Sequence[ThroughputProfile], findings: Findings
) -> None:
    beyond = list(_buckets_beyond(demand, usable))
    if not beyond:
        return
    i, j = beyond[0]
    grid = LengthGrid(demand.input_tokens, demand.output_tokens)
    longest = max((p.grid for p in usable), key=lambda g: (g.input_tokens[-1], g.output_tokens[-1]))
    many = f" and {len(beyond) - 1} more buckets" if len(beyond) > 1 else ""
    findings.mistake(
        read.mistake(
            ("spec", "demand", "histogram", i, j),
            f"has requests of {grid.label(i, j)}{many}, beyond every profile of {read.object.spec.model}, "
            f"which end at {longest.label(-1, -1)}",
            "measure a profile up to these lengths, or set the share to 0",
        )
    )


def _buckets_beyond(demand: ServiceDemand, usable: Sequence[ThroughputProfile]) -> Iterator[tuple[int, int]]:
    for i, row in enumerate(demand.histogram):
        for j, share in enumerate(row):
            longest = demand.input_tokens[i], demand.output_tokens[j]
            inside = any(
                longest[0] <= p.grid.input_tokens[-1] and longest[1] <= p.grid.output_tokens[-1] for p in usable
            )
            if share > 0 and not inside:
                yield i, j
