"""Samples of device usage: written, totalled, rolled up with age."""
