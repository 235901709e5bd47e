from __future__ import annotations

import pytest

from headrace.cli.flags import in_flags, speaking_in_flags
from headrace.errors import AnswerError


@pytest.mark.parametrize(
    ("python", "flags"),
    [
        ("pass dtypes={'v': 'string'}, or type_conflicts='text'", "pass --dtype v=string, or --read 'type_conflicts=\"text\"'"),
        ("pass delimiter=';', or column_names=['a;b']", "pass --read 'delimiter=\";\"', or --read 'column_names=[\"a;b\"]'"),
        ("inputs={'a': 'your column', …}", "--inputs 'a=YOUR COLUMN,…'"),
        ("name those to take with inputs=", "name those to take with --inputs"),
        ('such as output="prediction"', "such as --output-column prediction"),
        ("pass cache=PredictionCache(…), for durability='row'", "pass --cache FOLDER, for --durability row"),
        ("memory_limit is 1.0 MB, but", "--memory-limit is 1.0 MB, but"),
        ("leave cache= and durability= out", "leave --cache and --durability out"),
        ("leave memory_budget= out, or use key=", "leave --memory-budget out, or use --key"),
        ("mode='all'; leave isolation='thread' out", "--mode all; leave --isolation thread out"),
        ("large_model=True is for one; pass version=, and", "--large-model is for one; pass --model-version, and"),
        ("asks for num_gpus=0.5, and; leave num_gpus= and accelerator='l4' out", "asks for --num-gpus 0.5, and; leave --num-gpus and --accelerator l4 out"),
        ("min_ram= asks for 3.0 GB; pass a larger memory_limit=, or fewer model_copies=", "--min-ram asks for 3.0 GB; pass a larger --memory-limit, or fewer --model-copies"),
        ("nothing to put in other words: a == b", "nothing to put in other words: a == b"),
    ],
)  # fmt: skip
def test_advice_in_flags(python: str, flags: str) -> None:
    assert in_flags(python) == flags


def test_an_error_keeps_its_kind_and_attributes() -> None:
    error = AnswerError("pass on_error='null'")
    error.count = 3
    with pytest.raises(AnswerError, match="^pass --on-error null$") as caught, speaking_in_flags():
        raise error
    assert caught.value.count == 3
