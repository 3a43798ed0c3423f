"""The tuner side by side with its peers, on this machine. See docs/benchmarks.md."""
