"""Finding runs by folder and pattern, with a word for everything that is none."""

from nscl.results import find_runs


def test_a_run_a_folder_of_runs_and_a_pattern(tmp_path, make_run):
    runs = sorted((make_run(seed=seed) for seed in range(3)), key=lambda run: run.name)
    other = make_run(method="lwf")
    root = tmp_path / "runs"

    def names(*paths):
        found = find_runs(paths)
        assert found.skipped == []
        return [run.name for run in found.runs]

    everything = sorted(run.name for run in [*runs, other])
    assert names(other.path) == [other.name]
    assert names(root) == names(str(root)) == everything
    assert names(root / "*-ewc-*") == [run.name for run in runs]
    assert names(tmp_path / "r*") == everything
    assert names(other.path, root, f"{root}/../runs") == [other.name, *(r.name for r in runs)]


def test_relative_paths_and_patterns(tmp_path, make_run, monkeypatch):
    run = make_run()
    monkeypatch.chdir(tmp_path)
    for path in ("runs", "runs/*", "*/split-*", f"runs/{run.name}"):
        assert [found.name for found in find_runs([path]).runs] == [run.name]


def test_what_is_no_run_is_listed_with_its_reason(tmp_path, make_run):
    good, broken, edited = make_run(), make_run(seed=1), make_run(seed=2)
    root = tmp_path / "runs"
    broken.config_path.write_text("{")
    edited.config_path.write_text('{"schema": 1}')
    (root / "notes.txt").write_text("hello")
    (root / "other").mkdir()
    (root / ".hidden").mkdir()
    (tmp_path / "empty").mkdir()
    found = find_runs([root, tmp_path / "empty", tmp_path / "gone", tmp_path / "a**b"])
    assert [run.name for run in found.runs] == [good.name]
    reasons = {skipped.path.name: skipped.reason for skipped in found.skipped}
    assert reasons.pop(broken.name).endswith("start the run again")
    assert "config.json is incomplete: it lacks benchmark" in reasons.pop(edited.name)
    assert reasons == {
        "notes.txt": "is a file, not the folder of a run",
        "other": "has no config.json",
        "empty": "has no config.json",
        "gone": "does not exist",
        "a**b": "does not exist",
    }


def test_unfinished_runs_are_runs(make_run, make_result):
    done, going = make_run(), make_run(seed=1)
    done.write_result(make_result(directory=done.name))
    found = {run.name: run.is_finished for run in find_runs([done.path.parent]).runs}
    assert found == {done.name: True, going.name: False}
