"""The table of a report: a line per layer, or per pattern with the least free first."""

from tests.core.report.test_memory_report import embedding, layer, report


def test_it_prints_as_a_table() -> None:
    text = str(report(layer("body.0", 4), layer("soft", 2.25)))
    lines = text.splitlines()
    assert lines[0] == "nscl memory of 1 task(s), protecting Adam"
    assert " ".join(lines[1].split()) == "layer kind protected by features free % R condition"
    assert set(lines[2]) == {"─", " "}
    assert " ".join(lines[3].split()) == "body.0 Linear null space 10 4 40.0 0.02 50"
    assert " ".join(lines[4].split()) == "soft Linear null space 10 2.2 22.5 0.02 50"
    assert lines[5].startswith("total")
    assert lines[6] == "statistics of bn moved by 0.5 σ"
    assert "still" not in text


def test_one_total_is_enough_for_one_kind() -> None:
    for only in (layer("a", 1), embedding(3)):
        assert str(report(only)).splitlines()[4].startswith("total")
    assert report(layer("a", 1)).to_dict()["embeddings"] is None


def test_many_layers_are_grouped_and_the_least_free_come_first() -> None:
    queries = [layer(f"encoder.layer.{i}.attention.q", 5) for i in range(20)]
    values = [layer(f"encoder.layer.{i}.attention.v", 6 - (i == 7) * 5.5) for i in range(20)]
    norms = [layer(f"encoder.layer.{i}.norm", 0, "ewc") for i in range(20)]
    lines = str(report(*queries, *norms, *values)).splitlines()
    head = "layers kind protected by number least free % features free % R condition"
    assert " ".join(lines[1].split()) == head
    rows = [" ".join(line.split()) for line in lines[3:7]]
    assert rows[0] == "encoder.layer.*.attention.v Linear null space 20 5.0 200 114.5 57.2 0.02 50"
    assert rows[1] == "encoder.layer.*.attention.q Linear null space 20 50.0 200 100 50.0 0.02 50"
    assert rows[2].startswith("encoder.layer.*.norm Linear ewc 20 0.0 200 0")
    assert rows[3].startswith("total 40 layers null space")
