"""LangChain's own integration tests of its embedding interface, with the OpenAI class pointed at a running server.

Runs in an environment of its own. ``SERVER_URL`` is the server's address, ``SERVER_KEY`` its
token. Started by ``tests/clients/test_langchain.py``.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from langchain_openai import OpenAIEmbeddings
from langchain_tests.integration_tests import EmbeddingsIntegrationTests
from openai import BadRequestError

URL = os.environ["SERVER_URL"]
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
PARAMS: dict[str, Any] = {"model": MODEL, "base_url": f"{URL}/v1", "api_key": os.environ["SERVER_KEY"]}


class TestOpenAIEmbeddings(EmbeddingsIntegrationTests):
    """As LangChain runs them for each of its providers."""

    @property
    def embeddings_class(self) -> type[OpenAIEmbeddings]:
        return OpenAIEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return PARAMS | {"check_embedding_ctx_length": False}


def test_more_texts_than_one_request_holds() -> None:
    embeddings = OpenAIEmbeddings(**PARAMS, check_embedding_ctx_length=False, chunk_size=256)
    texts = [f"text {index}" for index in range(300)]
    vectors = embeddings.embed_documents(texts)
    assert len(vectors) == 300
    assert vectors[299] == pytest.approx(embeddings.embed_query("text 299"), abs=2e-2)


def test_token_ids_are_refused_with_what_to_set() -> None:
    """LangChain's default sends token ids; offline it has no tokenizer, so the ids are made here."""
    embeddings = OpenAIEmbeddings(**PARAMS)
    with pytest.raises(BadRequestError, match="check_embedding_ctx_length=False") as caught:
        embeddings.client.create(input=[[1, 2, 3]], model=MODEL)
    assert caught.value.param == "input"
