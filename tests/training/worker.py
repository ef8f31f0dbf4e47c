"""Started by torchrun: one small run, its accuracies printed by the first rank."""

import json
import os
import sys
from pathlib import Path

from nscl.training.experiment import run
from tests.runs import small

if __name__ == "__main__":
    result = run(small(sys.argv[1], Path(sys.argv[2]), model={"name": "mlp"}))
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps(result.accuracy.to_dict()))
