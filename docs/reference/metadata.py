"""Metadata of a file of reference results: Croissant (JSON-LD), and the licences of the data behind the results."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from sqlalchemy import func, select

from dropbench.db.reference.archive import DATABASE, FORMAT
from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import Configs, Trials
from dropbench.db.store.store import Store
from dropbench.harness.errors import InputError
from dropbench.tasks.data.dataset import DATASETS

HOME = "https://pypi.org/project/dropbench/"
LICENCE = "https://spdx.org/licenses/MIT"
DESCRIPTIONS = {
    "configs": "configurations: trials without their seed, as JSON in the column config",
    "submissions": "empty",
    "trials": "one row per trial: a configuration and a seed",
    "requests": "requests of suites, as JSON in the column content",
    "memberships": "the trials of each cell of a request",
    "attempts": "executions of trials with their cost",
    "metrics": "final values of all splits; step is -1",
    "details": "steps, selected step, commit, environment and notes of each trial",
    "examples": "examples of each split as digests of their content, with the numbers of their classes",
    "predicted": "predicted classes of each trial and split, in the order of the examples",
}
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
"""The context of Croissant 1.0, https://docs.mlcommons.org/croissant/docs/croissant-spec.html."""


def croissant(store: Store, database: bytes) -> str:
    """Return the metadata of an archive, for its content after it is unpacked.

    Args:
        store: the content.
        database: the file of its tables. Croissant has no words for the tables of a database, so they are a text.
    """
    with reading(store.engine) as connection:
        trials = connection.scalar(select(func.count()).select_from(Trials))
        newest = connection.scalar(select(func.max(Trials.c.updated_at)))
    tables = "; ".join(f"{name}: {text}" for name, text in DESCRIPTIONS.items())
    content = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": "dropbench-reference",
        "description": "Results of DropBench's field suites: regularizers of attention, trained and evaluated alike.",
        "license": LICENCE,
        "url": HOME,
        "creator": {"@type": "sc:Organization", "name": "The DropBench authors"},
        "citeAs": "The DropBench authors. DropBench: a benchmark harness for attention regularization.",
        "version": f"{FORMAT}.{trials}.0",
        "datePublished": str(newest or "1970-01-01")[:10],
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": DATABASE,
                "name": DATABASE,
                "description": f"Tables of a SQLite database. {tables}.",
                "contentUrl": DATABASE,
                "encodingFormat": "application/vnd.sqlite3",
                "contentSize": f"{len(database)} B",
                "sha256": hashlib.sha256(database).hexdigest(),
            }
        ],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def licences(store: Store) -> str:
    """Return the licences of the data sets behind the results, as Markdown."""
    with reading(store.engine) as connection:
        names = connection.scalars(select(Configs.c.data).distinct().order_by(Configs.c.data)).all()
    lines = [
        "# Licences",
        "",
        "The results in this file are DropBench's, under the MIT licence. They are metrics of models that were trained",
        "on the data sets below, and the classes that these predict. The data are not distributed with DropBench: of",
        "their examples, the file has digests and classes.",
        "",
    ]
    for name in names:
        try:
            card = DATASETS.get(name)
        except InputError:  # a plug-in's
            lines.append(f"- {name}: a data set of a plug-in")
        else:
            origin = " ".join(card.origin.split())
            lines.append(f"- {name}: licence: {card.licence}. {origin}. {card.home}")
    return "\n".join([*lines, ""])
