"""One row for each field of the second contract: a request with it, and its effect on what the real engine answers."""

from __future__ import annotations

import base64
import io
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import httpx
from PIL import Image

CAPITAL: Final = [{"role": "user", "content": "Tell me the capital of France."}]
STORY: Final = [{"role": "user", "content": "Tell me a long story about a king and his three sons."}]
SAID: Final = [*CAPITAL, {"role": "assistant", "content": "The capital of France is"}]
TOOL: Final = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}},
}
OTHER: Final = {"type": "function", "function": {**TOOL["function"], "name": "listen"}}  # type: ignore[dict-item]  # a dict
FLAG: Final = {
    "type": "object",
    "properties": {"n": {"type": "boolean"}},
    "required": ["n"],
    "additionalProperties": False,
}
WILD: Final = {"temperature": 2, "seed": 1}


class Asker:
    """Asks one server and model; the least request is short and greedy."""

    def __init__(self, url: str, model: str, tokenizer: Any, headers: dict[str, str] | None = None) -> None:
        self.url = url + "/v1/chat/completions"
        self.model = model
        self.tokenizer = tokenizer
        self.client = httpx.Client(timeout=300, headers=headers)

    def body(self, **fields: Any) -> dict[str, Any]:
        """The least request with ``fields``, those that are ``None`` left out."""
        least = {"model": self.model, "messages": CAPITAL, "max_tokens": 24, "temperature": 0, "timeout_sec": 300}
        return {name: value for name, value in {**least, **fields}.items() if value is not None}

    def __call__(self, **fields: Any) -> Any:
        """The answer as JSON."""
        response = self.client.post(self.url, json=self.body(**fields))
        assert response.status_code == 200, response.text
        return response.json()

    def text(self, **fields: Any) -> str:
        """The text of the first choice."""
        return str(self(**fields)["choices"][0]["message"]["content"])

    def refusal(self, **fields: Any) -> tuple[str, str]:
        """The name of the refused field and the reason."""
        response = self.client.post(self.url, json=self.body(**fields))
        assert response.status_code == 422, response.text
        (fault,) = response.json()["detail"]
        return ".".join(map(str, fault["loc"][1:])), fault["msg"]

    @contextmanager
    def stream(self, **fields: Any) -> Iterator[Iterator[Any]]:
        """The chunks of an answer that the engine has admitted, without the end mark."""
        with self.client.stream("POST", self.url, json=self.body(stream=True, **fields)) as response:
            assert response.status_code == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            lines = (line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: "))
            yield (json.loads(line) for line in lines if line != "[DONE]")

    def tokens(self, text: str) -> list[int]:
        """The ids of a text."""
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)


Row = Callable[[Asker], None]
ROWS: Final[dict[str, Row]] = {}
TINY: Final[set[str]] = set()
"""Rows for the small model that has a picture processor, a first token and a schedule by priority."""


def row(check: Row) -> Row:
    """The row of the field that ``check`` is named after."""
    ROWS[check.__name__.removesuffix("_")] = check
    return check


def tiny(check: Row) -> Row:
    """A row for the small model."""
    TINY.add(check.__name__)
    return row(check)


def count(answer: Any) -> int:
    return int(answer["usage"]["completion_tokens"])


def likelihood(answer: Any, choice: int = 0) -> float:
    return sum(entry["logprob"] for entry in answer["choices"][choice]["logprobs"]["content"])


def repeats(text: str) -> int:
    """How often the most frequent words stand in a text."""
    return sum(times for _, times in Counter(re.findall(r"\w+", text.lower())).most_common(5))


# --- what both contracts have


@row
def model(ask: Asker) -> None:
    assert ask()["model"] == ask.model
    unknown = ask.client.post(ask.url, json=ask.body(model="nobody/nothing"))
    assert unknown.status_code == 404
    assert "nobody/nothing" in unknown.json()["detail"]


@row
def messages(ask: Asker) -> None:
    assert "Paris" in ask.text()
    assert "Paris" not in ask.text(messages=[{"role": "user", "content": "Say hello."}])


@row
def frequency_penalty(ask: Asker) -> None:
    long = {"messages": STORY, "max_tokens": 120, "ignore_eos": True}
    assert repeats(ask.text(**long, frequency_penalty=2)) < repeats(ask.text(**long))


@row
def presence_penalty(ask: Asker) -> None:
    long = {"messages": STORY, "max_tokens": 120, "ignore_eos": True}
    assert repeats(ask.text(**long, presence_penalty=2)) < repeats(ask.text(**long))


@row
def repetition_penalty(ask: Asker) -> None:
    long = {"messages": STORY, "max_tokens": 120, "ignore_eos": True}
    assert repeats(ask.text(**long, repetition_penalty=1.8)) < repeats(ask.text(**long))


@row
def logit_bias(ask: Asker) -> None:
    (paris,) = ask.tokens(" Paris")
    assert "Paris" not in ask.text(logit_bias={str(paris): -100}, max_tokens=8)
    assert ask.text(logit_bias={str(paris): 100}, max_tokens=3) == " Paris" * 3


@row
def logprobs(ask: Asker) -> None:
    answer = ask(logprobs=True)["choices"][0]
    assert "".join(entry["token"] for entry in answer["logprobs"]["content"]) == answer["message"]["content"]
    assert all(entry["logprob"] <= 0 and entry["top_logprobs"] == [] for entry in answer["logprobs"]["content"])
    assert ask()["choices"][0]["logprobs"] is None


@row
def top_logprobs(ask: Asker) -> None:
    for entry in ask(logprobs=True, top_logprobs=3)["choices"][0]["logprobs"]["content"]:
        values = [other["logprob"] for other in entry["top_logprobs"]]
        assert len(values) == 3 and values == sorted(values, reverse=True)
        assert entry["top_logprobs"][0]["token"] == entry["token"]


@row
def max_tokens(ask: Asker) -> None:
    answer = ask(max_tokens=3)
    assert (count(answer), answer["choices"][0]["finish_reason"]) == (3, "length")


@row
def max_completion_tokens(ask: Asker) -> None:
    assert count(ask(max_tokens=20, max_completion_tokens=3)) == 3


@row
def n(ask: Asker) -> None:
    choices = ask(n=3, **WILD)["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in choices}) == 3


@row
def best_of(ask: Asker) -> None:
    shared = {"messages": STORY, "logprobs": True, "temperature": 1, "seed": 5, "max_tokens": 12, "ignore_eos": True}
    all_four = ask(n=4, **shared)
    best = ask(best_of=4, n=1, **shared)
    assert likelihood(best) == max(likelihood(all_four, choice) for choice in range(4))
    assert count(best) == count(all_four) == 48


@row
def seed(ask: Asker) -> None:
    texts = [ask.text(temperature=1.5, seed=number) for number in (7, 7, 8)]
    assert texts[0] == texts[1] != texts[2]


@row
def stop(ask: Asker) -> None:
    whole = ask.text()
    answer = ask(stop=["Paris"])["choices"][0]
    assert answer["message"]["content"] == whole[: whole.index("Paris")]
    assert answer["finish_reason"] == "stop"


@row
def stream(ask: Asker) -> None:
    with ask.stream() as chunks:
        pieces = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
    assert len(pieces) > 3
    assert "".join(pieces) == ask.text()


@row
def stream_options(ask: Asker) -> None:
    with ask.stream(stream_options={"include_usage": True}) as chunks:
        *_, last = chunks
    assert last["usage"]["completion_tokens"] == count(ask())


@row
def temperature(ask: Asker) -> None:
    assert ask.text(**WILD) != ask.text(temperature=0, seed=1) == ask.text(temperature=0, seed=2)


@row
def top_p(ask: Asker) -> None:
    assert ask.text(**WILD, top_p=1e-6) == ask.text() != ask.text(**WILD)


@row
def top_k(ask: Asker) -> None:
    assert ask.text(**WILD, top_k=1) == ask.text() != ask.text(**WILD, top_k=-1)


@row
def min_p(ask: Asker) -> None:
    assert ask.text(**WILD, min_p=1) == ask.text() != ask.text(**WILD)


@row
def min_tokens(ask: Asker) -> None:
    ended = count(ask(max_tokens=60))
    assert count(ask(max_tokens=60, min_tokens=ended + 10)) >= ended + 10


@row
def parallel_tool_calls(ask: Asker) -> None:
    # a grammar that allows another call gets one: what would end the list, or go on within a call, is less likely
    vocabulary = ask.tokenizer.get_vocab()
    unlikely = [text for text in vocabulary if "]" in text or text in (',"', "},", '}",')]
    bias = {str(vocabulary[text]): -100 for text in unlikely} | {str(vocabulary[","]): -50}
    forced = {"tools": [TOOL], "tool_choice": "required", "logit_bias": bias}
    many, one = (
        ask(**forced, parallel_tool_calls=several, max_tokens=100)["choices"][0]["message"]["tool_calls"]
        for several in (True, False)
    )
    assert len(many) > 1
    assert len(one) == 1


@row
def tools(ask: Asker) -> None:
    (call,) = ask(tools=[TOOL], tool_choice="required", parallel_tool_calls=False)["choices"][0]["message"][
        "tool_calls"
    ]
    assert call["function"] == {"name": "look", "arguments": "{}"}
    assert ask(tools=[TOOL])["usage"]["prompt_tokens"] > ask()["usage"]["prompt_tokens"]


@row
def tool_choice(ask: Asker) -> None:
    named = {"type": "function", "function": {"name": "listen"}}
    answer = ask(tools=[TOOL, OTHER], tool_choice=named)["choices"][0]
    assert [call["function"]["name"] for call in answer["message"]["tool_calls"]] == ["listen"]
    assert "tool_calls" not in ask(tools=[TOOL, OTHER], tool_choice="none")["choices"][0]["message"]


@row
def response_format(ask: Asker) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "flag", "schema": FLAG}}
    assert isinstance(json.loads(ask.text(response_format=wanted))["n"], bool)


@row
def user(ask: Asker) -> None:
    assert ask.text(user="somebody") == ask.text()  # accepted and not kept


# --- sampling and search


@row
def use_beam_search(ask: Asker) -> None:
    shared = {"messages": STORY, "logprobs": True, "max_tokens": 12, "ignore_eos": True}
    beams, greedy = ask(use_beam_search=True, n=4, **shared), ask(**shared)
    totals = [likelihood(beams, choice) for choice in range(4)]
    assert totals == sorted(totals, reverse=True)
    assert len({choice["message"]["content"] for choice in beams["choices"]}) == 4
    assert totals[0] >= likelihood(greedy) - 1e-3


@row
def length_penalty(ask: Asker) -> None:
    short, long = (
        count(ask(use_beam_search=True, best_of=4, length_penalty=penalty, max_tokens=30)) for penalty in (-8, 8)
    )
    assert short < long
    assert ask.refusal(length_penalty=2)[0] == "length_penalty"


@row
def stop_token_ids(ask: Asker) -> None:
    (paris,) = ask.tokens(" Paris")
    whole, answer = ask.text(), ask(stop_token_ids=[paris])["choices"][0]
    assert answer["message"]["content"] == whole[: whole.index(" Paris")]
    assert answer["finish_reason"] == "stop"
    assert ask.refusal(stop_token_ids=[2**31 - 1])[0] == "stop_token_ids"


@row
def include_stop_str_in_output(ask: Asker) -> None:
    assert ask.text(stop=["Paris"], include_stop_str_in_output=True) == ask.text(stop=["Paris"]) + "Paris"


@row
def ignore_eos(ask: Asker) -> None:
    assert count(ask()) < count(ask(ignore_eos=True)) == 24
    assert ask.refusal(ignore_eos=True, guided_choice=["red", "green"])[0] == "ignore_eos"


@row
def skip_special_tokens(ask: Asker) -> None:
    assert "<|im_end|>" not in ask.text(ignore_eos=True)
    assert "<|im_end|>" in ask.text(ignore_eos=True, skip_special_tokens=False)


@row
def spaces_between_special_tokens(ask: Asker) -> None:
    special = {"allowed_token_ids": ask.tokens("<repo_name>"), "skip_special_tokens": False, "max_tokens": 3}
    apart, together = (ask.text(**special, spaces_between_special_tokens=spaces) for spaces in (True, False))
    assert together == "<repo_name>" * 3
    assert apart.split() == ["<repo_name>"] * 3 or apart == together


@row
def allowed_token_ids(ask: Asker) -> None:
    allowed = ask.tokens(" yes") + ask.tokens(" no")
    assert set(ask.text(allowed_token_ids=allowed, max_tokens=8).split()) <= {"yes", "no"}


@row
def bad_words(ask: Asker) -> None:
    assert "Paris" not in ask.text(bad_words=["Paris"])


@row
def prompt_logprobs(ask: Asker) -> None:
    answer = ask(prompt_logprobs=1)
    places = answer["prompt_logprobs"]
    assert len(places) == answer["usage"]["prompt_tokens"]
    assert places[0] is None and all(1 <= len(place) <= 2 for place in places[1:])
    shown = "".join(next(iter(place.values()))["decoded_token"] for place in places[1:])
    assert CAPITAL[0]["content"] in shown
    assert ask()["prompt_logprobs"] is None


@row
def return_tokens_as_token_ids(ask: Asker) -> None:
    answer = ask(logprobs=True, return_tokens_as_token_ids=True)["choices"][0]
    ids = [int(entry["token"].removeprefix("token_id:")) for entry in answer["logprobs"]["content"]]
    assert ask.tokenizer.decode(ids) == answer["message"]["content"]


# --- the prompt


@row
def truncate_prompt_tokens(ask: Asker) -> None:
    assert ask()["usage"]["prompt_tokens"] > 9
    assert ask(truncate_prompt_tokens=9)["usage"]["prompt_tokens"] == 9


@row
def echo(ask: Asker) -> None:
    going_on = {"messages": SAID, "continue_final_message": True}
    assert ask.text(**going_on, echo=True) == "The capital of France is" + ask.text(**going_on)


@row
def add_generation_prompt(ask: Asker) -> None:
    opened, unopened = ask(), ask(add_generation_prompt=False)
    opening = ask.tokens("<|im_start|>assistant\n")
    assert opened["usage"]["prompt_tokens"] - unopened["usage"]["prompt_tokens"] == len(opening)


@row
def continue_final_message(ask: Asker) -> None:
    assert ask.text(messages=SAID, continue_final_message=True).startswith(" Paris")


@tiny
def add_special_tokens(ask: Asker) -> None:
    without, added = ask(), ask(add_special_tokens=True)
    assert added["usage"]["prompt_tokens"] == without["usage"]["prompt_tokens"] + 1
    seen = ask(add_special_tokens=True, prompt_logprobs=0)["prompt_logprobs"]
    assert len(seen) == added["usage"]["prompt_tokens"]


@row
def chat_template(ask: Asker) -> None:
    asked = {"chat_template": "The capital of {{ messages[0].content }} is", "max_tokens": 4}
    texts = {place: ask.text(messages=[{"role": "user", "content": place}], **asked) for place in ("France", "Japan")}
    assert "Paris" in texts["France"] and "Tokyo" in texts["Japan"]


@row
def chat_template_kwargs(ask: Asker) -> None:
    template = {"chat_template": "The capital of {{ place }} is", "max_tokens": 4}
    assert "Paris" in ask.text(**template, chat_template_kwargs={"place": "France"})
    assert "Tokyo" in ask.text(**template, chat_template_kwargs={"place": "Japan"})


@row
def documents(ask: Asker) -> None:
    template = {"chat_template": "{% for d in documents %}{{ d.text }}{% endfor %} is", "max_tokens": 4}
    assert "Paris" in ask.text(**template, documents=[{"title": "a", "text": "The capital of France"}])
    assert "Tokyo" in ask.text(**template, documents=[{"title": "a", "text": "The capital of Japan"}])


@tiny
def mm_processor_kwargs(ask: Asker) -> None:
    data = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(data, "PNG")
    picture = "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()
    look = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": picture}}]}]}
    scores = [
        likelihood(ask(**look, mm_processor_kwargs=options, logprobs=True, max_tokens=8, ignore_eos=True))
        for options in ({}, {"do_normalize": True}, {"do_normalize": False})
    ]
    assert scores[0] == scores[1] != scores[2]
    # an option that the operator has not allowed could end the engine
    assert ask.refusal(**look, mm_processor_kwargs={"size": {"height": 56, "width": 56}})[0] == "mm_processor_kwargs"
    name, reason = ask.refusal(**look, mm_processor_kwargs={"image_mean": "much"})
    assert name == "mm_processor_kwargs" and len(reason) < 600
    assert ask(**look)


@row
def cache_salt(ask: Asker) -> None:
    long = [{"role": "user", "content": "All work and no play makes Jack a dull boy. " * 40}]
    cached = [
        ask(messages=long, cache_salt=salt, max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"]
        for salt in ("one", "one", "two", "two")
    ]
    assert cached[0] == cached[2] == 0
    assert cached[1] == cached[3] > 0


# --- constraints


@row
def guided_json(ask: Asker) -> None:
    for schema in (FLAG, json.dumps(FLAG)):
        assert isinstance(json.loads(ask.text(guided_json=schema))["n"], bool)


@row
def guided_regex(ask: Asker) -> None:
    assert re.fullmatch("[0-9]{4}-[A-Z]{2}", ask.text(guided_regex="[0-9]{4}-[A-Z]{2}"))


@row
def guided_choice(ask: Asker) -> None:
    assert ask.text(guided_choice=["Rome", "Oslo"]) in ("Rome", "Oslo")


@row
def guided_grammar(ask: Asker) -> None:
    # a grammar that ends: one that may go on for ever is cut by max_tokens, in the middle of a word
    assert re.fullmatch("(red|green), (red|green)", ask.text(guided_grammar='start: C ", " C\nC: "red" | "green"'))


@row
def structural_tag(ask: Asker) -> None:
    begin = ask.text().split()[0]
    old = {"triggers": [begin], "structures": [{"begin": begin, "schema": FLAG, "end": "!"}]}
    assert re.match(re.escape(begin) + r'\{"n":(true|false)\}!', ask.text(structural_tag=json.dumps(old)))
    tag = {"type": "tag", "begin": "<f>", "content": {"type": "json_schema", "json_schema": FLAG}, "end": "</f>"}
    new = {"type": "structural_tag", "format": tag}
    assert re.fullmatch(r'<f>\{"n":(true|false)\}</f>', ask.text(structural_tag=json.dumps(new)))
    assert ask.refusal(structural_tag='{"format": {"type": "spell"}}')[0] == "structural_tag"


@row
def guided_decoding_backend(ask: Asker) -> None:
    assert ask.text(guided_choice=["Oslo"], guided_decoding_backend="guidance") == "Oslo"
    name, reason = ask.refusal(guided_choice=["Oslo"], guided_decoding_backend="outlines")
    assert name == "guided_decoding_backend" and "guidance" in reason


@row
def guided_whitespace_pattern(ask: Asker) -> None:
    plain, spaced = ask.text(guided_json=FLAG), ask.text(guided_json=FLAG, guided_whitespace_pattern=r"\n\n")
    assert "\n\n" not in plain
    assert "\n\n" in spaced
    assert json.loads(spaced).keys() == {"n"}


@row
def guided_meta(ask: Asker) -> None:
    assert ask.text(guided_meta={}) == ask.text()
    assert ask.refusal(guided_meta={"mode": "fast"})[0] == "guided_meta"


# --- serving


@tiny
def priority(ask: Asker) -> None:
    ended: list[str] = []

    def wait(name: str, chunks: Iterator[Any]) -> None:
        for _ in chunks:
            pass
        ended.append(name)

    # one place, and work before and between that leaves a busy machine time to take in all of them
    long = {"ignore_eos": True, "max_tokens": 400}
    asked = {
        "first": long,
        "later": {"priority": 5, "ignore_eos": True, "max_tokens": 100},
        "second": long,
        "third": long,
        "sooner": {"priority": -5, "max_tokens": 4},
    }
    with ExitStack() as open_:
        streams = {name: open_.enter_context(ask.stream(**fields)) for name, fields in asked.items()}
        threads = [threading.Thread(target=wait, args=stream) for stream in streams.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert ended.index("sooner") < ended.index("third")
    assert ended[-1] == "later"


@row
def request_id(ask: Asker) -> None:
    response = ask.client.post(ask.url, json=ask.body(request_id="mine:7"))
    assert response.json()["id"] == "chatcmpl-mine:7"
    assert response.headers["x-request-id"] == "mine:7"


@row
def kv_transfer_params(ask: Asker) -> None:
    assert ask(kv_transfer_params={})["kv_transfer_params"] is None
    assert ask.refusal(kv_transfer_params={"do_remote_decode": True})[0] == "kv_transfer_params"


@row
def vllm_xargs(ask: Asker) -> None:
    assert ask.text(vllm_xargs={}) == ask.text()
    assert ask.refusal(vllm_xargs={"a": 1})[0] == "vllm_xargs"


@row
def timeout_sec(ask: Asker) -> None:
    late = ask.client.post(ask.url, json=ask.body(timeout_sec=0.5, max_tokens=4000, ignore_eos=True))
    assert late.status_code == 504, late.text
    assert late.json()["code"] == "overall_timeout"
    assert ask(timeout_sec=300)
