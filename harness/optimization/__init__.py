"""Optimizers and their groups of parameters, schedules of libraries, frozen parameters and adapters such as LoRA."""
