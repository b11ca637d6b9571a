"""Readers of files under random corruption: what becomes of them.

Each case changes one file of a reader: flipped bytes, a cut, a part removed or repeated, a value
replaced. A case passes if it ends with an error of gpgc_dask or with a result of the right kind.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from common import Section, parser

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.fuzzing import READERS, run_cases  # noqa: E402

SMOKE = 20


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--cases", type=int, default=2000, help="number of cases per reader")
    arguments.add_argument("--seed", type=int, default=0, help="seed of the cases")
    arguments.add_argument(
        "--reader", action="append", choices=list(READERS), help="readers to try"
    )
    arguments.add_argument(
        "--messages", action="store_true", help="print the errors of each reader"
    )
    args = arguments.parse_args()
    cases = SMOKE if args.smoke else args.cases
    section, rows, failures = Section(args, __file__, "photos-and-masks.md"), [], []
    for name in args.reader or READERS:
        start = time.perf_counter()
        outcome = run_cases(READERS[name], cases, args.seed)
        seconds = f"{time.perf_counter() - start:.0f}"
        failed = len(outcome.failures)
        rows.append((name, outcome.cases, outcome.errors, outcome.read, failed, seconds))
        failures += [f"{name}: {failure}" for failure in outcome.failures]
        if args.messages:
            for message, count in outcome.messages.most_common(20):
                print(f"{count:6} {name}: {message}")
    total, failed = sum(row[1] for row in rows), len(failures)
    section.add(f"{total:,} cases, {failed} of which ended in neither an error nor a result.")
    section.table(["reader", "cases", "clear errors", "read", "failures", "seconds"], rows)
    section.finish()
    if failures:
        sys.exit("\n".join(failures[:50]))


if __name__ == "__main__":
    main()
