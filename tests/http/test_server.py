"""One request through an operation: limits, envelopes, headers, negotiation, streams, clients that leave."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from generated.sie.operations import Response
from handlers import errors
from handlers.errors import Failure
from handlers.http.access import Line
from handlers.http.decode import THREAD_FROM, BodyDecoder
from tests.http.driver import Exchange
from tests.http.fakes import JSON, MSGPACK, Reply, StandardApiError, operation, server

GOOD = b'{"model": "m"}'
UUID7 = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")


async def answer(context: Any, body: Any) -> Reply:
    return Reply(body.model)


async def call(
    handler: Any = answer, body: Any = GOOD, headers: dict[str, str] | None = None, **options: Any
) -> Exchange:
    operation_ = options.pop("operation", operation())
    return await Exchange(body, headers).run(server(operation_, **options), operation_, handler)


def failing(failure: BaseException) -> Any:
    async def handler(context: Any, body: Any) -> Reply:
        raise failure

    return handler


# --- answers


async def test_struct_is_encoded_and_every_answer_carries_id_and_version() -> None:
    done = await call()
    assert (done.status, done.json) == (200, {"text": "m"})
    assert done.headers["content-type"] == JSON
    assert int(done.headers["content-length"]) == len(done.body)
    assert UUID7.match(done.headers["x-request-id"])
    assert done.headers["x-request-id"] == done.headers["x-sie-request-id"]
    assert done.headers["x-sie-version"] == done.headers["x-sie-server-version"] == "1.2.3"


async def test_request_ids_differ_and_sort_by_time() -> None:
    ids = [(await call()).headers["x-request-id"]]
    await asyncio.sleep(0.003)
    ids.append((await call()).headers["x-request-id"])
    assert ids == sorted(ids)
    assert ids[0] != ids[1]


@pytest.mark.parametrize("media", MSGPACK)
async def test_messagepack_is_answered_under_the_name_that_was_asked_for(media: str) -> None:
    done = await call(headers={"accept": media, "content-type": media}, body=msgspec.msgpack.encode({"model": "m"}))
    assert done.headers["content-type"] == media
    assert msgspec.msgpack.decode(done.body) == {"text": "m"}


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("", JSON),
        ("*/*", JSON),
        ("text/html", JSON),
        ("application/json, application/msgpack", JSON),
        ("application/msgpack, application/json", MSGPACK[0]),
        ("application/json;q=0.5, application/x-msgpack", MSGPACK[1]),
        ("application/msgpack;q=0", JSON),
        ("text/event-stream", JSON),
        ("application/msgpack;q=nonsense", JSON),
    ],
)
async def test_accept_chooses_among_what_is_declared(accept: str, media: str) -> None:
    assert (await call(headers={"accept": accept})).headers["content-type"] == media


async def test_errors_are_json_even_for_clients_of_messagepack() -> None:
    done = await call(failing(errors.ModelNotFound("x")), headers={"accept": MSGPACK[0]})
    assert done.headers["content-type"] == JSON
    assert done.json["error"]["code"] == "model_not_found"


async def test_handler_can_set_headers_but_not_the_request_id() -> None:
    async def handler(context: Any, body: Any) -> bytes:
        context.response_headers["X-Queue-Time"] = "1.0"
        context.response_headers["X-SIE-Request-Id"] = "mine"
        context.media_type = "text/vtt"
        return b"WEBVTT"

    done = await call(handler)
    assert done.body == b"WEBVTT"
    assert done.headers["content-type"] == "text/vtt"
    assert done.headers["x-queue-time"] == "1.0"
    assert UUID7.match(done.headers["x-sie-request-id"])


async def test_operation_without_handler_is_501_in_its_envelope() -> None:
    done = await call(None)
    assert done.status == 501
    assert done.json["error"]["code"] == "not_implemented"
    assert done.headers["x-should-retry"] == "false"


# --- bodies


async def test_announced_body_over_the_limit_is_413_before_it_is_read() -> None:
    exchange = Exchange(GOOD, {"content-length": "100001"})
    made = operation()
    done = await exchange.run(server(made), made, answer)
    assert done.status == 413
    assert exchange.received == 0
    assert done.headers["x-should-retry"] == "false"
    assert done.headers["x-sie-error-code"] == "PAYLOAD_TOO_LARGE"


async def test_chunked_body_over_the_limit_is_413_once_it_is_over() -> None:
    exchange = Exchange([b" " * 40_000] * 10)
    made = operation()
    done = await exchange.run(server(made), made, answer)
    assert done.status == 413
    assert exchange.received == 3, "nothing is read beyond the limit"


async def test_limit_of_the_operator_wins() -> None:
    assert (await call(max_body_bytes=5)).status == 413
    assert (await call(max_body_bytes=len(GOOD))).status == 200


async def test_body_in_parts_is_put_together() -> None:
    assert (await call(body=[GOOD[:3], b"", GOOD[3:]])).json == {"text": "m"}


async def test_malformed_content_length_is_400() -> None:
    assert (await call(headers={"content-length": "-1"})).status == 400


async def test_client_that_leaves_within_its_body_gets_nothing() -> None:
    lines: list[Line] = []
    made = operation()
    exchange = Exchange([GOOD[:3], b"x"])
    exchange._parts.pop()  # the rest never comes
    exchange.leave()
    done = await exchange.run(server(made, lines=lines), made, answer)
    assert done.status == 0
    assert (lines[0].status, lines[0].left) == (499, True)


async def test_large_body_is_decoded_on_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    real = BodyDecoder.decode

    def spy(self: BodyDecoder, media: str, raw: bytes) -> Any:
        threads.append(threading.get_ident())
        return real(self, media, raw)

    monkeypatch.setattr(BodyDecoder, "decode", spy)
    row = msgspec.structs.replace(operation().body, max_bytes=1 << 20)
    for body in (GOOD, GOOD + b" " * THREAD_FROM):
        assert (await call(body=body, operation=operation(body=row))).json == {"text": "m"}
    assert threads[0] == threading.get_ident()
    assert threads[1] != threading.get_ident()


@pytest.mark.parametrize("media", ["text/plain", "multipart/form-data; boundary=x"])
async def test_other_content_type_is_415(media: str) -> None:
    done = await call(headers={"content-type": media})
    assert done.status == 415
    assert done.json["error"]["code"] == "invalid_request"


@pytest.mark.parametrize("encoding", ["gzip", "br", "gzip, identity", "Deflate"])
async def test_a_compressed_body_is_415(encoding: str) -> None:
    done = await call(headers={"content-encoding": encoding})
    assert done.status == 415
    assert f"'{encoding}'" in done.json["error"]["message"]
    assert done.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("encoding", ["identity", "Identity", ""])
async def test_a_body_as_it_is_may_say_so(encoding: str) -> None:
    assert (await call(headers={"content-encoding": encoding})).status == 200


async def test_refused_field_is_in_the_envelope() -> None:
    done = await call(body=b'{"model": "m", "messages": [{"role": 7}]}')
    assert done.status == 400
    assert done.json == {
        "error": {
            "message": "Expected `str`, got `int`",
            "type": "invalid_request_error",
            "param": "messages[0].role",
            "code": "invalid_request",
        }
    }


# --- failures


@pytest.mark.parametrize(
    ("failure", "status", "type_", "code", "param"),
    [
        (errors.InvalidField("a.b", "x"), 400, "invalid_request_error", "invalid_request", "a.b"),
        (errors.UnsupportedField("a"), 400, "invalid_request_error", "unsupported_field", "a"),
        (Failure(400, "context_exceeded", "x"), 400, "context_length_exceeded", "context_exceeded", None),
        (errors.Capacity("x", 5), 503, "server_error", "transport_failure", None),
        (errors.Capacity("x", 60, code="provisioning"), 503, "server_error", "provisioning", None),
        (errors.Internal(), 500, "server_error", "inference_error", None),
    ],
)
async def test_failure_is_told_in_openai_words(
    failure: Failure, status: int, type_: str, code: str, param: str
) -> None:
    done = await call(failing(failure))
    assert done.status == status
    error = done.json["error"]
    assert (error["type"], error["code"], error["param"]) == (type_, code, param)
    assert UUID7.match(done.headers["x-request-id"])


async def test_retry_after_is_whole_seconds_and_short_for_sdks() -> None:
    done = await call(failing(errors.Capacity("x", 60, code="provisioning", native="PROVISIONING")))
    assert (done.headers["retry-after"], done.headers["retry-after-ms"]) == ("60", "5000")
    assert done.headers["x-sie-error-code"] == "PROVISIONING"
    assert "x-should-retry" not in done.headers
    done = await call(failing(errors.Capacity("x", 0.2)))
    assert (done.headers["retry-after"], done.headers["retry-after-ms"]) == ("1", "200")
    done = await call(failing(errors.Capacity("x", None)))
    assert "retry-after" not in done.headers
    assert "retry-after-ms" not in done.headers


async def test_undeclared_status_leaves_as_the_nearest_declared_one_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for status, left_as in ((409, 400), (404, 400), (429, 503), (504, 503), (502, 500), (418, 400), (507, 500)):
        caplog.clear()
        done = await call(failing(Failure(status, "invalid_request", "x")))
        assert done.status == left_as
        assert str(status) in caplog.text


async def test_exception_is_500_without_its_inside_and_logged_with_the_request_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done = await call(failing(RuntimeError("password=hunter2")))
    assert done.status == 500
    assert b"hunter2" not in done.body
    assert "hunter2" in caplog.text
    assert done.headers["x-request-id"] in caplog.text


async def test_wrapped_operation_tells_native_failures_by_their_table() -> None:
    for failure, type_, code in (
        (errors.PayloadTooLarge("x"), "invalid_request_error", "payload_too_large"),
        (errors.InvalidInput("x"), "invalid_request_error", "invalid_request"),
        (errors.UnsupportedField("f"), "invalid_request_error", "unsupported_field"),
        (Failure(503, "MODEL_LOADING", "x"), "server_error", "transport_failure"),
        (errors.Timeout("first_chunk_timeout"), "server_error", "overall_timeout"),
    ):
        done = await call(failing(failure), wrapped=frozenset({"make_thing"}))
        error = done.json["error"]
        assert (error["type"], error["code"]) == (type_, code)
        assert done.headers["x-sie-error-code"] == failure.native


# --- auth


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        ({}, 401, "UNAUTHORIZED"),
        ({"authorization": ""}, 401, "UNAUTHORIZED"),
        ({"authorization": "Bearer"}, 401, "UNAUTHORIZED"),
        ({"authorization": "Bearer wrong"}, 401, "UNAUTHORIZED"),
        ({"authorization": "Basic first"}, 401, "UNAUTHORIZED"),
        ({"authorization": "first"}, 401, "UNAUTHORIZED"),
        ({"authorization": "Bearer boss"}, 401, "UNAUTHORIZED"),
        ({"authorization": "Bearer first"}, 200, ""),
        ({"authorization": "bearer second"}, 200, ""),
    ],
)
async def test_guard_of_inference(sent: dict[str, str], status: int, code: str) -> None:
    made = operation(secured=True)
    done = await call(
        headers=sent, operation=made, auth_mode="token", auth_tokens=("first", "second"), admin_token="boss"
    )
    assert done.status == status
    if code:
        assert done.json["detail"]["code"] == code
        assert done.json["error"]["message"]
        assert done.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("token", "admin", "status", "code"),
    [
        ("boss", "boss", 200, ""),
        ("user", "boss", 403, "FORBIDDEN"),
        ("user", None, 403, "FORBIDDEN"),
        ("nobody", "boss", 401, "UNAUTHORIZED"),
        ("nobody", None, 401, "UNAUTHORIZED"),
    ],
)
async def test_guard_of_admin_operations(token: str, admin: str | None, status: int, code: str) -> None:
    plain = {JSON: (StandardApiError,)}
    made = operation(
        secured=True,
        admin=True,
        responses={200: Response(content={JSON: (Reply,)})} | dict.fromkeys((400, 401, 403), Response(content=plain)),
    )
    done = await call(
        headers={"authorization": f"Bearer {token}"},
        operation=made,
        auth_mode="token",
        auth_tokens=("user",),
        admin_token=admin,
    )
    assert done.status == status
    if code:
        assert done.json["detail"]["code"] == code


async def test_auth_without_any_token_is_misconfigured() -> None:
    done = await call(operation=operation(secured=True), auth_mode="token", headers={"authorization": "Bearer x"})
    assert done.status == 500
    assert done.json["detail"]["code"] == "GATEWAY_AUTH_MISCONFIGURED"


async def test_guard_comes_before_the_body() -> None:
    exchange = Exchange([b"x"] * 3)
    made = operation(secured=True)
    done = await exchange.run(server(made, auth_mode="token", auth_tokens=("t",)), made, answer)
    assert done.status == 401
    assert exchange.received == 0


async def test_operational_routes_can_be_exempt() -> None:
    options: dict[str, Any] = {"auth_mode": "token", "auth_tokens": ("t",), "auth_exempt_operational": True}
    assert (await call(operation=operation(secured=True, tag="health"), **options)).status == 200
    assert (await call(operation=operation(secured=True), **options)).status == 401


# --- clients that leave


async def test_client_that_leaves_cancels_a_blocking_handler() -> None:
    lines: list[Line] = []
    running, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(context: Any, body: Any) -> Reply:
        running.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return Reply("")

    made = operation()
    exchange = Exchange(GOOD)
    task = asyncio.create_task(exchange.run(server(made, lines=lines), made, handler))
    await running.wait()
    exchange.leave()
    await asyncio.wait_for(task, 5)
    assert cancelled.is_set()
    assert exchange.status == 0
    assert (lines[0].status, lines[0].left) == (499, True)


async def test_cancellation_of_the_server_itself_is_passed_on() -> None:
    started = asyncio.Event()

    async def handler(context: Any, body: Any) -> Reply:
        started.set()
        await asyncio.sleep(60)
        return Reply("")

    made = operation()
    task = asyncio.create_task(Exchange(GOOD).run(server(made), made, handler))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class Source:
    """Frames as they are put; notes when it is closed."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.closed = False

    async def frames(self) -> AsyncIterator[bytes]:
        try:
            while (frame := await self.queue.get()) is not None:
                if isinstance(frame, Exception):
                    raise frame
                yield frame
        finally:
            self.closed = True


def streaming(source: Source) -> Any:
    async def handler(context: Any, body: Any) -> AsyncIterator[bytes]:
        return source.frames()

    return handler


async def test_stream_sends_whole_frames_with_the_headers_of_a_stream() -> None:
    source = Source()
    for frame in (b"data: 1\n\n", b"data: 2\n\n", None):
        source.queue.put_nowait(frame)
    done = await call(streaming(source))
    assert done.status == 200
    assert done.frames == [b"data: 1\n\n", b"data: 2\n\n", b""]
    assert done.finished
    assert done.headers["content-type"] == "text/event-stream"
    assert done.headers["cache-control"] == "no-cache"
    assert done.headers["x-accel-buffering"] == "no"
    assert UUID7.match(done.headers["x-request-id"])
    assert source.closed


async def test_client_that_leaves_closes_the_source_at_once() -> None:
    lines: list[Line] = []
    source, made = Source(), operation()
    source.queue.put_nowait(b"data: 1\n\n")
    exchange = Exchange(GOOD)
    task = asyncio.create_task(exchange.run(server(made, lines=lines), made, streaming(source)))
    await exchange.until(lambda: bool(exchange.frames))
    exchange.leave()
    await asyncio.wait_for(task, 5)
    assert source.closed
    assert not exchange.finished
    assert (lines[0].status, lines[0].left) == (200, True)


async def test_silent_stream_is_kept_alive_by_comments_between_events() -> None:
    source, made = Source(), operation()
    exchange = Exchange(GOOD)
    task = asyncio.create_task(exchange.run(server(made, keep_alive=0.02), made, streaming(source)))
    await exchange.until(lambda: exchange.frames.count(b": keep-alive\n\n") >= 2)
    source.queue.put_nowait(b"data: 1\n\n")
    source.queue.put_nowait(None)
    await asyncio.wait_for(task, 5)
    assert exchange.finished
    assert set(exchange.frames) == {b": keep-alive\n\n", b"data: 1\n\n", b""}


async def test_stream_that_breaks_is_cut_without_its_end(caplog: pytest.LogCaptureFixture) -> None:
    source = Source()
    source.queue.put_nowait(b"data: 1\n\n")
    source.queue.put_nowait(RuntimeError("broken"))
    with caplog.at_level(logging.ERROR):
        done = await call(streaming(source))
    assert done.frames == [b"data: 1\n\n"]
    assert not done.finished, "a client must not take it for complete"
    assert "broken" in caplog.text
    assert done.headers["x-request-id"] in caplog.text


async def test_failure_before_the_stream_is_a_status() -> None:
    assert (await call(failing(errors.Capacity("x", 1)))).status == 503


# --- logs


async def test_access_log_has_route_status_and_id_and_no_secrets() -> None:
    lines: list[Line] = []
    done = await call(lines=lines, headers={"authorization": "Bearer hunter2"})
    line = lines[0]
    assert (line.method, line.route, line.status, line.left) == ("POST", "/things", 200, False)
    assert line.request_id == done.headers["x-request-id"]
    assert b"hunter2" not in msgspec.json.encode(line)
    assert b"model" not in msgspec.json.encode(line)


async def test_nothing_is_left_running() -> None:
    made = operation()
    made_server = server(made)
    await Exchange(GOOD).run(made_server, made, answer)
    await Exchange(b"[]").run(made_server, made, answer)
    assert not made_server.visits.tasks()
