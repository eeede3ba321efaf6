"""Vocabulary and maths of the serving engine: values, no torch, no threads, no clock reads."""
