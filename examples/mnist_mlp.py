"""Trains a fully connected network on MNIST, or on scikit-learn's digits, and tests it."""

from __future__ import annotations

from collections.abc import Sequence

import common
import deep

import alpha
from alpha import datasets, nn, optim


def make_parser() -> common.Parser:
    """The command line."""
    parser = common.Parser(__doc__ or "")
    deep.add_digits(parser)
    group = parser.add_argument_group("network and training")
    group.add_argument(
        "--hidden", metavar="N", type=common.positive_int, nargs="+", default=[512, 256],
        help="units of each hidden layer (default: 512 256)",
    )  # fmt: skip
    group.add_argument(
        "--dropout", metavar="P", type=common.non_negative, default=0.2, help="of hidden units (default: 0.2)"
    )
    group.add_argument("--epochs", metavar="N", type=common.positive_int, default=10, help="(default: 10)")
    group.add_argument("--batch-size", metavar="N", type=common.positive_int, default=128, help="(default: 128)")
    group.add_argument("--lr", metavar="RATE", type=common.non_negative, default=1e-3, help="Adam's (default: 0.001)")
    group.add_argument("--seed", metavar="N", type=common.seed, default=0, help="of all that is random (default: 0)")
    parser.add_engine()
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Trains and tests; returns the exit code."""
    options = make_parser().parse_args(argv)
    common.use_engine(vars(options))
    alpha.manual_seed(options.seed)
    train, test = deep.load_digits(options.dataset, options.data)
    inputs = train.images[0].size
    net = nn.models.MLP([inputs, *options.hidden, len(train.classes)], dropout=options.dropout)
    optimizer = optim.Adam(net.parameters(), lr=options.lr)
    batches = datasets.DataLoader(train, options.batch_size, shuffle=True)
    for epoch in range(1, options.epochs + 1):
        title = f"epoch {epoch}/{options.epochs}"
        with common.bar(len(train), title) as progress:
            loss = deep.train_epoch(net, optimizer, batches, progress)
        print(f"{title}: loss {loss:.4f}", flush=True)
    common.print_accuracy(*common.test(net, test, options.batch_size))
    return 0


if __name__ == "__main__":
    common.run(main)
