"""What several benchmarks share: the machine, peers, workloads, measures, results."""
