"""The pairs of languages of DropAttention, section 5.4, and a small one."""

from __future__ import annotations

from tasks.data.dataset import Dataset, Layout, Published

KIND = "translation"
WMT = "the files as distributed; DropAttention 5.4: 4.5M"
ELLIOTT = "Elliott et al. (2016)"


def _pairs(*names: str, source: str, target: str) -> tuple[str, ...]:
    return tuple(name.format(language) for name in names for language in (source, target))


SETS = (
    Dataset(
        name="wmt16-en-de",
        help="news, English to German, Moses tokens in 32,000 joint BPE pieces",
        kind=KIND,
        folder="wmt16_en_de_bpe32k",
        layouts=(
            Layout(
                _pairs(
                    "train.tok.clean.bpe.32000.{}",
                    "newstest2013.tok.bpe.32000.{}",
                    "newstest2014.tok.bpe.32000.{}",
                    source="en",
                    target="de",
                ),
                "tasks.data.parallel:read_bpe",
                ("wmt16_en_de_bpe32k", "wmt16_en_de"),
            ),
            Layout(
                (
                    *_pairs("dict.{}.txt", source="en", target="de"),
                    *_pairs(
                        *(
                            f"{split}.en-de.{{}}.{part}"
                            for split in ("train", "valid", "test")
                            for part in ("bin", "idx")
                        ),
                        source="en",
                        target="de",
                    ),
                ),
                "tasks.data.fairseq_binary:read",
                ("data-bin/wmt16_en_de_bpe32k", "data-bin"),
            ),
        ),
        classes=0,
        origin="WMT 2016; prepared by Google for tensor2tensor, and used so by Ott et al. (2018), Scaling NMT",
        home="https://github.com/facebookresearch/fairseq/tree/main/examples/scaling_nmt",
        licence="WMT text (research)",
        splits="dev is newstest2013, test is newstest2014",
        published=(
            Published("train", 4_500_966, WMT, with_left_out=True),
            Published("dev", 3000, "WMT 2013", with_left_out=True),
            Published("test", 3003, "WMT 2014", with_left_out=True),
        ),
        synthetic="tasks.data.synthetic_pairs:bpe",
    ),
    Dataset(
        name="multi30k",
        help="descriptions of pictures, English to German, raw text",
        kind=KIND,
        folder="multi30k",
        layouts=(
            Layout(
                _pairs("train.{}.gz", "val.{}.gz", "test_2016_flickr.{}.gz", source="en", target="de"),
                "tasks.data.parallel:read_raw",
                ("data/task1/raw", "raw"),
            ),
        ),
        classes=0,
        origin="Elliott et al. (2016), Multi30K: Multilingual English-German Image Descriptions; task 1",
        home="https://github.com/multi30k/dataset",
        licence="not stated",
        splits="as published; test is that of 2016 (Flickr)",
        published=(
            Published("train", 29_000, ELLIOTT, with_left_out=True),
            Published("dev", 1014, ELLIOTT, with_left_out=True),
            Published("test", 1000, ELLIOTT, with_left_out=True),
        ),
        synthetic="tasks.data.synthetic_pairs:raw",
    ),
)
