"""A model that is a small text file, and a way to publish versions of it in step with the batches of a run."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headrace as hr

if TYPE_CHECKING:
    from collections.abc import Iterator

END = "!"
WAIT_SECS = 60.0
"""After so long a test fails in place of hanging."""


class Text(hr.ModelHandler[str]):
    """Answers each row with the text of its file, which ends with "!" where it is whole.

    Some texts misbehave: "raises", "short", "memory", "number", "exit".
    """

    def __init__(self, path: str) -> None:
        self.path = str(path)

    def load_model(self) -> str:
        text = Path(self.path).read_text()
        if not text.endswith(END):
            raise ValueError(f"{text!r} breaks off")
        return text.removesuffix(END)

    def run_inference(self, batch: Any, model: str) -> list[Any]:
        match model.partition(" ")[0]:
            case "raises":
                raise ValueError("no such layer")
            case "short":
                return [model for _ in batch][1:]
            case "memory":
                raise MemoryError("too large")
            case "number":
                return [7 for _ in batch]
            case "exit":
                os._exit(3)
        return [model for _ in batch]

    @property
    def model_id(self) -> str:
        return Path(self.path).name

    def model_files(self) -> list[str]:
        return [self.path]


class Outcomes(logging.Handler):
    """Hears from the log what became of versions."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.changed = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        if "answers from row" in record.msg or "is rejected" in record.msg:
            with self.changed:
                self.count += 1
                self.changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.count >= count, WAIT_SECS), f"waited for change {count}"

    def __enter__(self) -> Outcomes:
        logger = logging.getLogger("headrace.model")
        self._level = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger("headrace.model")
        logger.removeHandler(self)
        logger.setLevel(self._level)


class Paced(Text):
    """At each batch behind the first, does the next of some things, and answers when what it waits for has come about.

    So each thing is done while a batch is under way, which is answered by the version that it began with.
    """

    def __init__(self, path: str, script: Iterator[None], outcomes: Outcomes) -> None:
        super().__init__(path)
        self.script, self.outcomes = script, outcomes
        self.turn = threading.Lock()
        self.begun = False

    def run_inference(self, batch: Any, model: str) -> list[Any]:
        if not threading.current_thread().name.endswith("updates"):  # no trial
            if not self.begun:
                self.begun = True  # and those that come after can be tried with its rows
            elif self.turn.acquire(blocking=False):
                try:
                    next(self.script, None)
                finally:
                    self.turn.release()
            else:  # other replicas do not run far ahead, and never wait for long: their version may have to leave
                with self.outcomes.changed:
                    self.outcomes.changed.wait(0.02)
        return super().run_inference(batch, model)
