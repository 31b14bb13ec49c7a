"""Which models are loaded together: least recently used ones leave, the memory budget holds, no request is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engines.worker.models import Models
from engines.worker.slot import LoadFailed
from tests.worker.house import House, entry, settle


def house(budget: int = 1000, **sizes: int) -> House:
    """Models whose size the catalog tells."""
    return House(budget, sizes, footprints=sizes)


async def test_the_least_recently_used_model_leaves_first() -> None:
    rooms = house(a=300, b=300, c=300, d=300, e=300)
    for name in "abca":
        await rooms.ask(name)
    await rooms.ask("d")
    assert rooms.loaded == ["a", "c", "d"]
    await rooms.ask("e")
    assert rooms.loaded == ["a", "d", "e"]
    assert rooms.most <= 1000


async def test_as_many_leave_as_the_new_one_needs_and_no_more() -> None:
    rooms = house(a=300, b=300, c=300, big=600)
    for name in "abc":
        await rooms.ask(name)
    await rooms.ask("big")
    assert rooms.loaded == ["big", "c"]


async def test_two_models_that_do_not_fit_together_are_never_loaded_together() -> None:
    rooms = house(a=900, b=900)
    for name in "abab":
        assert await rooms.ask(name) == name
        assert rooms.loaded == [name]
    assert rooms.most == 900


async def test_a_model_is_loaded_when_those_that_leave_for_it_are_closed() -> None:
    rooms = house(a=900, b=900)
    await rooms.ask("a")
    rooms.doors["a"] = asyncio.Event()
    asked = asyncio.create_task(rooms.ask("b"))
    await settle()
    assert rooms.loads == ["a"]
    rooms.doors["a"].set()
    assert await asked == "b"
    assert rooms.most == 900


async def test_a_dead_engine_holds_its_memory_until_it_is_closed() -> None:
    rooms = house(a=900)
    await rooms.ask("a")
    made = rooms.entries["a"]
    rooms.doors["a"] = asyncio.Event()
    async with rooms.models.use(made, made.profiles["default"]) as engine:
        rooms.models.discard(made, made.profiles["default"], engine)
    asked = asyncio.create_task(rooms.ask("a"))
    await settle()
    assert rooms.loads == ["a"]
    rooms.doors["a"].set()
    assert await asked == "a"
    assert rooms.most == 900


async def test_concurrent_cold_loads_see_what_the_others_will_need() -> None:
    rooms = house(a=400, b=400, c=400)
    rooms.doors = {name: asyncio.Event() for name in "abc"}
    asked = [asyncio.create_task(rooms.ask(name)) for name in "abc"]
    await settle()
    assert rooms.loads == ["a", "b"]
    for door in rooms.doors.values():
        door.set()
    assert await asyncio.gather(*asked) == ["a", "b", "c"]
    assert rooms.most == 800


async def test_a_load_that_fails_gives_back_what_was_reserved() -> None:
    rooms = house(a=900, b=900)
    rooms.broken.add("a")
    with pytest.raises(LoadFailed, match="it is broken"):
        await rooms.ask("a")
    assert await rooms.ask("b") == "b"
    assert rooms.most == 900


async def test_a_load_that_fails_when_its_requests_have_left_makes_room_for_one_that_waits() -> None:
    rooms = house(a=900, b=900)
    rooms.broken.add("a")
    rooms.doors["a"] = asyncio.Event()
    left = asyncio.create_task(rooms.ask("a"))
    await settle()
    asked = asyncio.create_task(rooms.ask("b"))
    left.cancel()
    await settle()
    assert rooms.loads == ["a"]
    rooms.doors["a"].set()
    async with asyncio.timeout(20):
        assert await asked == "b"


async def test_a_load_waits_until_a_model_in_use_is_idle() -> None:
    rooms = house(a=900, b=900)
    enough = [asyncio.Event(), asyncio.Event()]
    users = [asyncio.create_task(rooms.ask("a", event)) for event in enough]
    await settle()
    asked = asyncio.create_task(rooms.ask("b"))
    enough[0].set()
    await settle()
    assert (rooms.loaded, rooms.loads) == (["a"], ["a"])
    assert await rooms.ask("a") == "a", "whoever asks for the model in use is served meanwhile"
    enough[1].set()
    assert await asyncio.gather(*users, asked) == ["a", "a", "b"]
    assert rooms.most == 900


async def test_idle_models_stay_while_their_leaving_would_not_be_enough() -> None:
    rooms = house(a=600, idle=300, b=900)
    enough = asyncio.Event()
    user = asyncio.create_task(rooms.ask("a", enough))
    await rooms.ask("idle")
    asked = asyncio.create_task(rooms.ask("b"))
    await settle()
    assert rooms.loaded == ["a", "idle"]
    enough.set()
    assert [await user, await asked] == ["a", "b"]
    assert rooms.loaded == ["b"]


async def test_nothing_is_evicted_for_a_load_that_nobody_waits_for_any_more() -> None:
    rooms = house(a=900, b=900)
    enough = asyncio.Event()
    user = asyncio.create_task(rooms.ask("a", enough))
    await settle()
    asked = asyncio.create_task(rooms.ask("b"))
    await settle()
    asked.cancel()
    await settle()
    enough.set()
    await user
    await settle()
    assert (rooms.loaded, rooms.loads) == (["a"], ["a"])
    assert await rooms.ask("b") == "b"


async def test_no_request_is_lost_while_models_are_swapped() -> None:
    rooms = house(pinned=100, a=800, b=800, c=400)
    rooms.models.pin({"pinned"})
    await rooms.preload("pinned")
    wanted = [name for _ in range(20) for name in ("a", "b", "c", "a", "pinned")]

    async def later(index: int, name: str) -> str:
        await asyncio.sleep(index // 7 * 0.002)
        return await rooms.ask(name)

    async with asyncio.timeout(20):
        assert await asyncio.gather(*(later(*one) for one in enumerate(wanted))) == wanted
    assert rooms.most <= 1000
    assert rooms.loads.count("pinned") == 1
    assert len(rooms.loads) > 4, "models were swapped"
    assert "pinned" in rooms.loaded


async def test_a_pinned_model_stays_even_if_it_was_used_longest_ago() -> None:
    rooms = house(a=400, b=400, c=400)
    rooms.models.pin({"a"})
    for name in "abc":
        await rooms.ask(name)
    assert rooms.loaded == ["a", "c"]
    rooms.models.pin(())
    await rooms.ask("b")
    assert rooms.loaded == ["b", "c"]


async def test_a_model_for_which_pinned_ones_leave_no_room_fails_and_names_the_budget() -> None:
    rooms = house(a=600, b=500, huge=5000)
    rooms.models.pin({"a"})
    await rooms.preload("a")
    for name, needs in (("b", 500), ("huge", 5000)):
        with pytest.raises(LoadFailed) as refused:
            await rooms.ask(name)
        message = f"it needs {needs} bytes, and pinned models hold 600 of the memory budget of 1000 bytes"
        assert str(refused.value) == message
        assert not refused.value.permanent
    assert rooms.loads == ["a"]
    rooms.models.pin(())
    assert await rooms.ask("b") == "b", "without the pin there is room at once"


async def test_waiting_ends_when_what_was_waited_for_is_pinned() -> None:
    rooms = house(a=900, b=900)
    enough = asyncio.Event()
    user = asyncio.create_task(rooms.ask("a", enough))
    await settle()
    asked = asyncio.create_task(rooms.ask("b"))
    await settle()
    rooms.models.pin({"a"})
    with pytest.raises(LoadFailed, match="memory budget of 1000 bytes"):
        await asked
    enough.set()
    assert await user == "a"


async def test_a_model_bigger_than_the_budget_is_loaded_alone(caplog: pytest.LogCaptureFixture) -> None:
    rooms = house(a=300, b=300, huge=1500)
    enough = asyncio.Event()
    user = asyncio.create_task(rooms.ask("a", enough))
    await rooms.ask("b")
    asked = asyncio.create_task(rooms.ask("huge"))
    await settle()
    assert rooms.loaded == ["a", "b"]
    enough.set()
    assert [await user, await asked] == ["a", "huge"]
    assert "model huge: it needs 1500 bytes, the memory budget is 1000" in caplog.text
    assert rooms.loaded == ["huge"]
    assert await rooms.ask("huge") == "huge"
    assert rooms.loads.count("huge") == 1, "it stays until another model is wanted"
    assert await rooms.ask("a") == "a"
    assert rooms.loaded == ["a"]
    assert rooms.most == 1500


async def test_the_real_size_takes_the_place_of_the_expected_one() -> None:
    rooms = House(1000, {"a": 400, "b": 400}, footprints={"a": 900, "b": 500})
    for name in "ab":
        await rooms.ask(name)
    assert rooms.loaded == ["a", "b"]


async def test_idle_models_leave_when_a_new_one_is_bigger_than_expected(caplog: pytest.LogCaptureFixture) -> None:
    rooms = House(1000, {"a": 300, "b": 300, "c": 600}, footprints={"a": 300, "b": 300, "c": 100})
    for name in "abc":
        await rooms.ask(name)
    assert rooms.loaded == ["b", "c"]
    assert "the memory budget is" not in caplog.text
    rooms.most = 0
    rooms.models.pin({"b"})
    for name in "ac":
        await rooms.ask(name)
    assert rooms.loaded == ["b", "c"]
    assert rooms.most == 900, "what it took is known from then on"


async def test_too_much_in_use_is_told_and_trimmed_when_idle(caplog: pytest.LogCaptureFixture) -> None:
    rooms = House(1000, {"a": 600, "b": 600}, footprints={"a": 500, "b": 500})
    enough = [asyncio.Event(), asyncio.Event()]
    users = [asyncio.create_task(rooms.ask(name, event)) for name, event in zip("ab", enough, strict=True)]
    await settle()
    assert rooms.loaded == ["a", "b"]
    assert "1200 bytes are held, the memory budget is 1000" in caplog.text
    enough[1].set()
    await settle()
    assert rooms.loaded == ["a"]
    enough[0].set()
    assert await asyncio.gather(*users) == ["a", "b"]
    assert rooms.loaded == ["a"]


async def test_without_a_word_of_the_catalog_a_model_is_as_big_as_last_time() -> None:
    rooms = House(1000, {"a": 900, "b": 900})
    await rooms.ask("a")
    await rooms.ask("b")
    assert rooms.loaded == ["b"], "of the first load only the outcome is known"
    rooms.most = 0
    for name in "abab":
        await rooms.ask(name)
    assert rooms.most == 900


async def test_before_the_first_load_a_model_is_as_big_as_its_files(tmp_path: Path) -> None:
    rooms = House(1000, {"a": 900, "b": 900})
    (tmp_path / "model.safetensors").write_bytes(bytes(900))
    rooms.entries = {name: entry(name, source=str(tmp_path)) for name in "ab"}
    for name in "ab":
        await rooms.ask(name)
    assert rooms.most == 900


async def test_a_model_that_reports_nothing_is_not_evicted_in_vain() -> None:
    rooms = house(unknown=0, a=900, b=900)
    for name in ("unknown", "a", "b"):
        await rooms.ask(name)
    assert rooms.loaded == ["b", "unknown"]


async def test_a_model_that_the_catalog_has_changed_counts_until_it_is_closed() -> None:
    rooms = house(a=900, b=900)
    rooms.models.pin({"a"})
    enough = asyncio.Event()
    user = asyncio.create_task(rooms.ask("a", enough))
    await settle()
    rooms.models.renew(lambda name: None)
    asked = asyncio.create_task(rooms.ask("b"))
    await settle()
    assert rooms.loads == ["a"]
    enough.set()
    assert [await user, await asked] == ["a", "b"]
    assert rooms.most == 900


async def test_without_a_budget_everything_stays() -> None:
    rooms = house(a=900, b=900)
    rooms.models = Models(rooms.make, lambda: None)
    for name in "ab":
        await rooms.ask(name)
    assert rooms.loaded == ["a", "b"]
