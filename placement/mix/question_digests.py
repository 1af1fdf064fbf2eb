"""Digests of a mix question, by which a plan knows what an earlier one has already solved."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from cluster.demand import ThroughputProfile
from placement.mix.ample_stock import stock_that_counts
from placement.mix.problem import MixQuestion, Need
from placement.seating.stock import Stock


def question_digest(question: MixQuestion) -> bytes:
    """Digest of all that the answer depends on; of a question of one need, without a stock that is ample."""
    stock = own_stock_digest(question, question.needs[0]) if len(question.needs) == 1 else stock_digest(question)
    return needs_digest(question) + runnings_digest(question) + stock


def needs_digest(question: MixQuestion) -> bytes:
    """Digests of all needs, in their order."""
    return b"".join(need_digest(question, need) for need in question.needs)


def runnings_digest(question: MixQuestion) -> bytes:
    """Digests of the running instances of all needs, in their order."""
    return b"".join(running_digest(question, need) for need in question.needs)


def running_digest(question: MixQuestion, need: Need) -> bytes:
    """Digest of the running instances, where the objective counts changes."""
    running = sorted((need.running or {}).items()) if question.counts_changes_of(need) and need.running else None
    return blake2b(repr(running).encode(), digest_size=16).digest()


def need_digest(question: MixQuestion, need: Need) -> bytes:
    """Digest of everything but the stock and the running instances that a search depends on."""
    plain = (
        need.service,
        need.slo,
        need.cells,
        need.slice_factor,
        need.headroom_share,
        need.priority,
        need.start_share,
        question.change_price_per_hour,
        question.per_instance,
        [(o.instance_type, o.price_per_hour, o.cpu_milli, o.memory_bytes, o.places) for o in need.offers],
    )
    found = blake2b(repr(plain).encode(), digest_size=16)
    for column in (need.rate_per_s, *(each for o in need.offers for each in (o.load, o.variance))):
        found.update(column.tobytes())
    return found.digest()


def profiles_digest(profiles: Iterable[ThroughputProfile]) -> bytes:
    """Digest of throughput profiles, in their order."""
    found = blake2b(digest_size=16)
    for each in profiles:
        found.update(repr((each.model, each.gpu_type, each.slo, each.grid, each.gpus_per_instance)).encode())
        found.update(each.requests_per_s.tobytes())
    return found.digest()


def own_stock_digest(question: MixQuestion, need: Need) -> bytes:
    """Digest of the stock, as far as the need's mixes depend on it."""
    return _digest_of(stock_that_counts(question, need))


def stock_digest(question: MixQuestion) -> bytes:
    """Digest of the whole stock."""
    return _digest_of(question.stock)


def _digest_of(stock: Mapping[str, Stock]) -> bytes:
    return blake2b(repr(sorted(stock.items())).encode(), digest_size=16).digest()
