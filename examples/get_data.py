"""Finds a data set, downloads it where it is absent, and checks it; exit code 3 if it cannot be had."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import common

from alpha.datasets.files import Unavailable
from alpha.errors import DataError

NOT_TO_BE_HAD = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Looks in the places that the training script looks in; returns the exit code."""
    parser = common.Parser(__doc__ or "")
    parser.add_argument("dataset", choices=common.DATASETS, help="the data set")
    parser.add_argument("--data", metavar="DIR", help="the folder it lies in (default: $ALPHA_DATA, then ./data)")
    options = parser.parse_args(argv)
    try:
        parts = [common.make_dataset(options.dataset, options.data, train) for train in (True, False)]
    except DataError as error:
        if options.debug or not isinstance(error.__cause__, Unavailable):
            raise
        print(f"{parser.prog}: error: {common.one_line(error)}", file=sys.stderr)
        return NOT_TO_BE_HAD
    print(f"{options.dataset}: {len(parts[0])} training and {len(parts[1])} test images")
    return 0


if __name__ == "__main__":
    common.run(main)
