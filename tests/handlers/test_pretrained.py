from __future__ import annotations

import pytest

from headrace.errors import ModelLoadError
from headrace.handlers.pretrained import loading


def test_a_torchvision_of_another_build_is_named_with_what_to_do() -> None:
    words = r"Net: cannot load org/minilm: .*BertModel.*torchvision::nms.*install the torchvision that was built for"
    with pytest.raises(ModelLoadError, match=words), loading("org/minilm", handler_name="Net"):
        try:
            raise RuntimeError("operator torchvision::nms does not exist")
        except RuntimeError as error:
            raise ModuleNotFoundError("Could not import module 'BertModel'") from error
