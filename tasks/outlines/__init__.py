"""What is known of each task without the libraries that train it: its recipe, its metrics, and how its trials are made.

Tables and queries need no more, and load no torch for it. A task's own module has the rest, in a subclass.
"""
