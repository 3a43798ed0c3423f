"""Engines that provide nodes: Slurm, Kubernetes, Ray, ssh."""
