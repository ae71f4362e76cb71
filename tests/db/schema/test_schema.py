from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import event

from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import METADATA, REVISION
from dropbench.db.schema.upgrade import MIGRATIONS, ensure_current
from dropbench.db.store.store import Store, open_store
from dropbench.db.transfer.source import open_source
from dropbench.harness.errors import InputError
from tests.db.records import make_trial
from tests.paths import ROOT
from tests.requests import named


def one_line(error: pytest.ExceptionInfo[InputError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    assert "sqlalche.me" not in message
    return message


def test_migrations_make_what_the_models_say(store: Store) -> None:
    with reading(store.engine) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []
        final = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE name = 'ix_metrics_final'").scalar()
        assert str(final).endswith("WHERE step = -1")


def test_revision_is_the_newest_migration() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_heads() == [REVISION]


def test_a_new_database_is_made_and_then_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    with pytest.raises(InputError, match="no database yet: `dropbench run"):
        open_store(url, create=False)
    assert list(tmp_path.iterdir()) == []
    with open_store(url) as store:
        assert ensure_current(store.engine) is False


def test_an_interrupted_creation_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "new.db").touch()
    with open_store(f"sqlite:///{tmp_path}/new.db") as store:
        assert store.states() == {}


def test_opening_what_is_up_to_date_needs_no_alembic(url: str) -> None:
    code = (
        "import sys; from dropbench.db.store.store import open_store; open_store(sys.argv[1]).counts();"
        "print(sorted(name for name in sys.modules if name in ('alembic.command', 'pandas', 'rich', 'torch')))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_database_of_another_version(url: str, store: Store) -> None:
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0099'")
    with pytest.raises(InputError, match=f"'0099' of another version of DropBench, expected {REVISION}: set") as error:
        open_store(url)
    assert "test.db" in one_line(error)


def test_a_database_of_another_program(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE songs (name)")
    before = file.read_bytes()
    with pytest.raises(InputError, match=r"contains other tables .songs.") as error:
        open_store(f"sqlite:///{file}")
    one_line(error)
    assert file.read_bytes() == before


@pytest.mark.parametrize("content", [b"just some text, which is no database at all" * 50, b"\x89PNG\r\n\x1a\n" * 500])
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "notes.db"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"notes\.db: not a SQLite database") as error:
        open_store(f"sqlite:///{file}")
    one_line(error)
    assert file.read_bytes() == content


def test_a_damaged_database(url: str) -> None:
    file = Path(url.removeprefix("sqlite:///"))
    with open_store(url) as store:
        store.enqueue([make_trial(seed) for seed in range(500)])
    content = bytearray(file.read_bytes())
    content[4096 * 3 :] = os.urandom(len(content) - 4096 * 3)
    file.write_bytes(content)

    def use() -> None:
        with open_store(url) as store:
            store.states()
            store.enqueue([make_trial(seed) for seed in range(1000)])
            store.find("suite")

    with pytest.raises(
        InputError, match="the database is damaged: set DROPBENCH_DB to another one, or run `dropbench db rebuild`"
    ) as error:
        use()
    one_line(error)


def test_a_damaged_name_in_a_database(url: str) -> None:
    """SQLite's message has the name, which is not UTF-8."""
    file = Path(url.removeprefix("sqlite:///"))
    with open_store(url) as store:
        store.enqueue([make_trial(0)], [named("suite", make_trial(0))])
    content = bytearray(file.read_bytes())
    content[content.index(b"tableconfigsconfigs") + 6] = 0xB5
    file.write_bytes(content)
    for use in (open_store, lambda url: open_source(url, "sqlite:///other.db").__enter__()):
        with pytest.raises(InputError, match=r"damaged|cannot be read") as error:
            use(url)
        one_line(error)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be opened: expected a file in an existing, writable folder") as error:
        open_store(f"sqlite:///{tmp_path}/nowhere/test.db")
    one_line(error)


@pytest.fixture
def nobody() -> Iterator[None]:
    """Run as another user than root, for whom nothing is read-only."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder that every user may enter, with its parents."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o055)
    return tmp_path


def test_a_read_only_folder(open_folder: Path, nobody: None) -> None:
    if os.access(open_folder, os.W_OK, effective_ids=True):
        open_folder.chmod(0o555)
    with pytest.raises(InputError, match="cannot be opened: expected a file in an existing, writable folder") as error:
        open_store(f"sqlite:///{open_folder}/test.db")
    one_line(error)


def test_a_read_only_file(open_folder: Path, url: str, nobody: None) -> None:
    file = Path(url.removeprefix("sqlite:///"))
    if os.access(file, os.W_OK, effective_ids=True):
        file.chmod(0o444)
    with pytest.raises(InputError, match="writable folder") as error, open_store(url) as store:
        store.enqueue([make_trial()])
    one_line(error)


def test_a_full_disk_changes_nothing(store: Store) -> None:
    store.enqueue([make_trial(0)], [named("suite", make_trial(0))])
    event.listen(store.engine, "checkout", lambda raw, *rest: raw.execute("PRAGMA max_page_count = 40"))
    with pytest.raises(InputError, match="the disk is full; nothing was changed") as error:
        store.enqueue([make_trial(seed) for seed in range(1, 3000)])
    one_line(error)
    assert list(store.states()) == [make_trial(0).id]
    store.enqueue([make_trial(1)], [named("suite", make_trial(1))])


def test_a_writer_that_does_not_end(url: str, store: Store) -> None:
    event.listen(store.engine, "checkout", lambda raw, *rest: raw.execute("PRAGMA busy_timeout = 50"))
    holder = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    try:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(InputError, match="locked by another process") as error:
            store.enqueue([make_trial()])
        one_line(error)
        assert store.states() == {}  # reading goes on meanwhile
    finally:
        holder.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("dropbench.db", "expected a SQLAlchemy URL such as sqlite:///"),
        ("", "expected a SQLAlchemy URL"),
        ("oracel://x", "unknown database 'oracel'"),
        ("mysql+mysqlconnector://me@nowhere/x", "needs the package 'mysql': install it with pip"),
        ("postgresql+psycopg://me@here:port/x", "expected a SQLAlchemy URL"),
        (f"postgresql+psycopg://me@{'a' * 300}/x", "expected a SQLAlchemy URL"),
        ("postgresql+psycopg://me:a%00b@here/x", r"expected a URL without NUL \(%00\)$"),
        ("sqlite:///a%00b.db", "expected a URL without NUL"),
        ("postgresql+psycopg://me@localhost/x?foo=bar", 'invalid connection option "foo"'),
        ("postgresql+psycopg://me@localhost/x?connect_timeout=x", "bad value for connect_timeout"),
        ("sqlite:///x.db?timeout=x", "invalid option in the URL: could not convert string to float: 'x'"),
        ("sqlite:///x.db?foo=1", "invalid option in the URL: .* 'foo' are not accepted"),
        (f"sqlite:///x.db?cached_statements={'9' * 20}", "invalid option in the URL"),
    ],
)
def test_a_url_that_cannot_be(url: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        open_store(url)
    one_line(error)
