"""The file of reference results: a zip of tables as `dropbench db export` writes them. Equal content, equal bytes."""

from __future__ import annotations

import io
import lzma
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from db.schema.reference import OPTIONAL, TABLES
from db.schema.tables import METADATA
from harness.errors import InputError

FORMAT = 1
"""Version of the form of the file: the first number of its metadata's version."""

SHIPPED = Path(__file__).with_name("reference.zip")
FILES = tuple(f"{table.name}.csv" for table in (*METADATA.sorted_tables, *TABLES))
_OPTIONAL = {f"{table.name}.csv" for table in OPTIONAL}
CROISSANT, LICENCES = "croissant.json", "LICENCES.md"
MAX_BYTES = 2**28
"""Maximum size of the unpacked content; that of 3,000 trials is 10 MB."""

_TIME = (1980, 1, 1, 0, 0, 0)
_DAMAGE = (zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, OSError, RuntimeError, ValueError, KeyError)


def archive_bytes(files: Mapping[str, bytes]) -> bytes:
    """Return the archive of files by name."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in sorted(files.items()):
            info = zipfile.ZipInfo(name, _TIME)
            info.external_attr = 0o644 << 16
            archive.writestr(info, data, compress_type=zipfile.ZIP_LZMA)
    return content.getvalue()


def unpack(content: bytes, folder: Path, where: str) -> None:
    """Write the tables of an archive to an empty folder.

    Raises:
        InputError: the archive is damaged, too large, or has no such tables; the message begins with `where`.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            present = [name for name in FILES if name not in _OPTIONAL or name in archive.namelist()]
            members = [archive.getinfo(name) for name in present]
            if sum(member.file_size for member in members) > MAX_BYTES:
                raise ValueError(f"more than {MAX_BYTES:,} bytes")
            for member in members:
                (folder / member.filename).write_bytes(archive.read(member))
    except _DAMAGE as error:
        cause = " ".join(str(error).split())[:120]
        raise InputError(f"{where}: damaged, or no file of reference results ({cause}): {EXPECTED}") from None


EXPECTED = "expected `reference`, or a file that `python -m docs.reference extend` wrote"
