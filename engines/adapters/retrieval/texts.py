"""From the items of a request to the texts that a model reads: templates, instructions, prompts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...protocol.catalog import Profile
from ...protocol.events import ItemError
from ...protocol.work import Item
from ..base import WorkError

Task = Literal["query", "document"]


@dataclass(frozen=True, slots=True)
class Text:
    """One input of the model. ``prompt`` is put before the text; ``task`` is the library's name for its side;
    ``pair`` makes it a (text, pair) input; ``limit`` cuts to that many tokens, special ones included (of a pair:
    only its second part is cut); ``parts`` are the most tokens of either part of a pair, special ones not counted,
    to which they are cut before ``limit``; ``wants`` says which results are needed."""

    text: str
    prompt: str = ""
    task: Task | None = None
    pair: str | None = None
    limit: int | None = None
    parts: tuple[int | None, int | None] = (None, None)
    wants: frozenset[str] = frozenset()


def paired(query: Text, document: Text, limit: int | None) -> Text:
    """Query and document read together, each cut to its own limit first and the document so that ``limit`` holds."""
    parts = (query.limit, document.limit)
    return Text(query.text, query.prompt, pair=document.prompt + document.text, limit=limit, parts=parts)


def text_of(item: Item) -> str | ItemError:
    """The item's text. An empty text is a text (it is encoded as the special tokens alone); no text is an error."""
    if item.text is None:
        return ItemError("INVALID_INPUT", "the item has no text, and this model reads nothing else")
    return item.text


def plain_text_of(item: Item) -> str | ItemError:
    """The text of an item for a model that reads nothing else; what else the item has is an error."""
    if item.document is not None:
        return ItemError("INVALID_INPUT", "the item has a document, which this model does not read")
    if item.images:
        return ItemError("INVALID_INPUT", "the item has images, which this model does not read")
    return text_of(item)


def refuse_options(options: Mapping[str, Any], place: str) -> None:
    """What the handler left of a request's options is nothing that these engines can do.

    Raises:
        WorkError: ``INVALID_INPUT``; there is such an option.
    """
    if options:
        name = min(options)
        raise WorkError("INVALID_INPUT", f"{place}.{name} is no option of this model", param=f"{place}.{name}")


class Templates:
    """How a text becomes a query or a document.

    In order of precedence: the profile's ``query_template`` or ``doc_template`` (with ``{text}`` and
    ``{instruction}``), the instruction of the request or the profile's default one put before the text, and the
    prompt that the checkpoint names for that side. A text that is neither query nor document gets the checkpoint's
    default prompt, if it has one, as the library's ``encode`` does.
    """

    def __init__(self, profile: Profile, prompts: Mapping[str, str | None], default_prompt: str | None) -> None:
        options: dict[str, Any] = {**profile.loadtime, **profile.runtime}
        self._templates = {
            "query": options.get("query_template"),
            "document": options.get("doc_template"),
        }
        self._prefixes = {"query": options.get("query_prefix"), "document": options.get("doc_prefix")}
        self._limits: dict[str, int | None] = {
            "query": options.get("query_max_length"),
            "document": options.get("doc_max_length"),
        }
        self._default_instruction = options.get("default_instruction") or options.get("instruction")
        self._prompts = {name: prompt or "" for name, prompt in prompts.items()}
        self._default_prompt = self._prompts.get(default_prompt or "", "")

    def apply(self, text: str, task: Task | None, instruction: str | None, **fields: Any) -> Text:
        """The model input for ``text``; ``fields`` are other members of ``Text``."""
        limit = self._limits[task] if task else None
        if limit:
            fields["limit"] = min(fields.get("limit") or limit, limit)
        template = self._templates.get(task or "document") if task or not instruction else None
        wanted = instruction or (self._default_instruction if task == "query" else None)
        if template:
            parts = {"{instruction}": wanted or "", "{text}": text}
            whole = re.sub(r"\{instruction\}|\{text\}", lambda found: parts[found[0]], template)
            return Text(whole, task=task, **fields)
        if wanted:
            return Text(text, prompt=wanted if wanted[-1].isspace() else wanted + " ", task=task, **fields)
        prefix = self._prefixes.get(task or "document")
        if prefix:
            return Text(text, prompt=prefix, task=task, **fields)
        prompt = self._prompts.get(task, "") if task else self._default_prompt
        return Text(text, prompt=prompt, task=task, **fields)
