"""The retrieval surface: embeddings, rerank, encode, score, extract and transcription."""

from .embeddings import EmbeddingsSurface
from .encode import EncodeSurface
from .extract import ExtractSurface
from .rerank import RerankSurface
from .score import ScoreSurface
from .transcription import TranscriptionSurface

__all__ = [
    "EmbeddingsSurface",
    "EncodeSurface",
    "ExtractSurface",
    "RerankSurface",
    "ScoreSurface",
    "TranscriptionSurface",
]
