"""Computes: one op a file, a plain-torch reference beside each fast version."""
