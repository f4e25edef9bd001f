"""The window: settings, token counts, thresholds, and the errors of requests that exceed it."""
