"""This contract's names of what the first contract's code calls otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from generated.inflection import models

from ..errors import Failure
from ..generation.fields import given


@contextmanager
def own_names(body: models.ChatCompletionRequest) -> Iterator[None]:
    """Faults name the fields of ``body`` as the caller sent them."""
    limit = "max_tokens" if given(body.max_completion_tokens) is None else "max_completion_tokens"
    names = {
        "grammar.json_schema": "response_format",
        "max_completion_tokens": limit,
        "max_tokens": limit,
        "profile": "model",
    }
    try:
        yield
    except Failure as failure:
        failure.param = names.get(failure.param or "", failure.param)
        failure.place = names.get(failure.place or "", failure.place)
        raise
