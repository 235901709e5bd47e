"""Tokens of sentences, made as the models of sentence-transformers make them, and without loading one."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.errors import ModelLoadError, PlanError, RowError, suggestion
from headrace.handlers.hub import model_folder
from headrace.handlers.pretrained import load_tokenizer, loading, quieten, read_settings
from headrace.handlers.texts import surrogate_error

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TOKENS, MASK = "input_ids", "attention_mask"
TEXTS = ("text", "second_text")
"""Names of texts that the model has to tokenise itself."""

_HARMLESS = frozenset(
    {"max_seq_length", "do_lower_case", "transformer_task", "modality_config", "module_output_name", "unpad_inputs"}
)
"""Settings of a first module with which it still does no more than to call its tokenizer, within `_is_plain`."""


class SentenceTokens:
    """Turns texts, or pairs of texts, into arrays of token ids, with a model's own tokenizer and settings.

    Models whose first module does more with a text than to call its tokenizer (chat templates, routers, bags of words)
    get the texts as they are, under the names `TEXTS`.
    """

    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        cache_dir: str | None = None,
        pairs: bool = False,
        prompt: str | None = None,
        prompt_name: str | None = None,
        max_seq_length: int | None = None,
        trust_remote_code: bool = False,
        handler_name: str = "SentenceTransformerModelHandler",
    ) -> None:
        self.model, self.revision, self.cache_dir, self.pairs = model, revision, cache_dir, pairs
        self.prompt, self.prompt_name, self.max_seq_length = prompt, prompt_name, max_seq_length
        self.trust_remote_code, self.handler_name = trust_remote_code, handler_name
        self.prefix = ""
        """What goes before each text, once it is set up."""
        self._tokenizer: Any = None

    def setup(self) -> None:
        """Load the tokenizer, and nothing else of the model."""
        folder = model_folder(
            self.model, handler_name=self.handler_name, revision=self.revision, cache_dir=self.cache_dir
        )
        self.prefix = prompt_of(folder, self.prompt, self.prompt_name)
        settings = _settings_of_plain(folder, pairs=self.pairs, prefixed=bool(self.prefix))
        if settings is None:
            return
        # First what loads the model: two threads that import one library from two ends can get it half made.
        with loading("sentence-transformers", handler_name=self.handler_name):
            importlib.import_module("sentence_transformers")
        quieten()
        tokenizer = load_tokenizer(
            _first_folder(folder),
            handler_name=self.handler_name,
            trust_remote_code=self.trust_remote_code,
            local_files_only=True,
        )
        if tokenizer.chat_template is None or _modules(folder):
            tokenizer.model_max_length = self.max_seq_length or _longest(folder, settings, tokenizer)
            self._tokenizer = tokenizer

    @property
    def longest(self) -> int | None:
        """At how many tokens texts are cut, once it is set up."""
        return None if self._tokenizer is None else int(self._tokenizer.model_max_length)

    def __call__(self, batch: Any) -> Mapping[str, Any]:
        """Return one array of ids a text, under each of the names by which the model takes them.

        Raises:
            RowError: one of the texts is none.
        """
        columns = texts_of(batch, pairs=self.pairs)
        if self._tokenizer is None:
            return dict(zip(TEXTS, columns, strict=False))
        first = [self.prefix + text for text in columns[0]]
        made = self._tokenizer(first, *columns[1:], truncation="longest_first", return_attention_mask=False)
        return {name: _lists(rows) for name, rows in made.items()}


def texts_of(batch: Any, *, pairs: bool) -> list[list[str]]:
    """Return a batch of any form as one list of texts, or two where `pairs` are wanted.

    >>> texts_of(np.array([["where?", "here"], ["when?", "now"]], dtype=object), pairs=True)
    [['where?', 'when?'], ['here', 'now']]

    Raises:
        PlanError: there are more or fewer columns than that.
        RowError: something else than a text is among them.
    """
    if isinstance(batch, Mapping):
        columns = [list(column) for column in batch.values()]
    elif len(batch) and isinstance(batch[0], (list, tuple, np.ndarray)):
        columns = [list(column) for column in zip(*batch, strict=True)]
    else:
        columns = [list(batch)]
    if len(columns) != 1 + pairs:
        wanted = "two columns of text, such as inputs=['query', 'passage']" if pairs else "one column of text"
        raise PlanError(f"the model takes {wanted}, and was given {len(columns)}")
    for column in columns:
        for text in column:
            if not isinstance(text, str):
                raise RowError(f"a text is needed, and there is {'none' if text is None else type(text).__name__}")
            if (error := surrogate_error(text)) is not None:
                raise error
    return columns


def prompt_of(folder: Path, prompt: str | None, prompt_name: str | None) -> str:
    """Return what goes before each text: as given, by the name of one of the model's prompts, or the model's default.

    Raises:
        ModelLoadError: the model has no prompt of that name.
    """
    if prompt is not None:
        return prompt
    config = read_settings(folder, "config_sentence_transformers.json")
    known = {"query": "", "document": "", **{k: v or "" for k, v in config.get("prompts", {}).items()}}
    name = prompt_name or config.get("default_prompt_name")
    if name is None:
        return ""
    if name not in known:
        raise ModelLoadError(
            f"the model in {folder} has no prompt {name!r};{suggestion(name, known)} Prompts: {', '.join(known)}"
        )
    return str(known[name])


def has_scores(folder: Path) -> bool:
    """Say whether a model can tell how well two texts go together; one of embeddings would be given a random head."""
    if read_settings(folder, "config_sentence_transformers.json").get("model_type") == "CrossEncoder":
        return True
    return _head(_first_folder(folder)).endswith(("ForSequenceClassification", "ForCausalLM"))


def _settings_of_plain(folder: Path, *, pairs: bool, prefixed: bool) -> Mapping[str, Any] | None:
    """Return the settings of a model's first module if it only calls a tokenizer; None if it does more."""
    modules = _modules(folder)
    if not modules:  # a model of transformers; for pairs one with a head, rather than one that says yes or no
        return {} if not pairs or _head(folder).endswith("ForSequenceClassification") else None
    first = modules[0]["type"]
    name = next((path.name for path in sorted(_first_folder(folder).glob("sentence_*_config.json"))), None)
    settings = {} if name is None else read_settings(_first_folder(folder), name)
    plain = (
        first.startswith("sentence_transformers.")
        and first.endswith(".Transformer")
        and set(settings) <= _HARMLESS
        and not settings.get("do_lower_case")
        and settings.get("transformer_task", "feature-extraction") in ("feature-extraction", "sequence-classification")
        and set(settings.get("modality_config", ("text",))) == {"text"}
    )
    if prefixed:  # pooling may have to know where the prompt ends
        pooling = [read_settings(folder / module["path"]) for module in modules[1:]]
        plain = plain and all(config.get("include_prompt", True) for config in pooling)
    return settings if plain else None


def _longest(folder: Path, settings: Mapping[str, Any], tokenizer: Any) -> int:
    """Return at how many tokens the model cuts a text."""
    if settings.get("max_seq_length"):
        return int(settings["max_seq_length"])
    positions = read_settings(_first_folder(folder)).get("max_position_embeddings", -1)
    known = int(tokenizer.model_max_length)
    return known if positions == -1 else min(known, positions)


def _first_folder(folder: Path) -> Path:
    modules = _modules(folder)
    return folder / modules[0]["path"] if modules else folder


def _head(folder: Path) -> str:
    """Return the class of a model of transformers."""
    return str((read_settings(folder).get("architectures") or [""])[0])


def _modules(folder: Path) -> list[dict[str, str]]:
    """Return what a model of sentence-transformers is made of; [] for one of transformers."""
    path = folder / "modules.json"
    found: list[dict[str, str]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return found


def _lists(rows: Sequence[Sequence[int]]) -> pa.Array:
    ends = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    values = np.fromiter((id_ for row in rows for id_ in row), dtype=np.int32, count=int(ends[-1]))
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(values))
