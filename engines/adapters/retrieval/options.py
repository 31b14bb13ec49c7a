"""Which options of a profile these engines take. One that they have nothing for is refused when the model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from ...protocol.catalog import Profile
from ..base import EngineLoadError

# fmt: off
READ = frozenset((
    "trust_remote_code", "attn_implementation", "config_kwargs", "max_seq_length", "max_pending_tokens",
    "query_template", "doc_template", "query_prefix", "doc_prefix", "default_instruction", "instruction",
    "query_max_length", "doc_max_length",
))
"""What every one of these engines reads."""

ELSEWHERE = frozenset((
    "max_concurrent_requests", "memory_footprint_bytes", "output_types", "output_dtype",
    "served_model_name", "mem_fraction_static", "disable_cuda_graph", "attention_backend",
    "muvera_config",
))
"""Options read by other parts, and how other servers share a GPU: answers are the same without. So they are without
``muvera_config``: a request has to ask for such vectors, and is refused."""

FACTS = frozenset((
    "append_eos", "causal", "dense_dim", "doc_punctuation_skiplist", "output_similarity", "query_expansion",
    "score_mode", "token_dim",
))
"""What a checkpoint does or is. These engines change nothing of it: such an option has to be true already."""
# fmt: on


def check(name: str, profile: Profile, own: Collection[str]) -> None:
    """Look at the names before a model is loaded; ``own`` are the options that its engine reads besides ``READ``.

    Raises:
        EngineLoadError: one of them asks for something that the engine does not do.
    """
    known = READ | ELSEWHERE | FACTS | frozenset(own)
    for place, option, value in _given(profile):
        # what asks for nothing is no lie
        if option not in known and value:
            raise refusal(name, f"{place}.{option}")


def check_facts(name: str, profile: Profile, facts: Callable[[], Mapping[str, Collection[Any]]]) -> None:
    """Compare what a profile says of a model with the values that are true of it.

    Raises:
        EngineLoadError: it says something else, or something that nothing is known of.
    """
    said = [given for given in _given(profile) if given[1] in FACTS and given[2] is not None]
    true = facts() if said else {}
    for place, option, value in said:
        if value not in true.get(option, (False,)):
            raise refusal(name, f"{place}.{option}: {value!r}")


def refusal(name: str, what: str) -> EngineLoadError:
    """The fault of a profile that asks for ``what``."""
    message = f"{name}: sentence-transformers has nothing for {what}"
    return EngineLoadError(message, error_class="UnsupportedOption", permanent=True)


def ends_with_eos(tokenizer: Any) -> bool:
    """Whether a tokenizer that knows an end of text puts one there by itself."""
    if not callable(tokenizer) or getattr(tokenizer, "eos_token_id", None) is None:
        return False
    whole, bare = tokenizer("a")["input_ids"], tokenizer("a", add_special_tokens=False)["input_ids"]
    return len(whole) > len(bare) and whole[-1:] != bare[-1:]


def is_causal(model: Any) -> bool:
    """Whether a token sees only those before it."""
    config = getattr(model[0], "config", None)
    said = getattr(config, "is_causal", None)
    return bool(said) if said is not None else any(getattr(part, "is_causal", False) for part in model.modules())


def _given(profile: Profile) -> list[tuple[str, str, Any]]:
    places = (("loadtime", profile.loadtime), ("runtime", profile.runtime))
    return [(place, option, value) for place, options in places for option, value in options.items()]
