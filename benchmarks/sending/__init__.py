"""The parts of benchmarks/bytes.py."""
