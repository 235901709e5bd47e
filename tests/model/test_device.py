"""What models say of the device that they are on."""

import pytest

from headrace.model.device import told_device


class device:  # as torch's is called
    def __str__(self) -> str:
        return "cuda:0"


class Module:
    def parameters(self):
        parameter = Odd()
        parameter.device = device()
        yield parameter


class Empty:
    def parameters(self):
        return iter(())


class Odd:
    device = 3


class Session:
    def get_providers(self):
        return ["CPUExecutionProvider", "AzureExecutionProvider"]


class Raising:
    @property
    def device(self):
        raise RuntimeError("no")


class Anything:
    def __getattr__(self, name):
        return self

    def __call__(self):
        return self


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (Module(), "cuda:0"),
        (Empty(), ""),
        (Odd(), ""),
        (Session(), "CPUExecutionProvider"),
        (Raising(), ""),
        (Anything(), ""),
        (str.upper, ""),
        (None, ""),
    ],
)
def test_what_a_model_tells_is_taken_and_all_else_left(model: object, told: str) -> None:
    assert told_device(model) == told
