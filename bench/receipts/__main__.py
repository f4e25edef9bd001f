"""`python -m bench.receipts`: see bench/fidelity/receipts.py."""

from runpy import run_module

run_module("bench.fidelity.receipts", run_name="__main__")
