"""Devices and dtypes by name, and arrays on their way. What is CUDA's own needs a GPU, and is skipped elsewhere."""

import numpy as np
import pytest

from headrace.errors import PlanError
from headrace.handlers.torch_devices import device_of, dtype_of, settle, stream_of_thread, tensor_on, tensors_on
from headrace.model.collation import pad

pytestmark = pytest.mark.heavy

DTYPES = ["u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "?"]


def test_devices_and_dtypes_are_found_by_name_and_others_refused_in_words() -> None:
    import torch

    assert device_of("cpu", needed_by="Net") == torch.device("cpu")
    assert device_of("auto", needed_by="Net").type in ("cuda", "mps", "cpu")
    assert dtype_of("bfloat16", needed_by="Net") is dtype_of("torch.bfloat16", needed_by="Net") is torch.bfloat16
    with pytest.raises(PlanError, match=r"Net: there is no device 'gpu'; use 'auto'"):
        device_of("gpu", needed_by="Net")
    with pytest.raises(PlanError, match=r"Net: 'float33' is no dtype"):
        dtype_of("float33", needed_by="Net")
    if not torch.cuda.is_available():
        with pytest.raises(PlanError, match=r"device='cuda:3', but PyTorch finds no CUDA"):
            device_of("cuda:3", needed_by="Net")


def test_a_gpu_that_is_not_there_is_told_beside_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_of("cuda:1", needed_by="Net").index == 1
    with pytest.raises(PlanError, match=r"Net: device='cuda:2', but PyTorch finds 2 GPUs here, counted from cuda:0"):
        device_of("cuda:2", needed_by="Net")


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_what_they_were_on_any_device(dtype: str) -> None:
    import torch

    device = device_of("auto", needed_by="Net")
    settle(device)
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    frozen = array.copy()
    frozen.flags.writeable = False
    views = {"whole": array, "frozen": frozen, "strided": array[:, ::2], "backwards": array[::-1]}
    with stream_of_thread(device):
        tensors = tensors_on(device, views)
        wide = tensor_on(device, array, torch.float64)
    for name, tensor in tensors.items():
        assert tensor.device.type == device.type
        np.testing.assert_array_equal(tensor.cpu().numpy(), views[name])
    assert wide.cpu().tolist() == array.astype("f8").tolist()
    assert tensor_on(device, array, torch.int16).dtype == torch.int16


def test_on_cuda_a_thread_has_one_stream_and_waits_for_it() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA here")
    device = device_of("cuda", needed_by="Net")
    with stream_of_thread(device):
        first = torch.cuda.current_stream()
        large = tensor_on(device, np.ones((4096, 4096), np.float32))
        answer = large @ large
    assert first.query(), "what was asked for on the stream is done"
    assert first != torch.cuda.current_stream()
    assert float(answer[0, 0].cpu()) == 4096
    with stream_of_thread(device):
        assert torch.cuda.current_stream() == first


def test_tensors_are_padded_as_arrays_are() -> None:
    import torch

    padded, mask = pad([torch.tensor([1, 2, 3], dtype=torch.int32), torch.tensor([4], dtype=torch.int32)], side="left")
    assert padded.tolist() == [[1, 2, 3], [0, 0, 4]]
    assert padded.dtype == np.int32
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]
