"""The encoding of typed values, which the guest and the Python package share (docs/values.md)."""
