"""Opening a file of reference results, also a damaged one."""

from __future__ import annotations

import io
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from docs.reference.extend import archive_bytes
from dropbench.db.reference.archive import DATABASE, SHIPPED, unpack
from dropbench.db.reference.load import REFERENCE, open_reference
from dropbench.harness.errors import InputError
from tests.docs.reference.given import small_file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return small_file(tmp_path)


def changed(file: Path, *statements: str) -> None:
    """Change the database of a file by SQL."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        database.deserialize(unpack(file.read_bytes(), "x"))
        for statement in statements:
            database.execute(statement)
        file.write_bytes(archive_bytes({DATABASE: database.serialize()}))


def test_the_shipped_file_is_valid_and_small() -> None:
    assert SHIPPED.stat().st_size <= 500_000
    found, versions = [], set()
    for location in (str(SHIPPED), REFERENCE):  # only the first is validated
        with open_reference(location) as store:
            found.append(store.states())
            versions |= {str(trial.result_versions) for trial in store.trials(list(store.states())).values()}
    assert {row.state for row in found[0].values()} == {"succeeded"}
    assert found[0] == found[1]
    assert versions == {"{'engine': 0}"}


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE trials SET seed = 7 WHERE seed = 1", "seed are those of trial"),
        ("UPDATE trials SET state = 'queued'", "queued, but with final values"),
        ("UPDATE trials SET state = char(27) || '[2J'", "state = "),
        ("UPDATE metrics SET step = 5", "without final values"),
        ("UPDATE configs SET config = replace(config, 'vit-digits', 'vit-cifar')", "seed are those of trial"),
        (f"UPDATE configs SET config = '{'[' * 100_000}'", "trial '"),
        ("DELETE FROM details", "no row in details"),
        ("INSERT INTO details SELECT 'f' || substr(trial_id, 2), 1, 1, NULL, '{}', '[]' FROM details", "not in trials"),
        ("UPDATE details SET notes = '{}'", "expected a list of notes"),
        ("UPDATE details SET steps = 'many'", "steps = 'many'"),
        ("UPDATE details SET environment = CAST(X'ff' AS TEXT)", "UTF-8"),
        ("DROP TABLE attempts", "other tables than those of this version"),
        ("ALTER TABLE attempts RENAME COLUMN host TO computer", "table attempts has other columns"),
        ("CREATE VIEW v AS SELECT 1", "other tables than those of this version"),
        ("CREATE TRIGGER t AFTER INSERT ON trials BEGIN SELECT 1; END", "other tables than those of this version"),
    ],
)
def test_a_damaged_table_is_one_line(file: Path, statement: str, message: str) -> None:
    changed(file, statement)
    with pytest.raises(InputError, match=message) as raised, open_reference(str(file)):
        pass
    assert str(raised.value).isprintable()
    assert str(raised.value).startswith(str(file))


def require_refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with (
        pytest.raises(InputError, match=r"damaged, or no file of reference results|file is not a database"),
        open_reference(str(file)),
    ):
        pass


@pytest.mark.slow
def test_what_grows_beyond_measure_is_no_such_archive(file: Path) -> None:
    bomb = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new:
        for member in old.namelist():
            new.writestr(member, bytes(2**28 + 1) if member == DATABASE else old.read(member))
    require_refused(file, bomb.getvalue())


def test_what_is_no_such_archive_is_one_line(file: Path, tmp_path: Path) -> None:
    content, text = file.read_bytes(), archive_bytes({DATABASE: b"no database" * 1000})
    for damaged in (b"", b"hello", content[:-30], content[: len(content) // 2], text):
        require_refused(file, damaged)
    with pytest.raises(InputError, match="no such file: expected `reference`"), open_reference(str(tmp_path / "no")):
        pass
    with pytest.raises(InputError), open_reference(str(tmp_path)):
        pass
