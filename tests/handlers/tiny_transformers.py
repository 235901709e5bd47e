"""Tiny models of Transformers with random weights, made on the spot: real architectures, real files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "house",
    "river",
    "runs",
    "sleeps",
    "small",
    "large",
    "and",
    "or",
    "in",
    "on",
    "by",
    "moon",
    "sun",
    "tree",
    "bird",
    "stone",
]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
LABELS = {"id2label": {0: "bad", 1: "fair", 2: "good"}, "label2id": {"bad": 0, "fair": 1, "good": 2}}


def save_tokenizer(folder: Path, **options: Any) -> Any:
    """Write a tokenizer of whole words, as BERT has them, and return it."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate([*special, *WORDS])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=24, **{**names, **options})
    fast.save_pretrained(folder)
    return fast


def save_bert(folder: Path, head: str = "Model", **config: Any) -> Path:
    """Write a BERT with one of its heads, and its tokenizer."""
    import transformers

    vocabulary = len(WORDS) + 5
    settings = transformers.BertConfig(
        vocab_size=vocabulary,
        max_position_embeddings=24,
        **{**SIZES, **(LABELS if "Classification" in head else {}), **config},
    )
    return save(folder, getattr(transformers, f"Bert{head}")(settings), save_tokenizer)


def save_gpt2(folder: Path, head: str = "LMHeadModel") -> Path:
    """Write a GPT-2, which knows no padding, and its tokenizer."""
    import transformers

    config = transformers.GPT2Config(
        vocab_size=len(WORDS) + 5, n_positions=24, n_embd=32, n_layer=2, n_head=4, bos_token_id=2, eos_token_id=3
    )
    kwargs = {"pad_token": None, "eos_token": "[SEP]", "bos_token": "[CLS]"}

    def tokenizer(folder: Path) -> None:
        save_tokenizer(folder, **kwargs).backend_tokenizer.post_processor = None

    return save(folder, getattr(transformers, f"GPT2{head}")(config), tokenizer)


def save_t5(folder: Path, head: str = "ForConditionalGeneration") -> Path:
    """Write a T5, an encoder and a decoder, and its tokenizer."""
    import transformers

    config = transformers.T5Config(
        vocab_size=len(WORDS) + 5,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=3,
    )
    return save(folder, getattr(transformers, f"T5{head}")(config), save_tokenizer)


def save_clip(folder: Path) -> Path:
    """Write a CLIP, which takes pictures and texts together, and its processor."""
    import transformers

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    texts = {"vocab_size": len(WORDS) + 5, "max_position_embeddings": 24, "bos_token_id": 2, "eos_token_id": 3}
    config = transformers.CLIPConfig(
        text_config={**sizes, **texts, "pad_token_id": 0},
        vision_config={**sizes, "image_size": 16, "patch_size": 8},
        projection_dim=16,
    )
    pictures = transformers.CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})

    def processor(folder: Path) -> None:
        transformers.CLIPProcessor(image_processor=pictures, tokenizer=save_tokenizer(folder)).save_pretrained(folder)

    return save(folder, transformers.CLIPModel(config), processor)


def save_vit(folder: Path, head: str = "ForImageClassification") -> Path:
    """Write a vision transformer for pictures of 16 × 16, and its image processor."""
    import transformers

    config = transformers.ViTConfig(image_size=16, patch_size=8, **SIZES, **LABELS)
    processor = transformers.ViTImageProcessor(size={"height": 16, "width": 16})
    return save(folder, getattr(transformers, f"ViT{head}")(config), processor.save_pretrained)


def save_wav2vec2(folder: Path, head: str = "ForSequenceClassification") -> Path:
    """Write a model of sounds, and its feature extractor."""
    import transformers

    config = transformers.Wav2Vec2Config(
        vocab_size=len(WORDS) + 5,
        conv_dim=(16, 16),
        conv_stride=(4, 4),
        conv_kernel=(8, 8),
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        classifier_proj_size=16,
        **SIZES,
        **LABELS,
    )
    extractor = transformers.Wav2Vec2FeatureExtractor(sampling_rate=1000)
    parts = [extractor.save_pretrained, *([_save_letters] if head == "ForCTC" else [])]
    return save(folder, getattr(transformers, f"Wav2Vec2{head}")(config), *parts)


def _save_letters(folder: Path) -> None:
    """Write a tokenizer of letters, as models of speech have them."""
    import json

    import transformers

    letters = ["<pad>", "<s>", "</s>", "<unk>", "|", *"abcdefghijklmnopqrst"]
    (folder / "letters.json").write_text(json.dumps({letter: i for i, letter in enumerate(letters)}))
    transformers.Wav2Vec2CTCTokenizer(folder / "letters.json").save_pretrained(folder)


def save(folder: Path, module: Any, *parts: Any) -> Path:
    """Write a module and what belongs to it."""
    module.save_pretrained(folder)
    for part in parts:
        part(folder)
    return folder


def save_nli(folder: Path) -> Path:
    """Write a BERT that says whether one text follows from another."""
    names = {0: "contradiction", 1: "neutral", 2: "entailment"}
    return save_bert(folder, "ForSequenceClassification", id2label=names, label2id={v: k for k, v in names.items()})
