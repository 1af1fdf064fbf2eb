"""Concurrency in a ScalingPolicy's status: what the tuner remembers, to and from the fields of the API."""

from cluster.concurrency import Arm, BanditState, Context, Learned, Pool
from controller.api.scaling_policy import (
    ConcurrencyArm,
    ConcurrencyContext,
    ConcurrencyPool,
    ConcurrencyStatus,
    ScalingPolicy,
)

DIGITS = 6


def wanted_limit(policy: ScalingPolicy) -> int:
    """Limit that was decided last, within the bounds of the spec; that of the spec before the first decision."""
    spec, status = policy.spec.concurrency, policy.status.concurrency
    if spec is None:
        raise ValueError(f"{policy.metadata.name} has no spec.concurrency")
    decided = spec.start_limit if status is None or status.time is None else status.limit
    return max(spec.min, min(spec.max, decided))


def state_of(status: ConcurrencyStatus | None) -> BanditState:
    """What the tuner remembers. The last context is the first of those learned."""
    if status is None:
        return BanditState()
    learned = tuple(_learned(each) for each in status.learned)
    pool = status.pool
    return BanditState(
        decisions=status.decisions,
        context=learned[0].context if learned else None,
        learned=learned,
        pool=Pool() if pool is None else Pool(pool.limit, pool.intervals, pool.requests, pool.throughput, pool.log_p95),
    )


def _learned(each: ConcurrencyContext) -> Learned:
    return Learned(
        context=Context(each.gpu_type, each.input_bucket, each.output_bucket),
        used_at=each.used_at,
        limit=each.limit,
        ceiling=each.ceiling,
        arms=tuple(Arm(arm.limit, arm.weight, arm.throughput, arm.p95) for arm in each.arms),
        throughput_scatter=each.throughput_scatter,
        p95_scatter=each.p95_scatter,
        scatter_weight=each.scatter_weight,
        surprised=each.surprised,
    )


def contexts_of(state: BanditState) -> tuple[ConcurrencyContext, ...]:
    """What was learned, for a status; a millionth of a logarithm is far below the scatter of any measurement."""
    return tuple(
        ConcurrencyContext(
            gpu_type=each.context.gpu_type,
            input_bucket=each.context.input_bucket,
            output_bucket=each.context.output_bucket,
            used_at=each.used_at,
            limit=each.limit,
            ceiling=round(each.ceiling, DIGITS),
            arms=tuple(
                ConcurrencyArm(
                    limit=arm.limit,
                    weight=round(arm.weight, DIGITS),
                    throughput=round(arm.throughput, DIGITS),
                    p95=round(arm.p95, DIGITS),
                )
                for arm in each.arms
                if round(arm.weight, DIGITS) > 0
            ),
            throughput_scatter=round(each.throughput_scatter, DIGITS),
            p95_scatter=round(each.p95_scatter, DIGITS),
            scatter_weight=round(each.scatter_weight, DIGITS),
            surprised=each.surprised,
        )
        for each in state.learned
    )


def pool_of(state: BanditState) -> ConcurrencyPool | None:
    """Intervals with too few requests, for a status; None: there are none."""
    pool = state.pool
    if not pool.intervals:
        return None
    return ConcurrencyPool(
        limit=pool.limit,
        intervals=pool.intervals,
        requests=pool.requests,
        throughput=round(pool.throughput, DIGITS),
        log_p95=round(pool.log_p95, DIGITS),
    )
