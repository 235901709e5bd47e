"""Where models are put, on machines that nobody here has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PlanError
from headrace.model.inventory import Gpu, Inventory
from headrace.model.placement import Ask, Placed, plan_placement

ROOMY = 2**50


def machine(*names: str) -> Inventory:
    return Inventory(gpus=tuple(Gpu(index=n, uuid=f"GPU-{n}", name=name) for n, name in enumerate(names)))


def indices(placed: Placed) -> list[tuple[int, ...]]:
    return [tuple(gpu.index for gpu in place) for place in placed.places]


def placed(asks: list[Ask], inventory: Inventory, memory_bytes: int = ROOMY) -> dict[str, list[tuple[int, ...]]]:
    found = plan_placement(asks, inventory, memory_bytes=memory_bytes)
    return {step: indices(one) for step, one in found.items()}


def test_a_model_has_one_copy_on_each_gpu_unless_it_says_how_many() -> None:
    four = machine(*["L4"] * 4)
    assert placed([Ask(step="a", num_gpus=1, copies=None)], four) == {"a": [(0,), (1,), (2,), (3,)]}
    assert placed([Ask(step="a", num_gpus=1, copies=2)], four) == {"a": [(0,), (1,)]}
    assert placed([Ask(step="a", num_gpus=2, copies=None)], four) == {"a": [(0, 1), (2, 3)]}
    assert placed([Ask(step="a", num_gpus=0.25, copies=None)], machine("L4", "L4")) == {"a": [(0,), (1,)]}
    assert placed([Ask(step="a", num_gpus=0.25, copies=8)], machine("L4", "L4")) == {"a": [(0,), (1,)] * 4}


def test_models_that_need_a_part_share_a_gpu_and_what_is_left_is_shared_out_in_turn() -> None:
    asks = [Ask(step="a", num_gpus=0.5, copies=None), Ask(step="b", num_gpus=0.5, copies=None)]
    assert placed(asks, machine("L4")) == {"a": [(0,)], "b": [(0,)]}
    whole = [Ask(step="a", num_gpus=1, copies=None), Ask(step="b", num_gpus=1, copies=None)]
    assert placed(whole, machine(*["L4"] * 5)) == {"a": [(0,), (2,), (4,)], "b": [(1,), (3,)]}


def test_thirds_make_a_whole() -> None:
    assert placed([Ask(step="a", num_gpus=1 / 3, copies=3)], machine("L4")) == {"a": [(0,)] * 3}


def test_where_parts_kept_apart_leave_no_room_they_are_put_together() -> None:
    asks = [Ask(step="a", num_gpus=0.5, accelerator="l4"), Ask(step="b", num_gpus=0.5, accelerator="l4")]
    asks += [Ask(step="c", num_gpus=1, copies=1)]
    assert placed(asks, machine("L4", "L4", "T4")) == {"a": [(0,)], "b": [(1,)], "c": [(2,)]}
    asks += [Ask(step="d", num_gpus=1, copies=1)]
    assert placed(asks, machine("L4", "L4", "T4")) == {"a": [(0,)], "b": [(0,)], "c": [(1,)], "d": [(2,)]}


def test_a_kind_that_is_asked_for_is_kept_for_who_asks_for_it() -> None:
    asks = [Ask(step="any", num_gpus=1), Ask(step="large", num_gpus=0.5, accelerator="nvidia-a100")]
    assert placed(asks, machine("NVIDIA A100-SXM4-80GB", "NVIDIA L4")) == {"any": [(1,)], "large": [(0,)]}


def test_processes_that_ask_for_nothing_take_turns_where_the_least_is_promised() -> None:
    asks = [Ask(step="a", num_gpus=1), Ask(step="b", copies=3)]
    assert placed(asks, machine("L4", "L4", "L4")) == {"a": [(0,)], "b": [(1,), (2,), (1,)]}
    assert placed(asks, machine("L4")) == {"a": [(0,)], "b": [(0,)] * 3}  # better a shared one than none
    assert placed([Ask(step="b", copies=None)], machine("L4", "L4")) == {"b": [(0,), (1,)]}
    assert placed([Ask(step="b", copies=3)], machine()) == {}


def test_a_model_that_asks_for_no_gpu_sees_none() -> None:
    found = plan_placement([Ask(step="a", num_gpus=0)], machine("L4"), memory_bytes=ROOMY)
    assert found["a"].environment(0) == {"CUDA_VISIBLE_DEVICES": ""}
    assert str(found["a"]) == "no GPU"


def test_a_process_sees_the_gpus_of_its_copy_by_names_that_nothing_can_count_differently() -> None:
    found = plan_placement([Ask(step="a", num_gpus=2, copies=2)], machine(*["L4"] * 4), memory_bytes=ROOMY)["a"]
    assert [found.environment(n)["CUDA_VISIBLE_DEVICES"] for n in (0, 1, 2)] == [
        "GPU-0,GPU-1",
        "GPU-2,GPU-3",
        "GPU-0,GPU-1",
    ]
    assert str(found) == "GPU 0 (L4) + GPU 1 (L4), GPU 2 (L4) + GPU 3 (L4)"


def test_no_more_copies_are_made_than_have_memory() -> None:
    asks = [Ask(step="a", num_gpus=1, copies=None, min_ram_bytes=400)]
    assert placed(asks, machine(*["L4"] * 4), memory_bytes=1000) == {"a": [(0,), (1,)]}


@pytest.mark.parametrize(
    ("asks", "inventory", "message"),
    [
        ([Ask(step="a", num_gpus=1)], machine(), "step 'a' asks for num_gpus=1, and no NVIDIA GPU is found.*leave num"),
        (
            [Ask(step="a", num_gpus=1, accelerator="h100")],
            machine("L4"),
            r"num_gpus=1 of kind 'h100', and there is none of that kind; here: GPU 0 \(L4\)",
        ),
        ([Ask(step="a", num_gpus=2)], machine("L4"), "num_gpus=2 for one copy of its model, and there is 1 GPU;"),
        (
            [Ask(step="a", num_gpus=2, accelerator="l4")],
            machine("L4", "T4"),
            "and there is 1 GPU; others are of another kind",
        ),
        (
            [Ask(step="a", num_gpus=1), Ask(step="b", num_gpus=0.5, copies=2)],
            machine("L4"),
            r"1 × num_gpus=1 for step 'a', 2 × num_gpus=0.5 for step 'b', and there is 1 GPU: GPU 0.*num_gpus=0.5",
        ),
        (
            [Ask(step="a", min_ram_bytes=2**50, copies=2)],
            machine(),
            r"min_ram= asks for 2251.8 TB for step 'a', and this run has 1125.9 TB for models",
        ),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(asks: list[Ask], inventory: Inventory, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        placed(asks, inventory)


KINDS = ("L4", "A100")
SHARES = st.sampled_from([0, 0.1, 0.25, 1 / 3, 0.5, 0.7, 1, 2, 3])
ASKS = st.lists(
    st.builds(
        Ask,
        step=st.just(""),
        num_gpus=st.one_of(st.none(), SHARES),
        accelerator=st.one_of(st.none(), st.sampled_from(KINDS)),
        min_ram_bytes=st.integers(0, 40),
        copies=st.one_of(st.none(), st.integers(1, 3)),
        processes=st.booleans(),
    ),
    max_size=4,
).map(lambda asks: [Ask(**{**fields(ask), "step": f"s{n}"}) for n, ask in enumerate(asks)])
MACHINES = st.lists(st.sampled_from(KINDS), max_size=6).map(lambda names: machine(*names))


def fields(ask: Ask) -> dict[str, object]:
    return {name: getattr(ask, name) for name in Ask.__dataclass_fields__}


@given(ASKS, MACHINES)
def test_no_gpu_is_promised_twice_and_everybody_has_what_was_asked_for(asks: list[Ask], inventory: Inventory) -> None:
    try:
        found = plan_placement(asks, inventory, memory_bytes=100)
    except PlanError:
        return
    used = dict.fromkeys(inventory.gpus, 0.0)
    ram = 0
    for ask in asks:
        places = found[ask.step].places if ask.step in found else ()
        if ask.num_gpus is None:
            ram += ask.min_ram_bytes * (ask.copies or 1)
            assert bool(places) == (ask.processes and bool(inventory.gpus))
            continue
        ram += ask.min_ram_bytes * len(places)
        assert len(places) == ask.copies if ask.copies else places
        for place in places:
            assert len(place) == (max(1, int(ask.num_gpus)) if ask.num_gpus else 0)
            assert len(set(place)) == len(place)
            assert all(ask.accelerator is None or gpu.is_kind(ask.accelerator) for gpu in place)
            for gpu in place:
                used[gpu] += min(1, ask.num_gpus)
        if ask.copies is None and ask.num_gpus:
            assert len({gpu for place in places for gpu in place}) == sum(map(len, places)), "one copy to a GPU"
    assert all(share <= 1 + 1e-4 for share in used.values())
    assert ram <= 100


@given(ASKS, MACHINES)
def test_equal_asks_are_placed_equally(asks: list[Ask], inventory: Inventory) -> None:
    def outcome() -> object:
        try:
            return plan_placement(asks, inventory, memory_bytes=100)
        except PlanError as error:
            return str(error)

    assert outcome() == outcome()


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(1, 8))
def test_whole_gpus_are_refused_only_where_there_are_too_few(sizes: list[int], gpus: int) -> None:
    asks = [Ask(step=f"s{n}", num_gpus=size, copies=None) for n, size in enumerate(sizes)]
    fits = sum(sizes) <= gpus
    try:
        found = placed(asks, machine(*["L4"] * gpus))
    except PlanError:
        assert not fits
        return
    assert fits
    free = gpus - sum(len(place) for places in found.values() for place in places)
    assert free < min(sizes), "what is left would do for another copy"


@given(st.integers(1, 16), st.integers(1, 4), st.sampled_from([2, 3, 4, 5, 8]))
def test_equal_parts_are_refused_only_where_there_are_too_few(copies: int, gpus: int, parts: int) -> None:
    asks = [Ask(step="a", num_gpus=1 / parts, copies=copies)]
    if copies > gpus * parts:
        with pytest.raises(PlanError, match="the models ask for"):
            placed(asks, machine(*["L4"] * gpus))
        return
    found = placed(asks, machine(*["L4"] * gpus))["a"]
    counts = [found.count((gpu,)) for gpu in range(gpus)]
    assert max(counts) - min(counts) <= 1, "copies keep apart"
