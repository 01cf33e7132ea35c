"""Test accuracy against bytes sent, with compressed consensus and tracked updates; ten agents, one process.

    GOSSAMER_DATA=... python benchmarks/bytes.py [--only compressed tracked] [--quick] [--seeds 5]
        [--datasets cora citeseer pubmed digits] [--out bytes.png] [--cache FOLDER] [--json]

compressed  every way to compress consensus, and plain consensus so rarely that it costs as much as power:1; momentum
tracked     adam with tracked gradients, beside centralised adam, adam with each agent's own, and plain gd

A seed decides split, assignment, weights and dropout; differences are paired over seeds. Bytes are those of rows and
weights of all training steps, evaluations not counted; those of consensus are told with and without peers' headers.
--quick takes digits and two seeds.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from sending import compressed, tracked
from sending.runs import run_all

PARTS = ("compressed", "tracked")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--datasets", nargs="+", choices=list(compressed.LENGTHS), default=list(compressed.LENGTHS))
    parser.add_argument("--out", type=Path, help="plot accuracy against bytes to this PNG")
    parser.add_argument("--cache", type=Path, help="keep finished runs here, so that an interrupted benchmark goes on")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    options = parser.parse_args()
    datasets, seeds = (["digits"], 2) if options.quick else (options.datasets, options.seeds)
    told: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        cache = options.cache or Path(folder)
        if "compressed" in options.only:
            found = run_all(cache, compressed.make_plan(datasets, seeds))
            told["compressed"] = compressed.table(found)
            if options.out:
                compressed.draw(options.out, found)
        if "tracked" in options.only:
            told["tracked"] = tracked.table(run_all(cache, tracked.make_plan(datasets, seeds)))
    if options.json:
        print(json.dumps(told))


if __name__ == "__main__":
    main()
