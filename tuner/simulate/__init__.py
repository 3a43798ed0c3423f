"""A study replayed on a virtual clock: real dispatcher, sampler and pruner, recorded curves."""
