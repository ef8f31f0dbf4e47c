"""What a run ran on, without naming anybody; and the room without torch."""

import doctest
import getpass
import json
import os
import platform
import socket
from importlib.metadata import version

from nscl.results import environment, fingerprint, naming, run_directory


def test_versions_are_the_installed_ones():
    told = fingerprint()
    assert told["python"] == platform.python_version()
    assert told["torch"] == version("torch")
    assert told["numpy"] == version("numpy")
    assert told["cpus"] == os.cpu_count()
    assert isinstance(told["processor"], str)
    assert told["processor"]
    assert json.loads(json.dumps(told)) == told


def test_nobody_and_no_place_is_named():
    words = json.dumps(fingerprint()).replace('"', " ").replace(",", " ").split()
    for private in (socket.gethostname(), getpass.getuser()):
        assert private not in words
    assert not any("/" in word for word in words)


def test_results_are_read_and_written_without_torch(tmp_path, make_run, make_result, start):
    run = make_run()
    run.write_result(make_result(directory=run.name))
    code = (
        "import sys\n"
        "import nscl.results as r, nscl.results.spectra as s\n"
        "assert 'numpy' not in sys.modules\n"
        "r.fingerprint()\n"
        "s.write(sys.argv[2], {0: {'fc': {'eigenvalues': [1.0], 'weights': [0.0]}}})\n"
        "print(r.find_runs([sys.argv[1]]).runs[0].result().acc, 'torch' in sys.modules)\n"
    )
    said, trouble = start(code, run.path, tmp_path / "s.npz").communicate(timeout=30)
    assert said.split() == [str(make_result().acc), "False"], trouble


def test_examples_in_the_documentation_run():
    for module in (environment, naming, run_directory):
        failed, tried = doctest.testmod(module)
        assert tried > 0
        assert failed == 0
