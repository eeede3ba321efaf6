"""Describes speech models behind one interface (models.base)."""
