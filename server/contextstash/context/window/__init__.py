"""The window: settings, token counts, thresholds, and what a refused request says of it."""
