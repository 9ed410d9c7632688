"""Runs the shared scenario list (../SCENARIOS.md) with the unmodified nats-py client."""

import argparse
import asyncio
import logging
import sys

import core  # noqa: F401  (registers its scenarios)
import streams  # noqa: F401
import limits  # noqa: F401
import pull  # noqa: F401
import redelivery  # noqa: F401
import push  # noqa: F401
import kv  # noqa: F401
import objects  # noqa: F401
from harness import run_all


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    logging.getLogger("nats").setLevel(logging.CRITICAL)
    only = {sid for sid in args.only.split(",") if sid}
    return 0 if asyncio.run(run_all(args.url, only)) else 1


if __name__ == "__main__":
    sys.exit(main())
