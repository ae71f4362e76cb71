"""The command line: a list of the commands, which are imported when they are called."""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import io
import os
import sys
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from dropbench.harness.cli.examples import examples
from dropbench.harness.cli.streams import discard_closed_output, open_missing_streams, output_is_closed
from dropbench.harness.errors import InputError, check_text, missing_library, unknown_name
from dropbench.harness.registry import PLUGIN_MODULES, describe, load
from dropbench.harness.settings import check_working_folder


class Target(NamedTuple):
    """The Typer app of a command, its line in ``dropbench --help``, and whether plug-ins are loaded for it.

    Those of the queue look up no entry, and need no torch.
    """

    app: str
    help: str
    plugins: bool = True


COMMANDS = {
    "run": Target(
        "dropbench.jobs.cli.run_commands:app", "Train a suite or one configuration here, and print its table."
    ),
    "enqueue": Target("dropbench.jobs.cli.run_commands:app", "Enqueue the trials of suites or of one configuration."),
    "submit": Target("dropbench.jobs.cli.submit_command:app", "Submit trials to workers, on this machine or on SLURM."),
    "status": Target(
        "dropbench.jobs.cli.queue_commands:app", "Count the trials by state, or follow them.", plugins=False
    ),
    "logs": Target("dropbench.jobs.cli.queue_commands:app", "Show a trial's log.", plugins=False),
    "cancel": Target("dropbench.jobs.cli.queue_commands:app", "Cancel trials.", plugins=False),
    "retry": Target("dropbench.jobs.cli.queue_commands:app", "Queue failed or cancelled trials again.", plugins=False),
    "gc": Target("dropbench.jobs.cli.queue_commands:app", "Delete files that no trial needs any more.", plugins=False),
    "results": Target(
        "dropbench.jobs.cli.query_commands:app", "Query metrics averaged over seeds, curves or predictions."
    ),
    "compare": Target("dropbench.jobs.cli.query_commands:app", "Compare two sides, or rank regularizers."),
    "report": Target("dropbench.jobs.cli.report_commands:app", "Print a suite's table next to the published one."),
    "dashboard": Target(
        "dropbench.jobs.cli.report_commands:app", "Serve live web pages of the database to this machine."
    ),
    "db": Target("dropbench.db.cli.commands:app", "Rebuild, export, import or query the database."),
    "data": Target("dropbench.tasks.commands:app", "Check a data set, or print how to obtain one."),
    "analyze": Target(
        "dropbench.jobs.cli.inspect_commands:app",
        "Measure a trained trial: entropy, occlusion, attention maps and more.",
    ),
    "list": Target(
        "dropbench.jobs.cli.inspect_commands:app", "List tasks, models, data, regularizers, suites and more."
    ),
    "check": Target("dropbench.jobs.cli.check_commands:app", "Try the entries of plug-ins, without training."),
    "doctor": Target(
        "dropbench.jobs.cli.check_commands:app",
        "Report what works on this machine, in a model or on a cluster's nodes.",
    ),
}

GARBAGE = 500_000
"""Objects that a command creates before Python collects garbage. With the default of 700, `dropbench results` takes
0.68 s of a core instead of 0.44 s: the rest goes into scanning modules that all stay."""
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
HANDLE_ERRORS = (errno.EMFILE, errno.ENFILE)


class LazyGroup(TyperGroup):
    """A group that lists commands from a table, and imports a command when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command, or a group of commands of that name."""
        if cmd_name not in COMMANDS:
            if ctx.resilient_parsing:
                return None  # completion of an unknown command
            raise unknown_name("command", cmd_name, COMMANDS)
        target = COMMANDS[cmd_name]
        if not ctx.resilient_parsing:
            check_working_folder()  # before libraries that need it are imported, such as MKL
        if target.plugins and not ctx.resilient_parsing:
            from dropbench.harness.settings import Settings
            from dropbench.harness.trials.plugins import load_plugins

            load_plugins(Settings.from_environment().plugins)
        application = load(target.app)
        application.rich_markup_mode = None  # Rich would drop the brackets of "[profiles.NAME]" and "[SUITE]"
        command: Any = get_command(application)
        return getattr(command, "commands", {}).get(cmd_name, command)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one line per command, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, target.help) for name, target in COMMANDS.items()])


app = typer.Typer(cls=LazyGroup, rich_markup_mode=None, pretty_exceptions_enable=False)


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(version("dropbench"))
        raise typer.Exit


@app.callback(
    invoke_without_command=True,
    epilog=examples("run quickstart", "list suites", "report dropkey/table1 --format html -o table1.html"),
)
def dropbench(
    plugin: Annotated[
        list[Path] | None,
        typer.Option(
            help="A file or folder with regularizers, models, tasks, data sets or analyses; allowed anywhere."
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Benchmark attention regularizers: train a paper's table, keep every metric, print it next to the published one.

    Environment: DROPBENCH_DATA (./data), DROPBENCH_RUNS (./runs), DROPBENCH_DB (sqlite:///dropbench.db),
    DROPBENCH_PLUGINS, DROPBENCH_TRACKERS (tensorboard, wandb, mlflow), DROPBENCH_DEBUG (1: print tracebacks).
    """


def main() -> None:
    """Run the command line; user errors end in one line and exit code 2."""
    open_missing_streams()
    gc.set_threshold(GARBAGE)
    gc.enable()  # `dropbench.__main__` disables it
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding != "utf-8":  # it may lack ± and −
        if "--json" in sys.argv:
            sys.stdout.reconfigure(encoding="utf-8")
        else:
            sys.stdout.reconfigure(errors="backslashreplace")
    if "_DROPBENCH_COMPLETE" in os.environ:
        from dropbench.harness.cli.completion import join_words

        join_words()
    code = run(sys.argv[1:])
    if "torch" in sys.modules:
        exit_at_once(code)
    gc.freeze()  # skips the last collection
    sys.exit(code)


def exit_at_once(code: int) -> None:
    """End the process without unloading its libraries, of which Triton prints leaks; return if output is lost."""
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):  # the regular exit reports it
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        check_text(" ".join(arguments), "command")
        arguments = hoist_plugins(arguments)
        arguments = ["--help"] if arguments in ([], ["--"]) else arguments
        result = get_command(app).main(args=arguments, prog_name="dropbench", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except InputError as error:
        message = str(error)
    except TyperException as error:
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        message = message.replace("Value error, ", "")  # of pydantic
    except (typer.Abort, KeyboardInterrupt):
        typer.echo("interrupted", err=True)
        return 130
    except BaseException as error:
        if isinstance(error, BrokenPipeError | SystemExit) and output_is_closed():  # Typer exits where a pipe closes
            discard_closed_output()  # The reader of a pipe has ended (`| head`), which is not an error.
            return 0
        if (expected := _describe(error)) is None:
            raise
        message = expected
    with contextlib.suppress(OSError):
        typer.echo(" ".join("".join(c if c.isprintable() else " " for c in f"dropbench: {message}").split()), err=True)
    return 2


def _describe(error: BaseException) -> str | None:
    """Return the line for an error of the system, a library, a plug-in or a database; None for a fault of DropBench.

    With ``DROPBENCH_DEBUG`` also None for those whose cause is not known: Python prints a traceback.
    """
    if missing := missing_library(error):
        return f"this command {missing}"
    if isinstance(error, OSError):
        if error.errno in HANDLE_ERRORS:
            return f"{error.filename or 'files'}: {error.strerror}: allow more, such as by `ulimit -n 1024`"
        if error.errno == errno.ENOENT and error.filename is None:  # of `os.getcwd`
            return "the working folder was deleted: change to another one"
        if error.filename is not None or error.errno in DISK_ERRORS:
            return f"{error.filename or 'output'}: {error.strerror}"
    if hasattr(error, "__notes__"):
        return None
    if PLUGIN_MODULES:  # they may even call sys.exit
        return f"with plug-ins: {describe(error)}"
    if isinstance(error, (OSError, ValueError, *_database_errors())) and not os.environ.get("DROPBENCH_DEBUG"):
        cause = str(getattr(error, "orig", None) or error)
        return f"{type(error).__name__}: {cause[:500]}; for a traceback, set DROPBENCH_DEBUG=1"
    return None


def _database_errors() -> list[type[Exception]]:
    """Return the base classes of errors of databases, of the modules that are loaded."""
    names = {"sqlite3": "Error", "sqlalchemy.exc": "SQLAlchemyError"}
    return [getattr(sys.modules[module], name) for module, name in names.items() if module in sys.modules]


def hoist_plugins(arguments: list[str]) -> list[str]:
    """Move ``--plugin FILE`` from anywhere in the arguments to the environment.

    Raises:
        InputError: a ``--plugin`` without a file.
    """
    rest, files = [], []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--plugin":
            if (file := next(remaining, None)) is None:
                raise InputError("--plugin: expected a Python file or a folder behind it")
            files.append(file)
        elif argument.startswith("--plugin="):
            files.append(argument.removeprefix("--plugin="))
        elif argument == "--":
            rest += [argument, *remaining]
        else:
            rest.append(argument)
    if files:
        present = os.environ.get("DROPBENCH_PLUGINS", "").split(os.pathsep)
        absolute = [str(Path(file).absolute()) for file in files]
        os.environ["DROPBENCH_PLUGINS"] = os.pathsep.join(filter(None, [*present, *absolute]))
    return rest


if __name__ == "__main__":
    main()
