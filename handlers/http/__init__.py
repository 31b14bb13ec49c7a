"""The HTTP half that every operation shares: guard, body, decoding, envelopes, negotiation, answers, event streams.

It implements the generated ``Serve`` protocol and knows operations only by their table.
"""
