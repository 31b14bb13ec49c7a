"""The common part of the extraction engines: texts in, batches through a library, one result per item out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

from ...batching import Batcher, Limits, Model
from ...protocol.catalog import ModelEntry, Profile
from ...protocol.events import ExtractOutput, ItemError, Timing, Usage
from ...protocol.work import ExtractWork, Item, Work
from ..base import Reply, WorkError
from ..batched import BatchedEngine
from ..documents.reader import OPTIONS as DOCUMENT_OPTIONS
from ..documents.reader import Reader

S = TypeVar("S")

CPU_BATCH_TOKENS = 2048
PENDING_BATCHES = 16
LOADTIME = frozenset(("max_pending_tokens", "max_concurrent_requests", "memory_footprint_bytes", *DOCUMENT_OPTIONS))
"""Load-time options of a profile that every extraction engine takes."""


class ExtractionEngine(BatchedEngine, Generic[S]):
    """One loaded model behind a batcher. ``S`` is what a subclass makes of a request's parameters."""

    option_names: ClassVar[frozenset[str]] = frozenset()
    takes_instruction: ClassVar[bool] = False

    def __init__(self, entry: ModelEntry, profile: Profile) -> None:
        super().__init__(entry, profile)
        self._documents = Reader(profile)

    async def load(self) -> None:
        """Load the weights on a thread.

        Raises:
            EngineLoadError: the model cannot be served.
        """
        model = await asyncio.to_thread(self.make)
        most = min(self.profile.max_batch_tokens, CPU_BATCH_TOKENS)
        pending = int(self.profile.loadtime.get("max_pending_tokens", PENDING_BATCHES * self.profile.max_batch_tokens))
        self._batcher = Batcher(model, Limits(most, pending_tokens=pending), self.entry.name)
        self._batcher.start()

    async def run(self, work: Work, reply: Reply) -> None:
        """Extract. An item that cannot be read has an ``error`` and the others their results.

        Raises:
            WorkError: ``INVALID_INPUT`` for parameters that this model has nothing for; ``RESOURCE_EXHAUSTED``.
        """
        if not isinstance(work, ExtractWork):
            raise WorkError("INVALID_INPUT", f"model {self.entry.name!r} extracts and does nothing else")
        self._refuse_what_means_nothing(work)
        settings = self.settings(work)
        read = await asyncio.gather(*map(self._documents.text_of, work.items))
        texts, pieces = await asyncio.to_thread(self._prepared, read, settings)
        counts = [len(of_text) for of_text in pieces]
        inputs = [piece for of_text in pieces for piece in of_text]

        def finish(rows: Sequence[Any]) -> ExtractOutput:
            left = iter(rows)
            results = []
            for item, text, count in zip(work.items, texts, counts, strict=True):
                results.append(self._result(item, text, [next(left) for _ in range(count)], settings))
            return ExtractOutput(items=results)

        if not inputs:
            reply.admitted()
            reply.completed(usage=Usage(), timing=Timing(), output=finish([]))
            return
        await self.submit(inputs, finish, reply)

    async def close(self) -> None:
        """Stop the threads and the processes."""
        await self._documents.close()
        await super().close()

    # --- for subclasses ---------------------------------------------------------------------------------------------

    def make(self) -> Model:
        """Load the library's model; blocks.

        Raises:
            EngineLoadError: the model cannot be served.
        """
        raise NotImplementedError

    def settings(self, work: ExtractWork) -> S:
        """The request's parameters, over the profile's.

        Raises:
            WorkError: ``INVALID_INPUT``.
        """
        raise NotImplementedError

    def pieces(self, text: str, settings: S) -> Sequence[Any] | ItemError:
        """The model inputs that one text becomes; may be none. Runs on a thread."""
        raise NotImplementedError

    def joined(self, text: str, rows: Sequence[Any], settings: S) -> dict[str, Any]:
        """The result of a text from the rows of its pieces."""
        raise NotImplementedError

    def option(self, work: ExtractWork, name: str, kind: type[Any], default: Any) -> Any:
        """An option of the request, else of the profile, else ``default``.

        Raises:
            WorkError: the request's is of another type, or a number that is not between 0 and 1.
        """
        value = work.options.get(name)
        if value is None:
            return self.profile.option(name, default)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind):
            raise invalid(f"options.{name}", f"must be a {_NAMES.get(kind, kind.__name__)}")
        if isinstance(value, float) and not 0.0 <= value <= 1.0:
            raise invalid(f"options.{name}", "must be from 0 to 1")
        return value

    def labels(self, work: ExtractWork) -> list[str]:
        """The labels to look for: the request's, else the profile's ``default_labels``; each once, in order.

        Raises:
            WorkError: there are none.
        """
        labels = work.labels or self.profile.loadtime.get("default_labels")
        if not labels:
            raise invalid("labels", f"are needed: model {self.entry.name!r} finds what labels name")
        return list(dict.fromkeys(labels))

    # --- private ----------------------------------------------------------------------------------------------------

    def _refuse_what_means_nothing(self, work: ExtractWork) -> None:
        if work.output_schema is not None:
            raise invalid("output_schema", f"needs a generation model; {self.entry.name!r} is none")
        if work.instruction is not None and not self.takes_instruction:
            raise invalid("instruction", f"means nothing to model {self.entry.name!r}")
        for name in work.options:
            if name not in self.option_names:
                known = ", ".join(sorted(self.option_names)) or "none"
                raise invalid(f"options.{name}", f"is no option of model {self.entry.name!r}; its options: {known}")

    def _prepared(
        self, read: Sequence[str | ItemError], settings: S
    ) -> tuple[list[str | ItemError], list[Sequence[Any]]]:
        texts: list[str | ItemError] = []
        pieces: list[Sequence[Any]] = []
        for text in read:
            found = self.pieces(text, settings) if isinstance(text, str) else text
            texts.append(found if isinstance(found, ItemError) else text)
            pieces.append([] if isinstance(found, ItemError) else found)
        return texts, pieces

    def _result(self, item: Item, text: str | ItemError, rows: Sequence[Any], settings: S) -> dict[str, Any]:
        if isinstance(text, ItemError):
            return {"error": {"code": text.code, "message": text.message}}
        error = next((row for row in rows if isinstance(row, ItemError)), None)
        result = self.joined(text, [row for row in rows if not isinstance(row, ItemError)], settings)
        if error is not None:
            result["error"] = {"code": error.code, "message": error.message}
        if item.document is not None:
            # the caller has bytes; offsets mean something only beside the text
            result["data"] = {"text": text}
        return result


def invalid(field: str, message: str) -> WorkError:
    """A parameter that this model cannot do anything with."""
    return WorkError("INVALID_INPUT", f"params.{field} {message}", param=f"params.{field}")


def entity(text: str, start: int, end: int, label: str, score: float = 1.0) -> dict[str, Any]:
    """An entity of the wire. ``start`` and ``end`` count code points; ``text`` is the slice between them."""
    return {"text": text[start:end], "label": label, "score": score, "start": start, "end": end}


_NAMES: dict[type[Any], str] = {bool: "boolean", float: "number", str: "string", list: "list"}
