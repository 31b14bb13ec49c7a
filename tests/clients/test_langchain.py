"""LangChain's integration tests of its embedding interface against the real server."""

from __future__ import annotations

from tests.clients import apart


def test_langchain(base_url: str) -> None:
    apart.run("langchain", "langchain-openai-1.7.4", base_url)
