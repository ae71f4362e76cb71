"""Text for language models: WikiText, a Wikipedia dump as Learned Dropout's author used, and any text."""

from __future__ import annotations

from tasks.data.dataset import Dataset, Layout, Published

KIND = "language-modelling"
WIKITEXT = "tasks.data.text_corpus:read_wikitext"
MERITY = "Merity et al. (2016), Table 1"


def _wikitext(suffix: str, folder: str) -> Layout:
    return Layout(tuple(f"wiki.{part}.{suffix}" for part in ("train", "valid", "test")), WIKITEXT, (folder,))


SETS = (
    Dataset(
        name="wikitext-2",
        help="good and featured articles of Wikipedia, 2 million words",
        kind=KIND,
        folder="wikitext-2",
        layouts=(
            _wikitext("raw", "wikitext-2-raw"),
            _wikitext("tokens", "wikitext-2"),
            Layout(("wiki.valid.raw", "wiki.test.raw"), "tasks.data.text_corpus:read_wikitext_without_train"),
        ),
        classes=0,
        origin="Merity, Xiong, Bradbury and Socher (2016), Pointer Sentinel Mixture Models; archive wikitext-2-raw-v1",
        home="https://huggingface.co/datasets/Salesforce/wikitext",
        licence="CC BY-SA 3.0 and GFDL",
        splits="as published; without the train file, 90 % of the published valid is train and the rest of it dev",
        published=(
            Published("train", 2088628, MERITY, "tokens"),
            Published("dev", 217646, MERITY, "tokens"),
            Published("test", 245569, MERITY, "tokens"),
        ),
        synthetic="tasks.data.synthetic_language:wikitext",
    ),
    Dataset(
        name="enwiki",
        help="a Wikipedia dump, of any language and size, as plain text",
        kind=KIND,
        folder="enwiki",
        layouts=(Layout(("*.bz2",), "tasks.data.wikipedia:read"),),
        classes=0,
        origin="Wikimedia, a pages-articles dump in one file or many; which one the source used is not said",
        home="https://dumps.wikimedia.org/enwiki/latest/",
        licence="CC BY-SA 4.0",
        splits="whole pages, 90 % train, 5 % dev, 5 % test of the characters",
        synthetic="tasks.data.synthetic_language:wikipedia",
    ),
    Dataset(
        name="text",
        help="any text files of yours",
        kind=KIND,
        folder="text",
        layouts=(Layout(("*.txt",), "tasks.data.text_corpus:read_files"),),
        classes=0,
        origin="yours: UTF-8",
        home="https://www.gutenberg.org/",
        licence="that of your files",
        splits="of each file the first 90 % train, the next 5 % dev, the last 5 % test",
        synthetic="tasks.data.synthetic_language:text_files",
    ),
)
