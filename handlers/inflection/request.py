"""From this contract's body to work: the first contract's fields by its own code, the others here."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from engines.protocol.work import GenerateWork, Grammar, Rendering, Sampling
from generated.inflection import models
from generated.inflection.interfaces import Context
from generated.sie import models as first
from generated.sie.interfaces import Context as FirstContext

from ..errors import InvalidField, UnsupportedField
from ..generation import gates, schema_limits
from ..generation.chat import chat_work
from ..generation.chat_rules import CHAT_RULES
from ..generation.fields import given
from ..generation.rules import check
from ..http.explain import explain
from ..resolution import Target
from ..settings import Settings
from .options import Options
from .rules import CONSTRAINTS, RULES

Body = models.ChatCompletionRequest

SHARED: Final = frozenset(models.ChatCompletionRequest.__struct_fields__) & frozenset(
    first.ChatCompletionRequest.__struct_fields__
) - {"chat_template_kwargs", "model"}
"""Fields that mean in both contracts the same."""
_SAME_NAME: Final = (
    "ignore_eos",
    "include_stop_str_in_output",
    "min_p",
    "prompt_logprobs",
    "skip_special_tokens",
    "spaces_between_special_tokens",
)
_SEQUENCES: Final = ("allowed_token_ids", "bad_words", "stop_token_ids")
_RENDERING: Final = ("add_special_tokens", "cache_salt", "chat_template", "documents", "truncate_prompt_tokens")
_KINDS: Final = {"guided_choice": "regex", "guided_regex": "regex", "guided_grammar": "ebnf"}
"""The ability of a model that a constraint needs; JSON Schema for the others."""
_BACKENDS: Final = {"llguidance": "guidance"}


def as_first(body: Body, model: str) -> first.ChatCompletionRequest:
    """The fields that both contracts have, as a body of the first.

    Raises:
        Failure: 400, the first contract is narrower in one of them, or a rule of this or of both is broken.
    """
    check(RULES, body)
    said = {name: value for name, value in msgspec.to_builtins(body).items() if name in SHARED}
    if (said.get("top_k") or 0) <= 0:
        said.pop("top_k", None)  # all tokens, which the first contract says by not naming a number
    try:
        shared = msgspec.convert({**said, "model": model}, first.ChatCompletionRequest)
    except msgspec.ValidationError as error:
        raise explain(error) from None
    check(CHAT_RULES, shared)
    return shared


def inflection_work(
    context: Context, body: Body, shared: first.ChatCompletionRequest, target: Target, settings: Settings, own: Options
) -> GenerateWork:
    """The work item.

    Raises:
        Failure: 400, the model or the operator of the server does not allow what is asked.
    """
    if given(body.chat_template) is not None and not own.allow_chat_template:
        raise UnsupportedField("chat_template", "This server does not take chat templates from callers")
    _processor_may_be_told(given(body.mm_processor_kwargs) or {}, target)
    work = chat_work(cast("FirstContext", context), shared, target, settings)
    asked = given(body.request_id)
    return msgspec.structs.replace(
        work,
        # unique within the cluster, and the caller's own in every log
        request_id=work.request_id if asked is None else f"{asked}-{work.request_id}",
        chat_template_kwargs={**(given(body.chat_template_kwargs) or {}), **work.chat_template_kwargs},
        sampling=_sampling(body, work.sampling),
        rendering=_rendering(body),
        grammar=_constraint(body, work.grammar, target),
        priority=given(body.priority) or 0,
    )


def _processor_may_be_told(options: dict[str, Any], target: Target) -> None:
    """Options of an image processor can take any memory, or make tensors that end the engine: the operator lists them.

    Raises:
        UnsupportedField: one is not listed.
    """
    if options and "image" not in target.model.inputs:
        raise UnsupportedField("mm_processor_kwargs", f"Model '{target.model.name}' has no processor of images")
    allowed = target.profile.loadtime.get("callers_mm_processor_kwargs") or []
    refused = next((name for name in options if name not in allowed), None)
    if refused is not None:
        message = f"'{refused}' is no option of its processor that this model takes ({', '.join(allowed) or 'none'})"
        raise UnsupportedField("mm_processor_kwargs", message)


def _sampling(body: Body, sampling: Sampling) -> Sampling:
    own: dict[str, Any] = {name: value for name in _SAME_NAME if (value := given(getattr(body, name))) is not None}
    own |= {name: tuple(value) for name in _SEQUENCES if (value := given(getattr(body, name)))}
    own["tokens_as_ids"] = bool(given(body.return_tokens_as_token_ids))
    if given(body.use_beam_search):
        own["beam_width"] = max(given(body.best_of) or 1, sampling.n)
        own["best_of"] = None
        own["length_penalty"] = 1.0 if (penalty := given(body.length_penalty)) is None else penalty
    return msgspec.structs.replace(sampling, **own)


def _rendering(body: Body) -> Rendering:
    own: dict[str, Any] = {name: value for name in _RENDERING if (value := given(getattr(body, name))) is not None}
    return Rendering(
        add_generation_prompt=opens_an_answer(body),
        continue_final_message=bool(given(body.continue_final_message)),
        mm_processor_kwargs=given(body.mm_processor_kwargs) or {},
        **own,
    )


def opens_an_answer(body: Body) -> bool:
    """Whether the template begins a new message: the default, unless the last one is continued."""
    asked = given(body.add_generation_prompt)
    return not given(body.continue_final_message) if asked is None else asked


def _constraint(body: Body, standard: Grammar | None, target: Target) -> Grammar | None:
    """``guided_*`` and ``structural_tag`` as one constraint of today's form; else that of ``response_format``."""
    backend = target.profile.loadtime.get("grammar_backend") or "guidance"
    backend = _BACKENDS.get(backend, backend)
    asked = given(body.guided_decoding_backend)
    if asked is not None and _BACKENDS.get(asked, asked) not in (backend, "auto"):
        message = f"Constraints of this model are enforced by '{backend}', which is fixed when it is loaded"
        raise UnsupportedField("guided_decoding_backend", message)
    name = next((name for name in CONSTRAINTS if given(getattr(body, name)) is not None), None)
    grammar = standard if name is None else _guided(body, name)
    if name is not None:
        needed = _KINDS.get(name, "json_schema")
        if needed not in gates.generation(target).grammar:
            raise UnsupportedField(name, f"This model does not support constraints of kind '{needed}'")
    spaces = given(body.guided_whitespace_pattern)
    if spaces is None or grammar is None:
        return grammar
    if backend != "guidance":
        raise UnsupportedField("guided_whitespace_pattern", f"'{backend}' takes no pattern for white space")
    schema = msgspec.json.decode(grammar.value) if grammar.value else {"type": "object"}
    value = msgspec.json.encode({**schema, "x-guidance": {"whitespace_pattern": spaces}}).decode()
    return msgspec.structs.replace(grammar, kind="json_schema", value=value)


def _guided(body: Body, name: str) -> Grammar:
    value: Any = given(getattr(body, name))
    if name == "guided_json":
        schema = schema_limits.inline(_schema(value), name)
        return Grammar(kind="json_schema", value=msgspec.json.encode(schema).decode(), param=name)
    if name == "guided_choice":
        return Grammar(kind="choice", value=msgspec.json.encode(value).decode(), param=name)
    if name == "guided_regex":
        return Grammar(kind="regex", value=value, param=name)
    return Grammar(kind="ebnf" if name == "guided_grammar" else "structural_tag", value=value, param=name)


def _schema(value: Any) -> dict[str, Any]:
    try:
        schema = msgspec.json.decode(value) if isinstance(value, str) else value
    except msgspec.DecodeError as error:
        raise InvalidField("guided_json", f"'guided_json' is no JSON: {error}") from None
    if not isinstance(schema, dict):
        raise InvalidField("guided_json", "'guided_json' must be a schema: an object")
    return schema
