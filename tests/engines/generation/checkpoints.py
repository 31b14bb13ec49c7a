"""A tiny vision checkpoint with random weights, made with the real library: BLIP-2 over SmolLM2's tokenizer."""

from __future__ import annotations

from pathlib import Path

IMAGE_SIDE = 28
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}"
    "{{ message['content'] }}{% else %}{% for part in message['content'] %}{% if part['type'] == 'text' %}"
    "{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def vision(weights: Path, folder: Path, first_token: str | None = None) -> Path:
    """Write the checkpoint into ``folder``; ``weights`` is where the tokenizer comes from.

    Args:
        first_token: A token that the tokenizer puts before every text, where it adds special tokens.
    """
    import torch
    from tokenizers.processors import TemplateProcessing
    from transformers import (
        AddedToken,
        AutoTokenizer,
        Blip2Config,
        Blip2ForConditionalGeneration,
        Blip2Processor,
        Blip2QFormerConfig,
        Blip2VisionConfig,
        OPTConfig,
    )
    from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

    tokenizer = AutoTokenizer.from_pretrained(weights)
    tokenizer.add_tokens([AddedToken("<image>", special=True, normalized=False)])
    tokenizer.chat_template = TEMPLATE
    if first_token is not None:
        token = (first_token, tokenizer.convert_tokens_to_ids(first_token))
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{first_token} $A", pair=f"{first_token} $A $B", special_tokens=[token]
        )
    size = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = Blip2Config(
        vision_config=Blip2VisionConfig(**size, intermediate_size=128, image_size=IMAGE_SIDE, patch_size=14),
        qformer_config=Blip2QFormerConfig(
            **size, intermediate_size=128, encoder_hidden_size=64, vocab_size=len(tokenizer)
        ),
        text_config=OPTConfig(
            **size,
            ffn_dim=128,
            word_embed_proj_dim=64,
            vocab_size=len(tokenizer),
            max_position_embeddings=512,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=2,
        ),
        num_query_tokens=4,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )
    torch.manual_seed(0)
    Blip2ForConditionalGeneration(config).save_pretrained(folder)
    pictures = BlipImageProcessorPil(size={"height": IMAGE_SIDE, "width": IMAGE_SIDE})
    Blip2Processor(image_processor=pictures, tokenizer=tokenizer, num_query_tokens=4).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
