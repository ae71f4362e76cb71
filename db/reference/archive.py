"""The file of reference results: a zip of a SQLite database and its metadata. Equal content, equal bytes."""

from __future__ import annotations

import io
import lzma
import zipfile
import zlib
from pathlib import Path

from dropbench.harness.errors import InputError

FORMAT = 2
"""Version of the form of the file: the first number of its metadata's version."""

SHIPPED = Path(__file__).with_name("reference.zip")
DATABASE, CROISSANT, LICENCES = "reference.db", "croissant.json", "LICENCES.md"
EXPECTED = "expected `reference`, or a file that `python -m docs.reference extend` wrote"
MAX_BYTES = 2**28
"""Maximum size of the unpacked database; that of 3,000 trials is 10 MB."""

_DAMAGE = (zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, OSError, RuntimeError, ValueError, KeyError)


def unpack(content: bytes, where: str) -> bytes:
    """Return the database of an archive.

    Raises:
        InputError: the archive is damaged, too large, or has no database; the message begins with `where`.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if archive.getinfo(DATABASE).file_size > MAX_BYTES:
                raise ValueError(f"more than {MAX_BYTES:,} bytes")
            return archive.read(DATABASE)
    except _DAMAGE as error:
        cause = " ".join(str(error).split())[:120]
        raise InputError(f"{where}: damaged, or no file of reference results ({cause}): {EXPECTED}") from None
