"""Inflection chat completions 1: generated from its OpenAPI document by `python -m codegen`, never edited."""
