"""``python -m dropbench``: the command line."""

import gc

gc.disable()  # imports make no garbage, and collections would take a part of the start-up time; `main` enables it

from dropbench.harness.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
