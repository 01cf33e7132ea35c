"""The parts of benchmarks/scale.py: growth, partitioners, planning, and PyTorch Geometric beside it."""
