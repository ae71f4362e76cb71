"""From the queue to Submitit and back."""

if __name__ != "dropbench.jobs":
    raise ImportError("`jobs` is imported as `dropbench.jobs`")
