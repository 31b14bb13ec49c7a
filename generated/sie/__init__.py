"""SIE Gateway 0.6.26: generated from its OpenAPI document by `python -m codegen`, never edited."""
