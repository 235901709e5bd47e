import pickle
import threading

from headrace.engine.processes.remote_errors import pack_error, unpack_error
from headrace.errors import HeadraceError, PlanError, RunError, RunInterrupted, SpecError


def there_and_back(error):
    try:
        raise error
    except BaseException as raised:
        return unpack_error(pickle.loads(pickle.dumps(pack_error(raised))), stage="map_1")


def test_attributes_come_along():
    error = there_and_back(SpecError("p.yaml", ["a", "b"]))
    assert (type(error), error.file, error.problems, str(error)) == (
        SpecError,
        "p.yaml",
        ["a", "b"],
        "p.yaml: a\np.yaml: b",
    )
    assert there_and_back(RunInterrupted("stopped", signal_number=15)).signal_number == 15


def test_attributes_that_cannot_travel_stay_behind():
    error = PlanError("no")
    error.lock, error.row = threading.Lock(), 7
    back = there_and_back(error)
    assert (back.row, hasattr(back, "lock")) == (7, False)


def test_the_cause_tells_where_it_was():
    assert "in there_and_back" in str(there_and_back(PlanError("no")).__cause__)


def test_a_class_that_only_the_worker_knows_becomes_a_run_error():
    class LocalError(HeadraceError):
        pass

    back = there_and_back(LocalError("no luck"))
    assert type(back) is RunError
    assert "no luck" in str(back)


def test_any_other_exception_is_a_run_error_that_asks_for_a_report():
    back = there_and_back(KeyError("x"))
    assert type(back) is RunError
    assert "KeyError: 'x'" in str(back)
    assert "report" in str(back)
