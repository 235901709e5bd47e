"""What makes side inputs of a dataset, and steps that use them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from headrace.dataset.consume import Consumption
from headrace.dataset.inference import check_trouble
from headrace.dataset.scope import step_name
from headrace.dataset.side_input import SideInput
from headrace.errors import PlanError
from headrace.model.flat_vectors import FlatVectors
from headrace.model.vector_index import IndexBuilder, Search
from headrace.plan.graph import AUTOMATIC
from headrace.plan.nodes import Broadcast
from headrace.plan.numbers import whole_number
from headrace.plan.steps import Step

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    import pyarrow as pa

    from headrace.model.vector_index import Vectors
    from headrace.model.vectors import Metric
    from headrace.plan.steps import Isolation, OnError


TRAIN_ROWS = 262_144
"""Vectors that an approximate index learns from, unless told otherwise."""


class Broadcasting(Consumption):
    """The part of `Dataset` that hands one dataset whole to the steps of another."""

    def broadcast(
        self,
        build: Callable[[pa.Table], Any] | None = None,
        *,
        version: str | None = None,
        name: str | None = None,
    ) -> SideInput:
        """Make these rows a side input: all there before the steps begin that name it in `side_inputs=`.

        The steps get the rows as an Arrow table; or what `build`, called once a run with that table, returns of it. The
        table lies in a file that is mapped, block by block as the rows came, so that it may be larger than memory. All
        processes of the machine share it, as they do the arrays (numpy, Arrow, pandas) and the indexes of Faiss in what
        `build` returns, which cannot be written to. The rest each process has for itself; what cannot be pickled each
        builds for itself. The report says how much is shared.

        A side input is made anew for each run, before its first stage begins, also where a job goes on. A row of it
        that fails ends the run. Its rows, its steps and `build` (or `version`, which stands for that) are part of the
        job.

        >>> import headrace as hr
        >>> countries = hr.from_items([{"code": "fi", "name": "Finland"}, {"code": "de", "name": "Germany"}])
        >>> def by_code(table):
        ...     return dict(zip(table["code"].to_pylist(), table["name"].to_pylist()))
        >>> names = countries.broadcast(by_code)
        >>> orders = hr.from_items([{"id": 1, "code": "de"}])
        >>> orders.map(lambda row, names: row | {"country": names[row["code"]]}, side_inputs={"names": names}).take(1)
        [{'id': 1, 'code': 'de', 'country': 'Germany'}]
        """
        if build is not None and not callable(build):
            raise PlanError(f"broadcast() takes a function from table to object, not {type(build).__name__}")
        return SideInput(Broadcast(name=step_name(name, "broadcast"), upstream=self.node, build=build, version=version))

    def build_index(
        self,
        column: str,
        *,
        key: str | None = None,
        metric: Metric = "cosine",
        kind: Literal["flat", "faiss"] = "flat",
        factory: str = "Flat",
        parameters: str | None = None,
        train_rows: int = TRAIN_ROWS,
        name: str | None = None,
    ) -> SideInput:
        """Make an index of a column of vectors, for `search` of another dataset (or of this one).

        It is a side input, see `broadcast`: built once a run, and in memory once a machine. Functions that name it in
        `side_inputs=` get a `VectorIndex`. A row without a vector, or with one of another length, ends the run.

        Args:
            column: lists of numbers, all of one length.
            key: column that names a row in the answers; None: its number, from 0.
            metric: "cosine", "l2" (Euclidean distance) or "inner_product".
            kind: "flat" compares with every vector, in numpy; "faiss" is faster, and may be approximate (needs the
                extra `faiss`).
            factory: what Faiss is to build, in its own words: "Flat" is exact; "IVF1024,Flat", "HNSW32",
                "IVF4096,PQ48", … are approximate.
            parameters: how Faiss is to search, likewise: "nprobe=16", "efSearch=64".
            train_rows: vectors that an approximate index learns from, drawn from all.
            name: the side input's name in plans, reports and messages.

        >>> import headrace as hr
        >>> fruit = hr.from_items([{"name": "fig", "place": [0.0, 1.0]}, {"name": "plum", "place": [1.0, 0.0]}])
        >>> index = fruit.build_index("place", key="name")
        >>> asked = hr.from_items([{"place": [2.0, 0.5]}]).search(index, column="place", k=1, distances=None)
        >>> asked.take(1)
        [{'place': [2.0, 0.5], 'neighbors': ['plum']}]
        """
        if metric not in ("cosine", "l2", "inner_product"):
            raise PlanError(f"metric is {metric!r}; use 'cosine', 'l2' or 'inner_product'")
        train_rows = whole_number("train_rows", train_rows, of="vectors")
        make = _index_maker(kind, factory=factory, parameters=parameters, train_rows=train_rows)
        needed = self.select(*dict.fromkeys([column] if key is None else [column, key]))
        builder = IndexBuilder(make, column=column, key=key, metric=metric)
        return needed.broadcast(builder, name=name if name is not None else "build_index" + AUTOMATIC)

    def search(
        self,
        index: SideInput,
        *,
        column: str,
        k: int = 10,
        output: str = "neighbors",
        distances: str | None = "distances",
        batch_size: int | None = None,
        concurrency: int | None = None,
        isolation: Isolation = "auto",
        on_error: OnError | None = None,
        name: str | None = None,
    ) -> Self:
        """Add the `k` nearest neighbors of each row's vector in an index that `build_index` made, nearest first.

        `output` gets the list of their keys, and `distances` (None: left out) that of their distances: 1 − cosine,
        Euclidean distances, or the products themselves with "inner_product". Lists are shorter where there are fewer.
        A row without a vector of the index's length fails. See `map` for the other options.
        """
        if not isinstance(index, SideInput) or not isinstance(index.node.build, IndexBuilder):
            raise PlanError(f"search() takes what build_index() returns, not {index!r}")
        k = whole_number("k", k, of="neighbors")
        batch_size = whole_number("batch_size", batch_size, optional=True)
        check_trouble(on_error, None, None)
        step = Step(
            name=step_name(name, "search"),
            kind="map_batches",
            function=Search(column=column, k=k, output=output, distances=distances),
            side_inputs=(("index", index.node),),
            batch_format="pyarrow",
            batch_size=batch_size,
            row_wise=True,
            on_error=on_error,
        )
        return self._with_step(step, concurrency, isolation)


def _index_maker(kind: str, **settings: Any) -> Callable[..., Vectors]:
    if kind == "flat":
        return FlatVectors.of
    if kind != "faiss":
        raise PlanError(f"kind is {kind!r}; use 'flat' or 'faiss'")
    from headrace.handlers.faiss import FaissVectors, require_faiss

    require_faiss()
    return partial(FaissVectors.of, **settings)
