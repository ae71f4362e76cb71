"""From the queue to Submitit and back."""


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun: "1 trial", "3 trials"."""
    return f"{number} {noun}{'s' * (number != 1)}"
