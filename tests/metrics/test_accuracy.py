"""The accuracy matrix against slow definitions and the sanity rows of the method specification."""

import dataclasses
import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nscl.errors import NsclError
from nscl.metrics import AccuracyMatrix, MetricError

percent = st.floats(0, 100, allow_nan=False)


@st.composite
def matrices(draw: st.DrawFn, *, full: bool = False) -> list[list[float | None]]:
    tasks = draw(st.integers(1, 7))
    upper = percent if full else st.none() | percent
    return [
        [draw(percent if j <= i else upper) for j in range(draw(st.integers(i + 1, tasks)))]
        if not full
        else [draw(percent) for _ in range(tasks)]
        for i in range(tasks)
    ]


def exact(rows, i, j):
    return Fraction(rows[i][j])


def test_sanity_row_27():
    matrix = AccuracyMatrix([[80, None], [70, 90]])
    assert (matrix.acc, matrix.bwt, matrix.forgetting) == (80, -10, 10)


def test_sanity_row_28():
    matrix = AccuracyMatrix([[80], [85, 90], [75, 88, 70]])
    assert matrix.acc == pytest.approx(77.667, abs=5e-4)
    assert matrix.bwt == -3.5
    assert matrix.forgetting == 6
    assert matrix.learning_accuracy == 80


@given(matrices())
def test_figures_equal_the_definitions(rows):
    matrix, last = AccuracyMatrix(rows), len(rows) - 1
    acc = sum(exact(rows, last, j) for j in range(last + 1)) / (last + 1)
    learning = sum(exact(rows, j, j) for j in range(last + 1)) / (last + 1)
    assert matrix.acc == pytest.approx(float(acc), abs=1e-12)
    assert matrix.learning_accuracy == pytest.approx(float(learning), abs=1e-12)
    if last == 0:
        assert matrix.bwt == matrix.forgetting == 0
        return
    bwt, forgetting = Fraction(0), Fraction(0)
    for j in range(last):
        bwt += exact(rows, last, j) - exact(rows, j, j)
        tested = [Fraction(row[j]) for row in rows[:last] if len(row) > j and row[j] is not None]
        forgetting += max(tested) - exact(rows, last, j)
    assert matrix.bwt == pytest.approx(float(bwt / last), abs=1e-12)
    assert matrix.forgetting == pytest.approx(float(forgetting / last), abs=1e-12)


@given(matrices())
def test_forgetting_is_never_below_minus_bwt(rows):
    matrix = AccuracyMatrix(rows)
    assert matrix.forgetting >= -matrix.bwt - 1e-9


@given(matrices())
def test_the_official_running_figures_are_those_of_the_prefixes(rows):
    """Per-task lines of the authors' code sum over j <= i and divide by i - 1: the same numbers."""
    matrix = AccuracyMatrix(rows)
    for i in range(matrix.tasks):
        prefix = matrix.prefix(i + 1)
        assert prefix.acc == matrix.acc_after(i)
        if i:
            official = sum(rows[i][j] - rows[j][j] for j in range(i + 1)) / i
            assert prefix.bwt == pytest.approx(official, abs=1e-9)


@given(matrices(full=True), st.data())
def test_fwt_equals_its_definition(rows, data):
    tasks = len(rows)
    baseline = data.draw(st.lists(percent, min_size=tasks, max_size=tasks + 2))
    want = sum(Fraction(rows[j - 1][j]) - Fraction(baseline[j]) for j in range(1, tasks))
    want = float(want / (tasks - 1)) if tasks > 1 else 0.0
    assert AccuracyMatrix(rows).fwt(baseline) == pytest.approx(want, abs=1e-12)


def test_fwt_without_the_entries_it_needs_names_what_is_missing():
    matrix = AccuracyMatrix([[80, None], [70, 90]])
    with pytest.raises(MetricError, match=r"R\[0\]\[1\] is missing"):
        matrix.fwt([10, 10])
    with pytest.raises(MetricError, match="baseline for 2 tasks, got 1"):
        matrix.fwt([10])


@given(matrices())
def test_json_round_trip_is_exact(rows):
    matrix = AccuracyMatrix(rows)
    assert AccuracyMatrix.from_dict(json.loads(json.dumps(matrix.to_dict()))) == matrix


@given(matrices())
def test_a_run_grows_row_by_row(rows):
    matrix = AccuracyMatrix()
    for row in rows:
        matrix = matrix.with_row(row)
    assert matrix == AccuracyMatrix(rows)
    assert hash(matrix) == hash(AccuracyMatrix(rows))


def test_a_curve_follows_one_task_to_the_end():
    matrix = AccuracyMatrix([[80, 11], [85, 90], [75, 88, 70]])
    assert matrix.curve(1) == (90, 88)


def test_it_cannot_be_changed():
    matrix = AccuracyMatrix([[80]])
    with pytest.raises(dataclasses.FrozenInstanceError):
        matrix.rows = ()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[80], [70]], "row 1 has 1 accuracies"),
        ([[None]], r"R\[0\]\[0\] must be an accuracy in percent, got None"),
        ([[80], [None, 90]], r"R\[1\]\[0\]"),
        ([[100.5]], "from 0 to 100, got 100.5"),
        ([[-1]], "from 0 to 100"),
        ([[float("nan")]], "from 0 to 100, got nan"),
        ([[True]], "in percent, got True"),
        ([["80"]], "in percent, got '80'"),
    ],
)
def test_impossible_rows_are_refused(rows, message):
    with pytest.raises(MetricError, match=message):
        AccuracyMatrix(rows)


@pytest.mark.parametrize("record", [{}, {"rows": 3}, {"rows": [3]}, {"rows": [], "acc": 1}, [1]])
def test_foreign_records_are_refused(record):
    with pytest.raises(MetricError, match="not an accuracy matrix"):
        AccuracyMatrix.from_dict(record)


@pytest.mark.parametrize("name", ["acc", "bwt", "forgetting", "learning_accuracy"])
def test_an_empty_matrix_has_no_figures(name):
    with pytest.raises(NsclError, match="no task has been trained yet"):
        getattr(AccuracyMatrix(), name)


def test_tasks_outside_the_matrix_are_named():
    matrix = AccuracyMatrix([[80]])
    for ask in (lambda: matrix.acc_after(1), lambda: matrix.acc_after(-1), lambda: matrix.curve(1)):
        with pytest.raises(MetricError, match="has not been trained"):
            ask()
    with pytest.raises(MetricError, match="no state after 2 tasks"):
        matrix.prefix(2)
