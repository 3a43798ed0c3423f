"""Study files that `tuner init --from` proposes: from a W&B sweep, a script or a configuration."""
