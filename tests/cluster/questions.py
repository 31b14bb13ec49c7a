"""The mixed requests of the cluster tests: what is asked, and whether what came back is right.

A request ends right, or refused (a declared status that invites another try), or broken (a stream that had begun ends
with an error event). Anything else is a fault, and says what it was.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import aiohttp
import openai

from generated.sie import operations
from handlers.retrieval.relevance import relevance

from . import answers
from .answers import ENCODER, RANKER, TALKER

Kind = Literal["chat", "stream", "embeddings", "rerank"]

RETRYABLE = frozenset({429, 503, 504})
PATHS: Mapping[Kind, str] = {
    "chat": "/v1/chat/completions",
    "stream": "/v1/chat/completions",
    "embeddings": "/v1/embeddings",
    "rerank": "/v2/rerank",
}
DECLARED: Mapping[Kind, frozenset[int]] = {
    "chat": frozenset(operations.PROXY_CHAT.responses),
    "stream": frozenset(operations.PROXY_CHAT.responses),
    "embeddings": frozenset(operations.PROXY_OPENAI_EMBEDDINGS.responses),
    "rerank": frozenset(operations.PROXY_RERANK_V2.responses),
}


class Question(NamedTuple):
    """One request: its number, and its text or texts."""

    number: int
    kind: Kind
    texts: tuple[str, ...]
    by_sdk: bool

    @property
    def body(self) -> dict[str, Any]:
        match self.kind:
            case "embeddings":
                return {"model": ENCODER, "input": list(self.texts)}
            case "rerank":
                return {"model": RANKER, "query": self.texts[0], "documents": list(self.texts[1:])}
        return {
            "model": TALKER,
            "messages": [{"role": "user", "content": self.texts[0]}],
            "stream": self.kind == "stream",
        }


class Outcome(NamedTuple):
    """How a request ended: ``verdict`` is right, refused, broken or fault; ``detail`` says more of the last three."""

    question: Question
    verdict: Literal["right", "refused", "broken", "fault"]
    detail: str = ""
    request_id: str = ""


def questions(seed: int, count: int) -> list[Question]:
    """``count`` mixed requests; the same for the same seed."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        name = f"{seed}.{number}"
        kind = chance.choices(("chat", "stream", "embeddings", "rerank"), (35, 30, 20, 15))[0]
        # most take a moment; some streams are long enough to meet a fault
        count_of_words = chance.randint(2, 8) if chance.random() < 0.97 else 50
        texts = [answers.question(name, count_of_words, chance.randint(5, 80))]
        if kind in ("embeddings", "rerank"):
            texts += [f"{name} text {index}" for index in range(chance.randint(1, 5))]
        by_sdk = kind != "rerank" and chance.random() < 0.1
        made.append(Question(number, kind, tuple(texts), by_sdk))
    return made


class Asker:
    """Asks gateways, as curl does and with the OpenAI SDK, without another try. Used as a context."""

    def __init__(self, urls: Sequence[str], limit: float) -> None:
        """``limit``: seconds after which a request that has not ended is a fault."""
        self._urls = urls
        self._limit = limit

    async def __aenter__(self) -> Asker:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        self._sdks = [openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) for url in self._urls]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        for sdk in self._sdks:
            await sdk.close()

    async def ask(self, question: Question) -> Outcome:
        """Ask the gateway whose turn it is."""
        turn = question.number % len(self._urls)
        try:
            async with asyncio.timeout(self._limit):
                if question.by_sdk:
                    return await with_sdk(self._sdks[turn], question)
                return await self._by_http(self._urls[turn], question)
        except TimeoutError:
            return Outcome(question, "fault", f"no end within {self._limit:.0f} s")
        except (aiohttp.ClientError, openai.APIConnectionError, ConnectionError) as error:
            return Outcome(question, "fault", f"the connection broke: {type(error).__name__}: {error}")
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            return Outcome(question, "fault", f"not an answer: {type(error).__name__}: {error}")

    async def _by_http(self, url: str, question: Question) -> Outcome:
        async with self._session.post(url + PATHS[question.kind], json=question.body) as response:
            request_id = response.headers.get("x-request-id", "")
            if response.status != 200:
                return refusal(question, response.status, await response.json(), request_id)
            if question.kind == "stream":
                verdict, detail = await _stream(question, response)
            else:
                verdict, detail = check(question, await response.json())
        return Outcome(question, verdict, detail, request_id)


async def _stream(question: Question, response: aiohttp.ClientResponse) -> tuple[Any, str]:
    """Read a stream to its end: ``[DONE]``, after the right text or after an error event."""
    text, finish, error, done = "", None, None, False
    async for line in response.content:
        if not line.startswith(b"data: "):
            continue
        data = line[6:].strip()
        if done or (error and data != b"[DONE]"):
            return "fault", f"something followed the end: {data!r}"
        if data == b"[DONE]":
            done = True
            continue
        chunk = json.loads(data)
        error = chunk.get("error")
        if error is None:
            text += chunk["choices"][0]["delta"].get("content") or ""
            finish = chunk["choices"][0]["finish_reason"] or finish
    if not done:
        return "fault", "the stream ended without [DONE]"
    expected = "".join(answers.words(question.texts[0]))
    if error is not None:
        if not (error.get("code") and error.get("message") and error["type"] == "server_error"):
            return "fault", f"an error event that says nothing: {error}"
        if not expected.startswith(text):
            return "fault", f"wrong text before the error: {text!r}"
        return "broken", f"{error['code']}: {error['message']}"
    if (text, finish) != (expected, "stop"):
        return "fault", f"wrong text: {text!r} ({finish}), expected {expected!r}"
    return "right", ""


async def with_sdk(client: openai.AsyncOpenAI, question: Question) -> Outcome:
    """Ask with the OpenAI SDK, with whatever retries it has."""
    body: Any = question.body
    try:
        match question.kind:
            case "embeddings":
                reply = await client.embeddings.create(**body, encoding_format="float")
                return Outcome(question, *check(question, reply.model_dump()))
            case "chat":
                reply = await client.chat.completions.create(**body)
                return Outcome(question, *check(question, reply.model_dump()))
        text = ""
        async for chunk in _chunks(await client.chat.completions.create(**body)):
            text += chunk.choices[0].delta.content or "" if chunk.choices else ""
    except openai.APIStatusError as error:
        body = error.response.json()
        return refusal(question, error.status_code, body, error.response.headers.get("x-request-id", ""))
    except openai.APIConnectionError:
        raise
    except openai.APIError as error:  # an error event
        return Outcome(question, "broken", f"{error.code}: {error.message}")
    expected = "".join(answers.words(question.texts[0]))
    return Outcome(question, "right" if text == expected else "fault", "" if text == expected else f"wrong: {text!r}")


async def _chunks(stream: openai.AsyncStream[Any]) -> AsyncIterator[Any]:
    async with stream:
        async for chunk in stream:
            yield chunk


def refusal(question: Question, status: int, body: Any, request_id: str) -> Outcome:
    """A refusal is in order when its status is declared, invites another try, and its envelope is whole."""
    detail = f"{status} {body}"
    if status not in RETRYABLE or status not in DECLARED[question.kind]:
        return Outcome(question, "fault", detail, request_id)
    if question.kind == "rerank":
        whole = isinstance(body.get("message"), str) and body["message"]
    else:
        error = body.get("error")
        whole = isinstance(error, dict) and error.get("message") and error.get("code") and "type" in error
    if not whole:
        return Outcome(question, "fault", detail, request_id)
    said = body if question.kind == "rerank" else body["error"]
    return Outcome(question, "refused", f"{status} {said['message']}", request_id)


def check(question: Question, body: Any) -> tuple[Literal["right", "fault"], str]:
    """Whether a whole answer is the one that the rule gives."""
    match question.kind:
        case "embeddings":
            got = [row["embedding"] for row in body["data"]]
            expected = [answers.vector(text) for text in question.texts]
        case "rerank":
            query, documents = question.texts[0], question.texts[1:]
            scores = [answers.score(query, document) for document in documents]
            order = sorted(range(len(scores)), key=lambda index: -scores[index])
            got = [row["index"] for row in body["results"]]
            expected = list(order)
            shown = [row["relevance_score"] for row in body["results"]]
            if not all(math.isclose(s, relevance(scores[i], "logit")) for s, i in zip(shown, order, strict=True)):
                return "fault", f"wrong scores: {shown}"
        case _:
            got = [(choice["message"]["content"], choice["finish_reason"]) for choice in body["choices"]]
            expected = [("".join(answers.words(question.texts[0])), "stop")]
    return ("right", "") if got == expected else ("fault", f"wrong answer: {got}, expected {expected}")
