"""Trials: task, recipe, metrics, alignment and plug-ins."""
