"""Settings from the environment: typed, and refused where they make no sense."""

from __future__ import annotations

import pytest

from handlers.settings import SettingError, Settings, read


def test_nothing_set_gives_the_defaults() -> None:
    assert read({}) == Settings()


def test_values_are_typed() -> None:
    settings = read(
        {
            "SIE_AUTH_MODE": "static",
            "SIE_AUTH_TOKENS": " a, b ,,",
            "SIE_AUTH_TOKEN": "ignored",
            "SIE_ADMIN_TOKEN": "boss",
            "SIE_AUTH_EXEMPT_OPERATIONAL": "yes",
            "SIE_GATEWAY_GPU_ALIASES": '{"big": "h100"}',
            "SIE_GATEWAY_DEFAULT_MAX_TOKENS": "7",
            "SIE_GATEWAY_FIRST_CHUNK_TIMEOUT_S": "1.5",
            "SIE_CORS_ORIGINS": "*",
        }
    )
    assert settings == Settings(
        auth_mode="token",
        auth_tokens=("a", "b"),
        admin_token="boss",
        auth_exempt_operational=True,
        gpu_aliases={"big": "h100"},
        default_max_tokens=7,
        first_chunk_timeout=1.5,
        cors_origins=("*",),
    )
    assert read({"SIE_AUTH_TOKEN": "one"}).auth_tokens == ("one",)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SIE_AUTH_MODE", "oauth"),
        ("SIE_AUTH_EXEMPT_OPERATIONAL", "maybe"),
        ("SIE_GATEWAY_DEFAULT_MAX_TOKENS", "0"),
        ("SIE_GATEWAY_DEFAULT_MAX_TOKENS", "x"),
        ("SIE_GATEWAY_FIRST_CHUNK_TIMEOUT_S", "-1"),
        ("SIE_GATEWAY_FIRST_CHUNK_TIMEOUT_S", "nan"),
        ("SIE_GATEWAY_REQUEST_TIMEOUT", "inf"),
        ("SIE_GATEWAY_GPU_ALIASES", "[]"),
        ("SIE_GATEWAY_GPU_ALIASES", '{"a": 1}'),
    ],
)
def test_nonsense_refuses_to_start_and_names_the_variable(name: str, value: str) -> None:
    with pytest.raises(SettingError, match=name):
        read({name: value})
