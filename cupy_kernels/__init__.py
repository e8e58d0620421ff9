"""CUDA C sources of the norms, and how they are launched from torch."""
