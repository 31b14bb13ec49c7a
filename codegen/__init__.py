"""OpenAPI document, overlays -> msgspec models, operation table, typed interfaces and Litestar routes."""
