"""The form of a row: what is sent to an operation, what comes back, and what reaches the work item."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.handlers.scripted import ABSENT, DELETE, changed

BAD: Final = (400, "invalid_request")
UNSUPPORTED: Final = (400, "unsupported_field")

BASE: Final[Mapping[str, Any]] = {
    "/v1/chat/completions": {"model": "org/chat", "messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"model": "org/chat", "prompt": "hi"},
    "/v1/responses": {"model": "org/chat", "input": "hi"},
    "/v1/generate/org__chat": {"prompt": "hi", "max_new_tokens": 8},
}


@dataclass(frozen=True)
class Row:
    """``change`` sets members of the least request by path; ``reaches`` are members of the work item by path.

    ``limits`` are the time limits of the work, ``answers`` members of what comes back by path (of a stream: of the list
    of its events). ``inert``: the work is the same as without the change.
    """

    path: str
    name: str
    change: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    code: str | None = None
    param: str | None = None
    reaches: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    answers: Mapping[str, Any] = field(default_factory=dict)
    inert: bool = False
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    url: str | None = None

    @property
    def id(self) -> str:
        return f"{self.path}: {self.name}"

    def request(self) -> Any:
        """The body to send."""
        if self.body is not None:
            return self.body
        return changed(BASE[self.path], self.change)

    @property
    def has_effect(self) -> bool:
        """Whether the row says what becomes of what is sent."""
        return bool(self.reaches or self.limits or self.answers or self.inert)


class Rows:
    """Rows of one operation, written down one by one."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.rows: list[Row] = []

    def takes(
        self, name: str, change: Mapping[str, Any], reaches: Mapping[str, Any] | None = None, **more: Any
    ) -> None:
        """A request that is answered."""
        self.rows.append(Row(self.path, name, change, reaches=reaches or {}, **more))

    def refuses(
        self, name: str, change: Mapping[str, Any], param: str | None, kind: tuple[int, str] = BAD, **more: Any
    ) -> None:
        """A request that is refused before any work."""
        self.rows.append(Row(self.path, name, change, *kind, param, **more))

    def number(self, field: str, reaches: str, good: list[float], bad: list[Any], *, whole: bool = False) -> None:
        """A number in a range: each good value arrives, null is absent, each bad one is refused by name."""
        for value in good:
            self.takes(f"{field} {value}", {field: value}, {reaches: value})
        self.takes(f"{field} null", {field: None}, {reaches: ABSENT} if reaches != "sampling.max_tokens" else {})
        if whole:
            self.takes(f"{field} {good[0]}.0", {field: float(good[0])}, {reaches: good[0]})
            bad = [*bad, 1.5]
        for value in [*bad, "1", True, [1], {}]:
            self.refuses(f"{field} {value!r}", {field: value}, field)

    def seed(self) -> None:
        """A signed 64-bit number."""
        self.number("seed", "sampling.seed", [0, -(2**63), 2**63 - 1], [2**63, -(2**63) - 1], whole=True)

    def samplers(self, penalties: bool = True) -> None:
        """Temperature, nucleus and penalties."""
        self.number("temperature", "sampling.temperature", [0, 0.7, 2], [-0.1, 2.01, 1e300])
        self.number("top_p", "sampling.top_p", [0.1, 1], [0, -1, 1.01])
        if penalties:
            for field in ("frequency_penalty", "presence_penalty"):
                self.number(field, f"sampling.{field}", [-2, 0.5, 2], [-2.01, 2.01])

    def stops(self) -> None:
        """One string or several."""
        self.takes("stop one", {"stop": "END"}, {"sampling.stop": ["END"]})
        self.takes("stop several", {"stop": ["\n\nUser:", "END", "END"]}, {"sampling.stop": ["\n\nUser:", "END"]})
        self.takes("stop null", {"stop": None}, {"sampling.stop": ABSENT})
        self.takes("stop none", {"stop": []}, {"sampling.stop": ABSENT})
        for value in ("", ["a", ""], 5, {}):
            self.refuses(f"stop {value!r}", {"stop": value}, "stop")
        self.refuses("stop a number among strings", {"stop": ["a", 5]}, "stop[1]")

    def models(self) -> None:
        """The model argument of a body, and the routing headers."""
        self.takes("model in another case", {"model": "ORG/Chat"}, {"model": "org/chat"})
        self.takes("model with underscores", {"model": "org__chat"}, {"model": "org/chat"})
        self.takes("model with a profile", {"model": "org/chat:warm"}, {"model": "org/chat", "profile": "warm"})
        self.takes("model with a bundle", {"model": "other:/org/chat"}, {"bundle": "other"})
        self.refuses("model absent", {"model": DELETE}, "model")
        for value in ("", None, 1, []):
            self.refuses(f"model {value!r}", {"model": value}, "model")
        self.refuses("model unknown", {"model": "org/none"}, "model", (404, "model_not_found"))
        self.refuses("model with an unknown profile", {"model": "org/chat:none"}, "profile")
        self.refuses("model with an unknown bundle", {"model": "none:/org/chat"}, "model", (404, "invalid_request"))
        self.refuses("model with a bundle in conflict", {"model": "poor:/org/chat"}, "model", (409, "invalid_request"))
        self.refuses("model that does not generate", {"model": "org/embed"}, "model")
        self.routes("X-SIE-Pool")

    def routes(self, param: str) -> None:
        """Pool and machine profile; ``param`` names the pool in errors."""
        self.takes("pool", {}, {"pool": "fast"}, headers={"X-SIE-Pool": "fast"})
        self.takes("pool in another case", {}, {"pool": "fast"}, headers={"X-SIE-Pool": "FAST"})
        self.takes("pool in the profile", {}, {"pool": "fast"}, headers={"X-SIE-MACHINE-PROFILE": "fast/l4"})
        self.takes("machine profile", {}, headers={"X-SIE-MACHINE-PROFILE": "l4"})
        self.refuses("pool malformed", {}, param, headers={"X-SIE-Pool": "a b"})
        self.refuses("pool too long", {}, param, headers={"X-SIE-Pool": "a" * 129})
        self.refuses("profile with half a name", {}, "X-SIE-MACHINE-PROFILE", headers={"X-SIE-MACHINE-PROFILE": "a/"})
        self.refuses("pool unknown", {}, "pool", (404, "invalid_request"), headers={"X-SIE-Pool": "none"})

    def bodies(self) -> None:
        """What is no request at all."""
        for body in ([], "x", 5, True):
            self.refuses(f"a body of {body!r}", {}, None, body=body)

    def streams(self, off: object = ABSENT) -> None:
        """The switch; ``off`` is what the worker is told when the client wants one piece."""
        self.takes("stream false", {"stream": False}, {"stream": off})
        self.takes("stream null", {"stream": None}, {"stream": off})
        self.takes("stream true", {"stream": True}, {"stream": True})
        for value in (1, "true", []):
            self.refuses(f"stream {value!r}", {"stream": value}, "stream")

    def unknown(self, *fields: str) -> None:
        """Fields that are refused by their presence, whatever their value."""
        for name in fields:
            for value in (None, 1, {}):
                self.refuses(f"{name} {value!r}", {name: value}, name, UNSUPPORTED)
