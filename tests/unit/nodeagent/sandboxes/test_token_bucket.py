"""Token bucket: bursts up to its size, and its rate in the long run."""

from nodeagent.socket_protection import TokenBucket, full


def taken(bucket: TokenBucket, tries: int, now_s: float) -> tuple[TokenBucket, int]:
    got = 0
    for _ in range(tries):
        bucket = bucket.filled(now_s)
        if (less := bucket.taken()) is not None:
            bucket, got = less, got + 1
    return bucket, got


def test_a_burst_is_served_up_to_the_size_and_then_at_the_rate() -> None:
    bucket, at_once = taken(full(10.0, 20.0, 0.0), 10_000, 0.0)
    bucket, a_second_later = taken(bucket, 10_000, 1.0)

    assert (at_once, a_second_later) == (20, 10)


def test_silence_saves_up_no_more_than_the_size() -> None:
    bucket, _ = taken(full(10.0, 20.0, 0.0), 20, 0.0)

    assert taken(bucket, 10_000, 3600.0)[1] == 20


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket, _ = taken(full(10.0, 20.0, 100.0), 20, 100.0)

    assert taken(bucket, 5, 50.0)[1] == 0
