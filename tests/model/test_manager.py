from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ModelTooLargeError
from headrace.model.manager import Decision, ModelManager, Verdict

WAIT = Decision(Verdict.WAIT)


def come(manager: ModelManager, name: str, nbytes: int | None = None) -> None:
    """Have a model loaded that there is room for, and leave it idle."""
    assert manager.ask(name).verdict is Verdict.LOAD
    assert manager.loaded(name, nbytes, lease=True) == ()
    manager.release(name)


def test_a_model_is_loaded_once_and_leased_to_many() -> None:
    manager = ModelManager(1_000, sizes={"a": 600})
    come(manager, "a")
    assert [manager.ask("a").verdict for _ in range(2)] == [Verdict.LEASED] * 2
    statistics = manager.statistics()
    assert (statistics.loads, statistics.hits, statistics.nbytes, statistics.copies) == (1, 2, 600, 1)


def test_several_are_loaded_at_once_where_they_fit() -> None:
    manager = ModelManager(1_000, sizes={"a": 400, "b": 400, "c": 400})
    assert [manager.ask(name).verdict for name in "abc"] == [Verdict.LOAD, Verdict.LOAD, Verdict.WAIT]
    assert manager.used_bytes == 800


def test_the_one_that_was_wanted_longest_ago_leaves() -> None:
    manager = ModelManager(900, sizes=dict.fromkeys("abcd", 300))
    for name in "abc":
        come(manager, name)
    manager.want(["a"])
    assert manager.victims("d") == ("b",)
    assert manager.ask("d") == Decision(Verdict.WAIT, ("b",))
    manager.left("b")
    assert manager.ask("d").verdict is Verdict.LOAD
    assert manager.present == ("a", "c", "d")


def test_a_large_model_puts_out_no_more_than_it_has_to() -> None:
    manager = ModelManager(1_000, sizes={"a": 200, "b": 300, "c": 400, "large": 500})
    for name in "abc":
        come(manager, name)
    assert manager.victims("large") == ("a", "b")


def test_one_at_work_leaves_after_its_last_lease_and_gets_no_more() -> None:
    manager = ModelManager(1_000, sizes={"a": 600, "b": 600})
    come(manager, "a")
    assert [manager.ask("a").verdict for _ in range(2)] == [Verdict.LEASED] * 2
    assert manager.ask("b") == WAIT
    assert manager.ask("a") == WAIT, "else those who wait for room might wait for ever"
    assert manager.release("a") == ()
    assert manager.release("a") == ("a",)
    assert manager.ask("b") == WAIT
    manager.left("a")
    assert manager.ask("b").verdict is Verdict.LOAD


def test_one_that_is_expected_to_be_used_stays_until_it_was() -> None:
    manager = ModelManager(1_000, sizes={"a": 600, "b": 600})
    come(manager, "a")
    manager.expect("a")
    assert manager.prefetch("b") == WAIT
    assert manager.ask("b") == WAIT
    assert manager.ask("a") == WAIT
    assert manager.ask("a", expected=True).verdict is Verdict.LEASED
    assert manager.met("a") == ()
    assert manager.release("a") == ("a",)
    assert manager.ask("a", expected=True) == WAIT, "it is being unloaded"


def test_an_expected_use_that_is_given_up_holds_nobody_back() -> None:
    manager = ModelManager(1_000, sizes={"a": 600, "b": 600})
    come(manager, "a")
    manager.expect("a")
    assert manager.ask("b") == WAIT
    assert manager.met("a") == ("a",)


def test_who_waits_for_room_gets_it_before_others() -> None:
    manager = ModelManager(1_000, sizes={"a": 600, "large": 900, "b": 300})
    come(manager, "a")
    manager.ask("a")
    assert manager.ask("large") == WAIT
    assert manager.ask("b") == WAIT, "it would fit, and the large one would wait for ever"
    assert manager.release("a") == ("a",)
    manager.left("a")
    assert [manager.ask(name).verdict for name in ("b", "large")] == [Verdict.WAIT, Verdict.LOAD]


def test_one_larger_than_the_budget_is_refused_with_the_numbers_and_puts_nobody_out() -> None:
    manager = ModelManager(1_000_000, sizes={"a": 600_000, "huge": 5_000_000})
    come(manager, "a")
    with pytest.raises(ModelTooLargeError, match=r"'huge' is said to take 5\.0 MB, .* is 1\.0 MB"):
        manager.ask("huge")
    assert manager.victims("huge") == ()
    assert manager.ask("a").verdict is Verdict.LEASED


def test_a_model_of_unknown_size_is_taken_for_the_largest_known_and_learnt() -> None:
    manager = ModelManager(1_000)
    assert manager.ask("a").verdict is Verdict.LOAD
    assert manager.ask("b").verdict is Verdict.WAIT, "the first may need all of it"
    manager.loaded("a", 300)
    assert manager.size_of("b") == 300
    come(manager, "b", 500)
    assert manager.used_bytes == 800
    assert manager.size_of("c") == 500


def test_a_declared_size_counts_though_less_is_measured() -> None:
    manager = ModelManager(1_000, sizes={"a": 600, "b": 600})
    assert manager.ask("a").verdict is Verdict.LOAD
    manager.loaded("a", 70, lease=True)
    manager.measured("a", 80)
    assert manager.used_bytes == manager.size_of("a") == 600
    assert manager.ask("b") == WAIT
    manager.measured("a", 700)
    assert manager.used_bytes == 700, "what is measured counts where it is more"


def test_a_model_that_grows_puts_out_idle_ones() -> None:
    manager = ModelManager(1_000, sizes={"a": 400, "b": 400})
    come(manager, "a")
    come(manager, "b")
    assert manager.ask("b").verdict is Verdict.LEASED
    assert manager.measured("b", 700) == ("a",)
    assert manager.size_of("b") == 700


def test_a_load_that_outgrows_the_room_beside_those_at_work_is_ended_and_comes_again() -> None:
    manager = ModelManager(1_000, sizes={"a": 400})
    come(manager, "a")
    manager.ask("a")
    assert manager.ask("b").verdict is Verdict.LOAD
    assert manager.measured("b", 500) == ()
    assert manager.measured("b", 700) == ("b",)
    manager.failed("b")
    assert manager.ask("b") == WAIT
    assert manager.release("a") == ("a",)
    manager.left("a")
    assert manager.ask("b").verdict is Verdict.LOAD
    assert manager.loaded("b", 750) == ()


def test_a_model_that_proves_too_large_leaves_and_is_refused_from_then_on() -> None:
    manager = ModelManager(1_000)
    assert manager.ask("a").verdict is Verdict.LOAD
    assert manager.measured("a", 1_200) == ("a",)
    manager.failed("a")
    with pytest.raises(ModelTooLargeError, match=r"takes 1\.2 kB"):
        manager.ask("a")
    come(manager, "b", 500)
    assert manager.ask("b").verdict is Verdict.LEASED
    assert manager.measured("b", 1_100) == ()
    assert manager.release("b") == ("b",)


def test_the_next_model_is_fetched_where_nobody_wanted_leaves_for_it() -> None:
    manager = ModelManager(1_000, sizes=dict.fromkeys("abcd", 400))
    come(manager, "a")
    assert manager.prefetch("b").verdict is Verdict.LOAD
    manager.loaded("b")
    assert manager.prefetch("c", wanted={"a", "b"}) == WAIT
    assert manager.prefetch("c", wanted={"b"}) == Decision(Verdict.WAIT, ("a",))
    manager.left("a")
    assert manager.ask("c").verdict is Verdict.LOAD
    manager.loaded("c")
    assert manager.prefetch("d") == WAIT, "neither has been used yet"


@st.composite
def sizes_and_acts(draw: st.DrawFn) -> tuple[int, dict[str, int], list[tuple[str, str]]]:
    budget = draw(st.integers(50, 200))
    sizes = draw(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, budget), min_size=1))
    acts = st.tuples(
        st.sampled_from(["ask", "release", "loaded", "prefetch", "want", "expect"]), st.sampled_from(sorted(sizes))
    )
    return budget, sizes, draw(st.lists(acts, max_size=80))


@given(sizes_and_acts())
def test_the_budget_holds_the_leased_stay_and_everybody_gets_a_turn(
    case: tuple[int, dict[str, int], list[tuple[str, str]]],
) -> None:
    budget, sizes, acts = case
    manager = ModelManager(budget, sizes=sizes)
    leases: dict[str, int] = dict.fromkeys(sizes, 0)
    loading: list[str] = []
    waiting: list[str] = []
    expecting: list[str] = []

    def leave(names: tuple[str, ...]) -> None:
        for name in names:
            assert leases[name] == 0
            manager.left(name)

    def ask(name: str) -> None:
        expected = name in expecting
        decision = manager.ask(name, expected=expected)
        leave(decision.leave)
        if decision.verdict is Verdict.LEASED and expected:
            expecting.remove(name)
            leases[name] += 1  # as the lease says
            leave(manager.met(name))
            leases[name] -= 1
        if decision.verdict is Verdict.LEASED:
            leases[name] += 1
        elif decision.verdict is Verdict.LOAD:
            loading.append(name)
        elif name not in waiting:
            waiting.append(name)
        if decision.verdict is not Verdict.WAIT and name in waiting:
            waiting.remove(name)

    def finish(name: str) -> None:
        loading.remove(name)
        leave(manager.loaded(name, lease=True))
        leases[name] += 1
        if name in expecting:
            expecting.remove(name)
            leave(manager.met(name))

    def release(name: str) -> None:
        leases[name] -= 1
        leave(manager.release(name))

    for act, name in acts:
        if act == "ask":
            ask(name)
        elif act == "release" and leases[name]:
            release(name)
        elif act == "loaded" and name in loading:
            finish(name)
        elif act == "expect" and name not in expecting:
            manager.expect(name)
            expecting.append(name)
        elif act == "want":
            manager.want([name])
        elif act == "prefetch":
            decision = manager.prefetch(name, wanted={n for n in sizes if leases[n]})
            leave(decision.leave)
            if decision.verdict is Verdict.LOAD:
                loading.append(name)
            elif decision.leave:
                waiting.append(name)
        assert manager.used_bytes <= budget
        assert all(name in manager.present for name in sizes if leases[name])

    for _ in range(4 * len(sizes) + len(acts)):  # whoever has a lease gives it back; then all that wait have a turn
        for name in [name for name in sizes if leases[name]]:
            release(name)
        for name in list(loading):
            finish(name)
        for name in dict.fromkeys([*waiting, *expecting]):
            ask(name)
        assert manager.used_bytes <= budget
    assert not waiting
    assert not expecting
