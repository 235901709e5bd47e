import contextlib
import copy
import dataclasses
import enum
import functools
import io
import logging
import os
import pathlib
import pickle
import re
import socket
import subprocess
import sys
import textwrap
import threading
import weakref

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.plan.fingerprint import Unfingerprintable, fingerprint

# Data


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, 2),
        (1, 1.0),
        (1, True),
        (0, -0.0),
        ("1", 1),
        ("a", b"a"),
        ("", None),
        ([1, 2], [2, 1]),
        ([1, 2], (1, 2)),
        ([[1], 2], [[1, 2]]),
        ({"a": 1}, {"a": 2}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),  # columns come in this order
        ({1, 2}, {1, 3}),
        ({1}, frozenset({1})),
        (np.zeros(4), np.zeros((2, 2))),
        (np.zeros(4, "f4"), np.zeros(4, "i4")),
        (np.float32(1), np.float64(1)),
        (np.array(["a", None], object), np.array(["a", "b"], object)),
        (pa.array([1, 2]), pa.array([1, 3])),
        (pa.array([1], pa.int32()), pa.array([1], pa.int64())),
        (pa.int32(), pa.int64()),
        (pa.table({"a": [1]}), pa.table({"b": [1]})),
        (re.compile("a"), re.compile("a", re.IGNORECASE)),
        (pathlib.Path("a"), pathlib.Path("b")),
        (len, repr),
        (np.mean, np.median),
        (np.log, np.exp),
        (str.upper, str.lower),
        ("a".upper, "b".upper),
        (functools.partial(print, 1), functools.partial(print, 2)),
        (functools.partial(print, sep="a"), functools.partial(print, sep="b")),
        (range(3), range(4)),
        (list[int], list[str]),
    ],
)
def test_what_differs_differs(left, right):
    assert fingerprint(left) != fingerprint(right)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(), inner)
        | st.tuples(inner, inner)
        | st.frozensets(st.integers() | st.text())
    ),
    max_leaves=20,
)


@given(values)
def test_a_copy_is_the_same(value):
    assert fingerprint(pickle.loads(pickle.dumps(value))) == fingerprint(value)


@given(values, values)
def test_different_values_differ(left, right):
    same_text = repr(left) == repr(right)  # of plain values, repr says all there is, save for the order of sets
    if not same_text and "frozenset" not in repr(left):
        assert fingerprint(left) != fingerprint(right)


@given(st.lists(st.text(), unique=True))
def test_sets_have_no_order(items):
    assert fingerprint(set(items)) == fingerprint({*items[::-1]})


def test_arrays_count_by_value_not_by_layout():
    array = np.arange(12).reshape(3, 4)
    assert fingerprint(np.asfortranarray(array)) == fingerprint(array)
    assert fingerprint(np.arange(24).reshape(3, 8)[:, ::2]) == fingerprint(np.arange(24)[::2].reshape(3, 4))


def test_the_padding_of_structured_arrays_does_not_count():
    dtype = np.dtype([("a", "u1"), ("b", "f8")], align=True)
    left, right = (np.frombuffer(bytes([n] * 32), "u1").copy().view(dtype) for n in (0, 255))
    for array in (left, right):
        array["a"], array["b"] = 1, 2.0
    assert left.tobytes() != right.tobytes()
    assert fingerprint(left) == fingerprint(right)


def test_arrow_data_counts_by_value_not_by_chunks():
    whole = pa.table({"a": [1, None, 3], "s": ["x", "y", None]})
    assert fingerprint(pa.concat_tables([whole.slice(0, 1), whole.slice(1)])) == fingerprint(whole)
    assert fingerprint(pa.array([9, 1, 2]).slice(1)) == fingerprint(pa.array([1, 2]))


def test_sharing_within_a_cycle_is_followed():
    def ring(last):
        first = [1]
        first.append([2, first, last])
        return first

    assert fingerprint(ring(3)) == fingerprint(ring(3))
    assert fingerprint(ring(3)) != fingerprint(ring(4))


def test_a_set_of_objects_that_point_back_ends():
    class Node:
        def __init__(self):
            self.neighbours = set()

    left, right = Node(), Node()
    left.neighbours.add(right)
    right.neighbours.add(left)
    assert fingerprint(left) == fingerprint(right)


# Code


def made(source, name="f", **global_values):
    """Make a function or class as if it stood in a file of the user's."""
    namespace = {"__name__": "pipeline", **global_values}
    exec(compile(textwrap.dedent(source), "pipeline.py", "exec"), namespace)
    return namespace[name]


SCORE = """
def f(row, weight=2):
    bias = OFFSET + helper(row["age"])
    try:
        return [x * weight for x in (bias, 1.5)]
    except ValueError:
        return None
"""


def score(source=SCORE, offset=1, helper="def helper(x): return x + 1"):
    namespace = {"__name__": "pipeline", "OFFSET": offset}
    exec(helper, namespace)
    return made(source, OFFSET=offset, helper=namespace["helper"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x * weight", "x + weight"),
        ("1.5", "1.25"),
        ("weight=2", "weight=3"),
        ('"age"', '"spend"'),
        ("OFFSET +", "OFFSET -"),
        ("except ValueError", "except KeyError"),
        ("return None", "return 0"),
        ("(row, weight=2)", "(row, *, weight=2)"),
        ("[x * weight for x in (bias, 1.5)]", "(x * weight for x in (bias, 1.5))"),
        ("    try:\n        return", "    if bias:\n        return [0]\n    try:\n        return"),
        ("def f", "async def f"),
    ],
)
def test_changed_code_is_noticed(old, new):
    assert old in SCORE
    assert fingerprint(score(SCORE.replace(old, new))) != fingerprint(score())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def f", "\n\n\n# About f.\ndef f"),
        ("    bias", '    """Score a row."""\n    bias'),
        ("    bias", "    # first\n\n\n    bias"),
        (
            "[x * weight for x in (bias, 1.5)]",
            "[\n            x * weight  # weighted\n            for x in (bias, 1.5)\n        ]",
        ),
        ("(row, weight=2)", "(row: dict, weight: float = 2) -> list"),
        ("(row, weight=2)", "(\n    row,\n    weight=2,\n)"),
    ],
)
def test_comments_layout_docstrings_and_annotations_do_not_count(old, new):
    source = SCORE.replace(old, new)
    assert source != SCORE
    assert fingerprint(score(source)) == fingerprint(score())


def test_the_name_of_the_file_and_its_module_do_not_count():
    def at(file, module):
        namespace = {"__name__": module, "__file__": file, "OFFSET": 1, "helper": abs}
        exec(compile(SCORE, file, "exec"), namespace)
        return namespace["f"]

    assert fingerprint(at("a.py", "a")) == fingerprint(at("/elsewhere/b.py", "__main__"))


def test_globals_count_recursively():
    assert fingerprint(score(offset=2)) != fingerprint(score())
    assert fingerprint(score(helper="def helper(x): return x + 2")) != fingerprint(score())
    assert fingerprint(score(helper="def helper(x):\n    'Doc.'\n    return x + 1")) == fingerprint(score())


def test_a_global_that_is_not_used_does_not_count():
    source = "OTHER = {}\ndef f(row): return row"
    assert fingerprint(made(source.format(1))) == fingerprint(made(source.format(2)))


def test_a_docstring_that_moves_a_constant_beyond_a_byte():
    jumps = "    while x:\n        x = x - 1\n"
    many = "    y = [" + ", ".join(f"x + {i}.5" for i in range(400)) + "]\n"
    source = "def f(x):\n{doc}" + jumps + many + "    while y:\n        y = None\n    return x\n"
    plain, documented = (made(source.format(doc=doc)) for doc in ("", "    'Docstring.'\n"))
    assert len(plain.__code__.co_code) != len(documented.__code__.co_code)
    assert fingerprint(plain) == fingerprint(documented)


def test_what_is_guarded_counts():
    inside = made("def f(x):\n    try:\n        a(x)\n        b(x)\n    except OSError:\n        c(x)\n")
    outside = made("def f(x):\n    a(x)\n    try:\n        b(x)\n    except OSError:\n        c(x)\n")
    assert fingerprint(inside) != fingerprint(outside)


def closing_over(value):
    def inner(row):
        return row, value

    return inner


def test_closures_count():
    assert fingerprint(closing_over(1)) == fingerprint(closing_over(1))
    assert fingerprint(closing_over(1)) != fingerprint(closing_over(2))


def test_functions_that_call_each_other():
    pair = "def f(x): return g(x - 1) if x else {}\ndef g(x): return f(x - 1) if x else 0"
    assert fingerprint(made(pair.format(1))) == fingerprint(made(pair.format(1)))
    assert fingerprint(made(pair.format(1))) != fingerprint(made(pair.format(2)))


def test_many_functions_that_all_call_each_other_take_no_time():
    names = [f"f{i}" for i in range(40)]
    source = "\n".join(f"def {name}(x): return [{', '.join(names)}]" for name in names)
    assert fingerprint(made(source, "f0")) == fingerprint(made(source, "f0"))


def test_a_decorated_function_counts_with_what_it_wraps():
    source = """
    import contextlib, functools
    def twice(g):
        @functools.wraps(g)
        def wrapper(x): return g(g(x))
        return wrapper
    {decorator}
    def f(x): return x + {n}
    """
    for decorator in ("@twice", "@functools.cache", "@functools.singledispatch", "@contextlib.contextmanager"):
        one, same, two = (made(source.format(decorator=decorator, n=n)) for n in (1, 1, 2))
        assert fingerprint(one) == fingerprint(same), decorator
        assert fingerprint(one) != fingerprint(two), decorator


def test_functions_of_installed_packages_count_by_name_and_version():
    from headrace.plan.origins import version_of

    before = fingerprint(np.mean)
    version_of.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "__version__", "99.0")
        assert fingerprint(np.mean) != before
    version_of.cache_clear()
    assert fingerprint(np.mean) == before


def test_a_logger_does_not_count():
    source = "def f(x):\n    log.info('%s', x)\n    return x"
    a, b = (made(source, log=logging.getLogger(name)) for name in ("a", "b"))
    assert fingerprint(a) == fingerprint(b)


# Modules of the user's own


def write(folder, **modules):
    for name, source in modules.items():
        path = folder / f"{name}.py"
        path.write_text(textwrap.dedent(source))


def fingerprint_in(folder, expression, *, hash_seed="0", code="import pipeline"):
    """Evaluate an expression in a process of its own, whose current folder is `folder`."""
    script = f"import sys; sys.path.insert(0, '')\n{code}\nfrom headrace.plan.fingerprint import fingerprint\n"
    script += f"print(fingerprint({expression}))"
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONDONTWRITEBYTECODE": "1"}
    env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


PIPELINE = """
    import dataclasses, enum, re, numpy as np
    import helpers

    STOP = {"a", "an", "the", "of", "and"}
    WORDS = re.compile(r"\\w+")

    class Lang(enum.Enum):
        EN = "en"
        FI = "fi"

    @dataclasses.dataclass(frozen=True)
    class Settings:
        names: frozenset = frozenset({"x", "y", "z"})
        lang: Lang = Lang.FI
        table: dict = dataclasses.field(default_factory=lambda: {"a": 1})

    class Clean:
        def __init__(self, settings): self.settings = settings; self.weights = np.arange(5)
        def __call__(self, row):
            if row["text"] in {"x", "y", "z", "w"}:
                return helpers.shorten(row)
            return [w for w in WORDS.findall(row["text"]) if w not in STOP]

    step = Clean(Settings())
"""
HELPERS = """
    LIMIT = 10
    UNUSED = open(__file__)
    def shorten(row): return row["text"][:LIMIT]
    def other(): return 1
"""


def test_other_processes_and_hash_seeds_agree(tmp_path):
    write(tmp_path, pipeline=PIPELINE, helpers=HELPERS)
    digests = {fingerprint_in(tmp_path, "pipeline.step", hash_seed=seed) for seed in ("0", "1", "42")}
    assert len(digests) == 1


def test_only_what_is_used_of_a_module_of_the_users_counts(tmp_path):
    write(tmp_path, pipeline=PIPELINE, helpers=HELPERS)
    before = fingerprint_in(tmp_path, "pipeline.step")
    write(tmp_path, helpers="# A comment.\n" + textwrap.dedent(HELPERS).replace("return 1", "return 2"))
    assert fingerprint_in(tmp_path, "pipeline.step") == before
    write(tmp_path, helpers=HELPERS.replace("LIMIT = 10", "LIMIT = 11"))
    assert fingerprint_in(tmp_path, "pipeline.step") != before


def test_a_renamed_file_with_the_same_code_is_the_same(tmp_path):
    write(tmp_path, pipeline=PIPELINE, renamed=PIPELINE, helpers=HELPERS)
    before = fingerprint_in(tmp_path, "pipeline.step")
    assert fingerprint_in(tmp_path, "renamed.step", code="import renamed") == before


def test_a_module_imported_inside_a_function_counts_with_what_it_imports(tmp_path):
    pipeline = "def step(row):\n    import inner\n    return inner.run(row)"
    write(tmp_path, pipeline=pipeline, inner="from deep import run  # here", deep="def run(row): return 1")
    before = fingerprint_in(tmp_path, "pipeline.step")
    write(tmp_path, inner="'''Doc.'''\nfrom deep import run")
    assert fingerprint_in(tmp_path, "pipeline.step") == before
    write(tmp_path, deep="def run(row): return 2")
    assert fingerprint_in(tmp_path, "pipeline.step") != before


def test_nothing_is_imported_by_looking(tmp_path):
    package = tmp_path / "mine"
    package.mkdir()
    write(package, __init__="print('imported')", deep="def run(row): return 1")
    write(tmp_path, pipeline="def step(row):\n    from mine.deep import run\n    return run(row)")
    assert len(fingerprint_in(tmp_path, "pipeline.step")) == 64


def test_relative_imports_inside_a_function(tmp_path):
    package = tmp_path / "mine"
    package.mkdir()
    write(package, __init__="", steps="def step(row):\n    from . import deep\n    return deep.run(row)")
    write(package, deep="def run(row): return 1")
    before = fingerprint_in(tmp_path, "mine.steps.step", code="import mine.steps")
    write(package, deep="def run(row): return 2")
    assert fingerprint_in(tmp_path, "mine.steps.step", code="import mine.steps") != before


# Classes and instances

HANDLER = """
import abc
class Base(abc.ABC):
    scale = 3
    @abc.abstractmethod
    def load_model(self): ...
    @staticmethod
    def twice(x): return x * 2
class f(Base):
    '''Docstring.'''
    def __init__(self, path="a"): self.path = path
    def load_model(self): return super().scale
    @property
    def name(self): return "mine"
    @classmethod
    def make(cls): return cls("b")
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("scale = 3", "scale = 4"),
        ("x * 2", "x * 3"),
        ('return "mine"', 'return "yours"'),
        ('cls("b")', 'cls("c")'),
        ("@staticmethod", "@classmethod"),
        ("class f(Base)", "class f(Base, dict)"),
        ('path="a"', 'path="b"'),
    ],
)
def test_changed_classes_are_noticed(old, new):
    assert old in HANDLER
    changed, before = made(HANDLER.replace(old, new)), made(HANDLER)
    assert fingerprint(changed) != fingerprint(before)
    assert fingerprint(changed()) != fingerprint(before())


def test_documentation_of_classes_does_not_count():
    changed = HANDLER.replace("'''Docstring.'''", "'''Better.'''\n    # a comment").replace(
        "name(self)", "name(self) -> str"
    )
    assert fingerprint(made(changed)) == fingerprint(made(HANDLER))


def test_pickling_leaves_no_mark():
    class Handler:
        pass

    before = fingerprint(Handler())
    cloudpickle.dumps(Handler())
    copy.copy(Handler())
    assert fingerprint(Handler()) == before


def test_state_counts_in_any_order_of_assignment():
    cls = made(HANDLER)
    left, right, other = cls(), cls(), cls()
    left.a, left.b = 1, 2
    right.b, right.a = 2, 1
    other.a, other.b = 1, 3
    assert fingerprint(left) == fingerprint(right)
    assert fingerprint(left) != fingerprint(other)


def test_slots_and_methods_count():
    class Slotted:
        __slots__ = ("a",)

        def __init__(self, a):
            self.a = a

        def run(self):
            return self.a

    assert fingerprint(Slotted(1)) != fingerprint(Slotted(2))
    assert fingerprint(Slotted(1).run) == fingerprint(Slotted(1).run)
    assert fingerprint(Slotted(1).run) != fingerprint(Slotted(2).run)


def test_getstate_decides_what_counts():
    class Lang:
        def __init__(self, code):
            self.code, self.lock = code, threading.Lock()

        def __getstate__(self):
            return {"code": self.code}

    assert fingerprint(Lang("fi")) == fingerprint(Lang("fi"))
    assert fingerprint(Lang("fi")) != fingerprint(Lang("sv"))


def test_an_object_may_say_itself_what_counts():
    class Model:
        def __init__(self, path, content):
            self.path, self.content = path, content

        def __headrace_fingerprint__(self):
            return self.content

    assert fingerprint(Model("a", 1)) == fingerprint(Model("b", 1))
    assert fingerprint(Model("a", 1)) != fingerprint(Model("a", 2))


def test_enums_dataclasses_and_subclasses_of_containers():
    class Colour(enum.Enum):
        RED = 1
        BLUE = 2

    @dataclasses.dataclass(slots=True)
    class Point:
        x: int
        y: list = dataclasses.field(default_factory=list)

    class Names(set):
        pass

    assert fingerprint(Colour.RED) != fingerprint(Colour.BLUE)
    assert fingerprint(Point(1)) == fingerprint(Point(1))
    assert fingerprint(Point(1)) != fingerprint(Point(1, [2]))
    assert fingerprint(Names("ab")) == fingerprint(Names("ba"))
    assert fingerprint(Names("ab")) != fingerprint(set("ab"))


# What has no content

lock = threading.Lock()


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: io.BytesIO(b"a"), "an open file"),
        (lambda: pathlib.Path(os.devnull).open(), "an open file"),  # noqa: SIM115 - closed below
        (lambda: socket.socket(), "a socket"),
        (lambda: threading.Lock(), "a lock"),
        (lambda: threading.RLock(), "a lock"),
        (lambda: threading.Event(), "a lock"),
        (lambda: threading.Thread(), "a thread"),
        (lambda: (i for i in []), "a generator"),
        (lambda: weakref.ref(Unfingerprintable), "a weak reference"),
        (lambda: memoryview(b"a"), "a builtins.memoryview, which has no content"),
    ],
)
def test_what_has_no_content_is_refused_by_kind(make, kind):
    thing = make()
    with contextlib.closing(thing) if hasattr(thing, "close") else contextlib.nullcontext():
        with pytest.raises(Unfingerprintable) as refused:
            fingerprint(thing)
        assert str(refused.value).startswith(f"it is {kind}")


def test_a_refusal_tells_the_path():
    class Lang:
        def __init__(self, guard):
            self.tools = {"guard": [guard]}

    with pytest.raises(Unfingerprintable) as refused:
        fingerprint(Lang(lock))
    assert str(refused.value) == "item 0 in item 'guard' in attribute tools in Lang is a lock"
    with pytest.raises(Unfingerprintable, match=r"^global lock in function .*<lambda> is a lock$"):
        fingerprint(lambda row: lock)
    with pytest.raises(Unfingerprintable, match=r"^variable value in function .*inner is a lock$"):
        fingerprint(closing_over(lock))


def test_a_hook_that_fails_is_a_refusal():
    class Model:
        def __headrace_fingerprint__(self):
            raise KeyError("no path")

    with pytest.raises(Unfingerprintable, match="KeyError: 'no path'"):
        fingerprint(Model())


def test_endless_nesting_is_a_refusal():
    nested = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(Unfingerprintable, match="nested too deeply"):
        fingerprint(nested)


# Models


def test_scikit_learn_estimators():
    linear_model = pytest.importorskip("sklearn.linear_model")
    ensemble = pytest.importorskip("sklearn.ensemble")
    x = np.random.default_rng(0).normal(size=(100, 3))
    for cls in (linear_model.LogisticRegression, functools.partial(ensemble.RandomForestClassifier, 5, random_state=0)):
        one, same, other = cls().fit(x, x[:, 0] > 0), cls().fit(x, x[:, 0] > 0), cls().fit(x, x[:, 1] > 0)
        assert fingerprint(one) == fingerprint(same)
        assert fingerprint(one) == fingerprint(pickle.loads(pickle.dumps(one)))
        assert fingerprint(one) != fingerprint(other)


def test_data_frames():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None]})
    assert fingerprint(frame) == fingerprint(pickle.loads(pickle.dumps(frame)))
    assert fingerprint(frame) != fingerprint(frame.assign(a=[1, 3]))


@pytest.mark.heavy
def test_torch_modules():
    torch = pytest.importorskip("torch")
    namespace = {"torch": torch}

    def net(seed, forward="return torch.relu(self.layer(x))"):
        source = f"""
        class f(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 2)
            def forward(self, x): {forward}
        """
        torch.manual_seed(seed)
        return made(source, **namespace)()

    assert fingerprint(net(0)) == fingerprint(net(0))
    assert fingerprint(net(0)) != fingerprint(net(1))
    assert fingerprint(net(0)) != fingerprint(net(0, "return self.layer(x)"))
    assert fingerprint(net(0).to(torch.bfloat16)) != fingerprint(net(0))


# Files
