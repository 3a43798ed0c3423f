"""The words of the glossary that every layer uses.

The states of attempts and allocations, budgets, the Pareto front and the messages between a trial
and its dispatcher. Nothing here reads or writes anything.
"""
