"""Measures load, stages and figures."""
