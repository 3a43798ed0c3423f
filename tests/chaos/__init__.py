"""Real studies that are killed, stopped and starved at random, and judged afterwards.

`python -m tests.chaos --help` runs it for as long as you like; `test_chaos.py` for some minutes.
"""
