"""The retrieval surface: embeddings, rerank, encode, score, extract and transcription."""
