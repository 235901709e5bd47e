"""The handler contract: how a framework loads a model and answers a batch."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

ModelT = TypeVar("ModelT")


class ModelHandler(ABC, Generic[ModelT]):
    """Loads a model and runs it over batches. Two methods are enough:

    >>> class Upper(ModelHandler):
    ...     def load_model(self): return str.upper
    ...     def run_inference(self, batch, model, inference_args=None): return [model(r["text"]) for r in batch]
    >>> Upper().run_inference([{"text": "a"}], str.upper)
    ['A']

    Answers are paired with rows **by position**: return exactly one a row, in the order of the batch. A list, a numpy
    array, a torch tensor or an Arrow array whose first dimension is the rows will do, or a dict of such arrays (a tuple
    of arrays is refused: it may mean either). To fail one row, put `headrace.RowError("why")` in its place. The count
    is checked, and a batch with the wrong number of answers is tried again in halves until the rows to blame stand
    alone; if none is to blame (a sum over the batch looks like an answer where a batch is one row), all its rows fail.
    A batch in which one row got two answers and another none has the right count, and nothing can notice it.

    The number of rows in a batch changes nothing. What a model squeezes for a batch of one is that row's answer: a bare
    number always, an array if batches of several rows came before and tell the shape.

    What a batch is: without `inputs=` a list of dicts; with `inputs="col"` an array of that column; with a list of
    columns a matrix; with a mapping a dict of arrays. `input_format` may ask for "pandas" or "pyarrow" instead.
    """

    input_format: str = "auto"
    """"auto" (as above), "pandas" or "pyarrow"."""

    padded: bool = True
    """Whether the rows of a batch are padded to the heaviest of them; says something only beside `weigh`."""

    model_bytes: int | None = None
    """How much memory the loaded model takes, where you know it: measured or not, it counts for no less."""

    @abstractmethod
    def load_model(self) -> ModelT:
        """Load and return the model; called once a host, in the thread or process that will run it."""

    @abstractmethod
    def run_inference(self, batch: Any, model: ModelT, inference_args: Mapping[str, Any] | None = None) -> Any:
        """Answer a batch of at least one row. `inference_args` may be left out of your signature if you take none."""

    @property
    def model_id(self) -> str:
        """What the `model_id` column says; by default the class name."""
        return type(self).__name__

    def batches_at_once(self) -> int:
        """Return how many batches at once suit the model, where it shares this process and the user names no number.

        More than 1 is for models that threads may ask at the same time. Called when the pipeline is written.
        """
        return 1

    def sharing_cores(self, batches: int) -> AbstractContextManager[None]:
        """Keep the calls of this thread to their share of the cores, while `batches` threads ask the model at once."""
        return nullcontext()

    def unload(self, model: ModelT) -> None:
        """Free what the model holds beyond memory; called once when its host closes."""

    def model_files(self) -> Sequence[str]:
        """List the files (paths or URLs) the model is made of; their content is part of the job's identity."""
        return ()

    def with_model(self, path: str) -> ModelHandler[ModelT]:
        """Return this handler for another version of its model, which lies at a path or URL; loads nothing.

        That is how models are changed while a run goes on (`run_inference(watch=…)`). As it is it suits handlers whose
        `model_files` are one, and which keep that in one attribute; others say here what a version is made of.

        Raises:
            PlanError: the handler has no such file.
        """
        files = [str(file) for file in self.model_files()]
        this: Any = self
        known = [field.name for field in fields(this)] if is_dataclass(this) else [*getattr(this, "__dict__", ())]
        names = [name for name in known if str(getattr(this, name)) in files]
        if len(files) != 1 or len(names) != 1:
            held = f"has {len(files)} model files in {len(names)} attributes" if files else "names no model files"
            raise PlanError(
                f"the model of {type(self).__name__} cannot be changed while a run goes on: it {held}; give it a method"
                " with_model(path) that returns the handler of another version"
            )
        made: ModelHandler[ModelT] = (replace if is_dataclass(this) else changed)(this, **{names[0]: path})
        return made

    def check(self) -> None:
        """Raise a clear error if the handler cannot work here (missing file, package, device); loads nothing.

        Called when the plan is checked, before any data is read.
        """

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise a clear error if columns of these names are not what the model takes.

        Called behind `check`, where the names are known before any data is read: those that `inputs=` gives as a list
        or as the keys of a mapping, else all columns. A model file may be opened to know what it wants.
        """

    def check_model(self, model: ModelT, columns: Sequence[str]) -> None:
        """Raise a clear error if a loaded model does not take columns of these names.

        Called once a model is loaded, before its first batch, where `inputs=` is a list or a mapping: for what can be
        known of a model only when it is loaded.
        """

    def preload(self) -> None:
        """Import what `load_model` will need, in a thread, while the plan is still being checked; load nothing.

        Called only where there is input. Errors are ignored here: `load_model` will meet and explain them.
        """

    @property
    def weighs(self) -> bool:
        """Whether `weigh` says anything; by default where a handler has its own."""
        return type(self).weigh is not ModelHandler.weigh

    def weigh(self, batch: Any) -> Any:
        """Return one number for each row of a batch: how long it is (`padded`), or how heavy.

        Called without a model, in the process that reads, for many rows at a time: leave out what is expensive. A row
        that cannot be weighed weighs nothing, and is left to `run_inference` to fail.
        """
        return None

    def preparer(self) -> Callable[[Any], Mapping[str, Any]] | None:
        """Return what makes this handler's inputs ready on CPUs, in a step in front of the model; None: nothing does.

        Tokenising, decoding and resizing go there, since they then run beside the model, in worker processes where that
        pays, rather than in its turn. What is returned is called with what `run_inference` would get, for many rows at
        a time, and returns a mapping from names to one value a row: a numpy array (n, …), a list of n arrays of any
        lengths or shapes, an Arrow array. A `RowError` in a row's place fails that row. `run_inference` and `weigh`
        then get a dict of arrays by these names: (n, …) where all rows have one shape, else n arrays as objects.

        It is made when the pipeline is written, and has to be picklable, and light: what is heavy is loaded in its
        `setup()`, called once a replica, as is its `close()`. With an attribute `native = True` it says that it spends
        its time in native code that lets go of the interpreter lock, so that threads will do. Called by hand,
        `run_inference` should take both: what the preparer makes, and what it is made of.
        """
        return None

    def default_inputs(self) -> Sequence[str] | str | None:
        """Name the input columns to take when the user names none; None gives rows as dicts."""
        return None


HandlerT = TypeVar("HandlerT", bound=ModelHandler[Any])


def changed(handler: HandlerT, **attributes: Any) -> HandlerT:
    """Return a copy of a handler with other attributes."""
    other = copy.copy(handler)
    other.__dict__.update(attributes)
    return other


@dataclass(frozen=True, slots=True)
class PredictionResult:
    """An answer together with what it answers, as Beam's users know it; handlers may return these.

    >>> PredictionResult(example={"x": 1}, inference=0.5).inference
    0.5
    """

    example: Any
    inference: Any
    model_id: str | None = None


def knows_columns(handler: ModelHandler[Any], check: str) -> bool:
    """Say whether what `check` (a method's name) knows of columns goes for the handler's `run_inference` too.

    It does not where a class behind it has a `run_inference` of its own, which may take other columns.
    """
    kinds = type(handler).__mro__
    first = {name: next(i for i, kind in enumerate(kinds) if name in vars(kind)) for name in (check, "run_inference")}
    return first[check] <= first["run_inference"]


def accepts_inference_args(handler: ModelHandler[Any]) -> bool:
    """Say whether `run_inference` takes a third argument (or `**kwargs`)."""
    parameters = list(inspect.signature(handler.run_inference).parameters.values())
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) or p.name == "inference_args" for p in parameters):
        return True
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) >= 3
