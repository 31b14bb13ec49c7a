"""LangChain's integration tests of its interfaces against the real server."""

from __future__ import annotations

import pytest

from tests.clients import apart

ENVIRONMENT = "langchain-openai-1.7.4"


def test_embeddings(base_url: str) -> None:
    apart.run("langchain", ENVIRONMENT, base_url)


@pytest.mark.timeout(900)
def test_chat(base_url: str) -> None:
    apart.run("langchain", ENVIRONMENT, base_url, "chat_suite.py", limit_s=850)
