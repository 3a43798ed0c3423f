"""Common and different properties of trials and studies."""
