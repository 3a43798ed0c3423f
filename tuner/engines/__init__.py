"""Engines that lend nodes: Slurm, Kubernetes, Ray, ssh."""
