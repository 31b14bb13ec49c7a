"""Rates, requests at a time and sizes, by caller and for the whole gateway, by a clock of our own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from handlers.errors import Capacity, TooMany
from handlers.limits import LimitsCollector
from handlers.limits import limiter as module
from handlers.limits.bucket import Bucket
from handlers.limits.limiter import Limiter
from handlers.settings import Settings


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def limiter(clock: Clock, **settings: Any) -> Limiter:
    return Limiter(Settings(**settings), clock)


@given(st.floats(0.5, 50.0), st.floats(1.0, 20.0), st.lists(st.floats(0.0, 0.3), min_size=1, max_size=200))
def test_a_bucket_keeps_its_rate_over_any_time(rate, burst, gaps):
    bucket = Bucket(rate, burst, 0.0)
    now, taken = 0.0, 0
    for gap in gaps:
        now += gap
        taken += bucket.take(now) == 0.0
    assert taken <= burst + rate * now + 1e-6


@given(st.floats(0.5, 50.0), st.floats(1.0, 20.0))
def test_who_waits_as_long_as_a_bucket_says_gets_one(rate, burst):
    bucket = Bucket(rate, burst, 0.0)
    while not (wait := bucket.take(1.0)):
        pass
    assert bucket.take(1.0 + wait + 1e-6) == 0.0


def test_the_rate_of_a_caller_is_its_own(clock):
    limits = limiter(clock, rate_limit_rps=2.0, rate_limit_burst=3.0)
    for _ in range(3):
        limits.enter(b"greedy").release()
    with pytest.raises(TooMany) as refused:
        limits.enter(b"greedy")
    assert refused.value.retry_after == pytest.approx(0.5)
    limits.enter(b"modest").release()
    limits.enter(None).release()
    clock.now += 0.5
    limits.enter(b"greedy").release()


def test_the_burst_is_a_second_of_the_rate_unless_it_is_set(clock):
    limits = limiter(clock, rate_limit_rps=4.0)
    for _ in range(4):
        limits.enter(b"a")
    with pytest.raises(TooMany):
        limits.enter(b"a")


def test_requests_at_a_time_are_counted_until_they_end(clock):
    limits = limiter(clock, max_concurrent_requests=2)
    first, _second = limits.enter(b"a"), limits.enter(b"a")
    with pytest.raises(TooMany):
        limits.enter(b"a")
    limits.enter(b"b")
    first.release()
    first.release()
    limits.enter(b"a")
    with pytest.raises(TooMany):
        limits.enter(b"a")


def test_a_request_that_is_too_many_at_a_time_costs_none_of_the_rate(clock):
    limits = limiter(clock, max_concurrent_requests=1, rate_limit_rps=1.0, rate_limit_burst=2.0)
    running = limits.enter(b"a")
    for _ in range(9):
        with pytest.raises(TooMany):
            limits.enter(b"a")
    running.release()
    limits.enter(b"a")


def test_a_caller_has_its_share_of_tokens_and_the_gateway_its_whole(clock):
    limits = limiter(clock, max_pending_tokens_per_caller=100, max_pending_tokens=150)
    first = limits.enter(b"a")
    first.charge(80)
    with pytest.raises(TooMany):
        limits.enter(b"a").charge(21)
    second = limits.enter(b"b")
    second.charge(70)
    with pytest.raises(Capacity) as full:
        limits.enter(b"c").charge(1)
    assert (full.value.status, full.value.retry_after) == (503, 5.0)
    first.release()
    limits.enter(b"c").charge(80)
    assert limits.tokens == 150


def test_the_metrics_say_which_limit_was_met(clock):
    limits = limiter(clock, rate_limit_rps=1.0, max_concurrent_requests=1, max_pending_tokens=10)
    registry = CollectorRegistry()
    registry.register(LimitsCollector(limits))
    first = limits.enter(b"a")
    first.charge(10)
    with pytest.raises(TooMany):
        limits.enter(b"a")
    with pytest.raises(Capacity):
        limits.enter(b"b").charge(1)
    assert registry.get_sample_value("sie_gateway_pending_tokens") == 10
    first.release()
    with pytest.raises(TooMany):
        limits.enter(b"a")
    met = {
        limit: registry.get_sample_value("sie_gateway_limited_requests_total", {"limit": limit})
        for limit in ("rate", "requests", "gateway", "tokens")
    }
    assert met == {"rate": 1, "requests": 1, "gateway": 1, "tokens": None}


def test_one_request_alone_may_be_larger_than_the_limit(clock):
    limits = limiter(clock, max_pending_tokens=10)
    lease = limits.enter(None)
    lease.charge(1000)
    assert limits.tokens == 1000
    lease.release()
    assert limits.tokens == 0


def test_what_comes_after_the_end_of_a_request_is_not_counted(clock):
    limits = limiter(clock)
    lease = limits.enter(None)
    lease.release()
    lease.charge(5)
    assert limits.tokens == 0


def test_callers_that_rest_are_forgotten_before_those_that_are_limited(clock, monkeypatch):
    monkeypatch.setattr(module, "MOST_CALLERS", 200)
    limits = limiter(clock, rate_limit_rps=1.0, rate_limit_burst=1.0, max_concurrent_requests=1)
    limits.enter(b"busy")
    limits.enter(b"greedy").release()
    for number in range(1000):
        clock.now += 0.001
        limits.enter(b"other %d" % number).release()
        assert len(limits._callers) <= 201
    with pytest.raises(TooMany):
        limits.enter(b"busy")
