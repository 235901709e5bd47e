"""Tiny models of sentence-transformers with random weights, made on the spot."""

from __future__ import annotations

import json
from pathlib import Path

TEXT = "the a mill wheel turns water runs down race bread is made of flour where when here now query passage"


def make_encoder(folder: Path, *, labels: int | None = None, side: str = "right") -> Path:
    """Write a model of transformers with its tokenizer; with `labels` one that has a head for so many of them."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import BertProcessing
    from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *TEXT.split(), *"abcdefghijklmnopqrstuvwxyz:."]
    ids = {word: i for i, word in enumerate(dict.fromkeys(vocabulary))}
    tokenizer = Tokenizer(WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    tokenizer.post_processor = BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    marks = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    names = ["input_ids", "token_type_ids", "attention_mask"]
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=names, padding_side=side, model_max_length=32, **marks
    )
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=len(ids), max_position_embeddings=40, initializer_range=0.5, **sizes)
    if labels is None:
        model = BertModel(config)
    else:
        config.num_labels = labels
        model = BertForSequenceClassification(config)
    model.eval().save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def make_sentence_transformer(folder: Path, *, prompts: dict[str, str] | None = None) -> Path:
    """Write a SentenceTransformer: encoder, mean pooling, vectors of length 1."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    encoder = Transformer(str(make_encoder(folder.with_name(f"{folder.name}-encoder"))), max_seq_length=24)
    modules = [encoder, Pooling(encoder.get_embedding_dimension()), Normalize()]
    SentenceTransformer(modules=modules, device="cpu", prompts=prompts).save(str(folder))
    return folder


def changed(folder: Path, name: str, **settings: object) -> None:
    """Change settings in one of a model's JSON files."""
    path = folder / name
    path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **settings}))
