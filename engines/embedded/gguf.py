"""Convert a GGUF file to a folder in the Hugging Face layout: ``python -m engines.embedded.gguf FILE FOLDER``.

Weights become bfloat16 safetensors; tokenizer, chat template, special tokens and stop tokens are those of the file.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from gguf import GGUFReader
from tokenizers import decoders, pre_tokenizers


def convert(source: Path, target: Path) -> None:
    """Write config, generation config, weights and tokenizer of ``source`` into the existing folder ``target``."""
    transformers.utils.logging.set_verbosity_error()
    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    _correct_tokenizer(tokenizer, GGUFReader(str(source)))
    tokenizer.save_pretrained(target)
    model = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.bfloat16)
    model.save_pretrained(target)
    for file in target.iterdir():
        file.chmod(0o644)  # safetensors writes files that only their owner can read


def _correct_tokenizer(tokenizer: Any, reader: GGUFReader) -> None:
    """Put right what transformers does not take over from the file: special tokens, digits, decoder, context length."""

    def field(key: str) -> Any:
        found = reader.get_field(key)
        return None if found is None else found.contents()

    tokens = {
        name: tokenizer.convert_ids_to_tokens(index)
        for name, key in (
            ("bos_token", "bos"),
            ("eos_token", "eos"),
            ("pad_token", "padding"),
            ("unk_token", "unknown"),
        )
        if (index := field(f"tokenizer.ggml.{key}_token_id")) is not None
    }
    tokenizer.add_special_tokens(tokens)
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.model_max_length = field(f"{field('general.architecture')}.context_length")
    backend = tokenizer.backend_tokenizer
    if field("tokenizer.ggml.pre") == "smollm":
        # each digit is a token of its own, as in the pre-tokeniser that llama.cpp calls "smollm"
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    if field("tokenizer.ggml.model") == "gpt2":
        backend.decoder = decoders.ByteLevel()


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
