"""Shows: timeline, player, workbench."""
