"""The published facts are well formed, and what is fetched is found where it was put."""

from pathlib import Path

from nscl.data.disk.canonical import CIFAR100, DATASETS


def test_the_facts_are_well_formed() -> None:
    for dataset in DATASETS.values():
        assert len(dataset.mean) == len(dataset.std)
        sums = [item.checksum for item in dataset.downloads]
        sums += [form.checksum for form in dataset.forms if form.checksum]
        sums += [checksum for form in dataset.forms for _, checksum in form.files if checksum]
        assert all(len(value) in (32, 64) and int(value, 16) for value in sums)
        for item in dataset.downloads:
            # What is fetched must be something that is found.
            places = {str(Path(f.path, n)) for f in dataset.forms for n, _ in f.files}
            assert item.path in places | {form.path for form in dataset.forms}


def test_a_form_is_shown_as_people_would_look_for_it() -> None:
    folder, archive = CIFAR100.forms
    assert str(folder) == "cifar-100-python/{train,test,meta}"
    assert str(archive) == "cifar-100-python.tar.gz"


def test_every_data_set_is_known_by_its_own_name() -> None:
    assert all(dataset.name == name for name, dataset in DATASETS.items())
    assert {name for name, dataset in DATASETS.items() if not dataset.mean} == {
        "clinc150",
        "banking77",
    }  # texts
