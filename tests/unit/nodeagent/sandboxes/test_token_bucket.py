"""Token bucket: bursts up to its size, and its rate in the long run."""

from nodeagent.socket_protection import TokenBucket


def taken(bucket: TokenBucket, tries: int, now_s: float) -> int:
    got = 0
    for _ in range(tries):
        if bucket.wait_s(1, now_s) == 0:
            bucket.take(1, now_s)
            got += 1
    return got


def test_a_burst_is_served_up_to_the_size_and_then_at_the_rate() -> None:
    bucket = TokenBucket(10.0, 20.0, 0.0)
    at_once = taken(bucket, 10_000, 0.0)
    a_second_later = taken(bucket, 10_000, 1.0)

    assert (at_once, a_second_later) == (20, 10)


def test_silence_saves_up_no_more_than_the_size() -> None:
    bucket = TokenBucket(10.0, 20.0, 0.0)
    taken(bucket, 20, 0.0)

    assert taken(bucket, 10_000, 3600.0) == 20


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(10.0, 20.0, 100.0)
    taken(bucket, 20, 100.0)

    assert taken(bucket, 5, 50.0) == 0
