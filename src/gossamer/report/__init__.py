"""Figures of runs: arrays and records in, pictures out."""
