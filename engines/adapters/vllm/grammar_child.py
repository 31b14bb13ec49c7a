"""The process that compiles a caller's grammar first: a few bytes of it can ask for any memory and any time.

It imports nothing but llguidance. The first line on standard input names the tokenizer, each further line a grammar;
each is answered by a line with the error, empty where there is none. What does not fit ends the process.
"""

from __future__ import annotations

import json
import resource
import sys

import llguidance

MAX_MEMORY = 1024 * 1024 * 1024
"""Bytes that a grammar may take beside the tokenizer."""


def main() -> None:
    """Serve until standard input ends."""
    told = json.loads(sys.stdin.readline())
    tokens = llguidance.LLTokenizer(told["tokenizer"], n_vocab=told["size"], eos_token=told["end"])
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_MEMORY, used + MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        print(json.dumps(_error(tokens, json.loads(line))), flush=True)


def _error(tokens: llguidance.LLTokenizer, grammar: str) -> str:
    """Why a grammar cannot be enforced: it is wrong, or its first tokens already cost too much."""
    if error := llguidance.LLMatcher.validate_grammar(grammar, tokens):
        return error
    matcher = llguidance.LLMatcher(tokens, grammar, log_level=0)
    allowed = int.from_bytes(matcher.compute_bitmask(), "little") & ~(1 << tokens.eos_token)
    if allowed and not matcher.get_error():
        matcher.consume_token(allowed.bit_length() - 1)
        matcher.compute_bitmask()
    return matcher.get_error().partition("\n")[0]


if __name__ == "__main__":
    main()
