from __future__ import annotations

import threading

import pytest

import headrace as hr
from headrace.handlers import torch_cores
from headrace.handlers.huggingface import HuggingFaceModelHandler
from headrace.handlers.sentence_transformers import SentenceTransformerModelHandler
from headrace.handlers.timm import TimmModelHandler
from headrace.handlers.torch import TorchModelHandler
from headrace.handlers.torch_cores import TorchHandler, on_cores, sharing_cores
from headrace.plan.nodes import RunInference

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.heavy


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    monkeypatch.setattr(torch_cores, "given_threads", lambda: 4)
    monkeypatch.setattr(torch_cores, "_ACCELERATORS", ())
    monkeypatch.setattr(torch_cores.sys, "platform", "linux")


@pytest.fixture
def settings(tmp_path):
    def write(text):
        (tmp_path / "config.json").write_text(text)
        return str(tmp_path)

    return write


def test_one_batch_a_core_where_models_are_computed_on_cpus(monkeypatch, tmp_path):
    assert (on_cores("cpu"), on_cores("auto"), on_cores("cuda:1"), on_cores("mps")) == (4, 4, 1, 1)
    (tmp_path / "gpu").touch()
    monkeypatch.setattr(torch_cores, "_ACCELERATORS", (str(tmp_path / "gpu"),))
    assert (on_cores("cpu"), on_cores("auto")) == (4, 1)


def test_never_so_many_that_memory_would_go_for_batches(monkeypatch):
    monkeypatch.setattr(torch_cores, "given_threads", lambda: 64)
    assert on_cores("cpu") == 8


@pytest.mark.parametrize(
    ("config", "options", "batches"),
    [
        ('{"architectures": ["BertForSequenceClassification"]}', {}, 4),
        ('{"architectures": ["BertModel"]}', {"device": "cuda"}, 1),
        ('{"architectures": ["BertModel"]}', {"trust_remote_code": True}, 1),
        ('{"architectures": ["BertModel"]}', {"inference_fn": print}, 1),
        ('{"architectures": ["BertModel"]}', {"auto_class": "AutoModelForCausalLM"}, 1),
        ('{"architectures": ["BertModel"], "rope_scaling": {"rope_type": "dynamic"}}', {}, 1),
        ('{"architectures": ["LlamaForCausalLM"]}', {}, 1),
        ("{}", {}, 1),
    ],
)
def test_models_that_threads_may_ask_at_once(settings, config, options, batches):
    handler = HuggingFaceModelHandler(settings(config), **options)
    assert handler.batches_at_once() == batches


def test_what_other_handlers_say():
    assert SentenceTransformerModelHandler("org/some").batches_at_once() == 4
    assert SentenceTransformerModelHandler("org/some", tokenize_ahead=False).batches_at_once() == 1
    assert TimmModelHandler("resnet18").batches_at_once() == 4
    assert TorchModelHandler(torch.nn.Identity).batches_at_once() == 1


def test_cores_are_shared_out_and_given_back():
    before = torch.get_num_threads()
    found = {}

    def use(number, batches, entered, leave):
        with sharing_cores(batches):
            found[number] = torch.get_num_threads()
            entered.set()
            leave.wait(10)

    ends = []
    for number, batches in enumerate((2, 4, 3)):
        entered, leave = threading.Event(), threading.Event()
        thread = threading.Thread(target=use, args=(number, batches, entered, leave))
        thread.start()
        assert entered.wait(10)
        ends.append((thread, leave))
    for thread, leave in ends:
        leave.set()
        thread.join()
    assert found == {0: 2, 1: 1, 2: 1}
    seen = []
    for function in (lambda: seen.append(torch.get_num_threads()),) * 2:
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()
    assert seen == [before, before]
    assert torch.get_num_threads() == before


class Telling(TorchHandler):
    """Answers with the threads that PyTorch has, once as many calls are under way as there are replicas."""

    def __init__(self, at_once, reads=True):
        self.device, self.reads, self.together = "cpu", reads, threading.Barrier(at_once)

    @property
    def only_reads(self):
        return self.reads

    def load_model(self):
        return None

    def run_inference(self, batch, model):
        self.together.wait(30)
        return [torch.get_num_threads()] * len(batch)


@pytest.mark.parametrize(
    ("reads", "options", "at_once", "threads"),
    [(True, {}, 4, 1), (False, {}, 1, None), (False, {"concurrency": 2}, 2, 2)],
)
def test_in_a_run(reads, options, at_once, threads):
    before = torch.get_num_threads()
    rows = hr.range(at_once * 2).run_inference(
        Telling(at_once, reads), inputs="id", batch_size=2, version="1", **options
    )
    assert {row["prediction"] for row in rows.take(at_once * 2)} == {threads or before}
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("options", "batches"),
    [
        ({}, 4),
        ({"concurrency": 1}, 1),
        ({"isolation": "process"}, 1),
        ({"timeout_secs": 5}, 1),
        ({"model_copies": 1}, 1),
    ],
)
def test_only_what_nobody_said_is_decided(options, batches):
    node = hr.range(1).run_inference(Telling(1), inputs="id", **options).node
    assert isinstance(node, RunInference)
    assert node.concurrency == batches
