"""The second contract: chat completions with vLLM's parameters, on the surfaces and engines of the first.

``request`` says what its fields mean beyond the first contract's, ``rules`` what is refused, ``answer`` what its
answers have more, ``envelopes`` how it tells faults, ``service`` puts it together.
"""

from .options import Options, read
from .service import Inflection

__all__ = ["Inflection", "Options", "read"]
