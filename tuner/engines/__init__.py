"""Engines that lend nodes: Slurm, Kubernetes, ssh."""
