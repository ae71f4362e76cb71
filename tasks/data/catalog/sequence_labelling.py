"""The sequence labelling sets of DropAttention, section 5.2 and Table 4, and two that need no agreement."""

from __future__ import annotations

from tasks.data.dataset import Dataset, Layout, Published

KIND = "sequence-labelling"
TABLE_4 = "DropAttention, Table 4"
CONLL_2000 = "Tjong Kim Sang and Buchholz (2000)"
CONLL_2003 = "Tjong Kim Sang and De Meulder (2003)"
COLLINS = "Collins (2002)"
WNUT_17 = "Derczynski et al. (2017)"
TREES = "tasks.data.treebank:read_trees"
CONLL_2003_READER = "tasks.data.columns:read_conll2003"

SETS = (
    Dataset(
        name="conll2003",
        help="news with named entities of 4 types; parts of speech and chunks are given",
        kind=KIND,
        folder="conll2003",
        layouts=(
            Layout(("eng.train", "eng.testa", "eng.testb"), CONLL_2003_READER),
            Layout(("train.txt", "valid.txt", "test.txt"), CONLL_2003_READER),
        ),
        columns=("pos", "chunk"),
        classes=9,
        origin="Tjong Kim Sang and De Meulder (2003), Introduction to the CoNLL-2003 Shared Task, the English part",
        home="https://www.clips.uantwerpen.be/conll2003/ner/",
        licence="the texts (Reuters RCV1) need an agreement with NIST",
        splits="as published",
        # Table 4, and the paper of the set where it counts sentences, count the lines that part documents.
        published=(
            Published("train", 204567, TABLE_4, "tokens", with_left_out=True),
            Published("dev", 51578, TABLE_4, "tokens", with_left_out=True),
            Published("test", 46666, TABLE_4, "tokens", with_left_out=True),
            Published("train", 203621, CONLL_2003, "tokens"),
            Published("dev", 51362, CONLL_2003, "tokens"),
            Published("test", 46435, CONLL_2003, "tokens"),
            Published("train", 14987, CONLL_2003, with_left_out=True),
            Published("dev", 3466, CONLL_2003, with_left_out=True),
            Published("test", 3684, CONLL_2003, with_left_out=True),
        ),
        synthetic="tasks.data.synthetic_spans:conll2003",
    ),
    Dataset(
        name="conll2000",
        help="news parted into chunks; parts of speech are given",
        kind=KIND,
        folder="conll2000",
        layouts=(Layout(("train.txt", "test.txt"), "tasks.data.columns:read_conll2000"),),
        columns=("pos",),
        classes=23,
        origin="Tjong Kim Sang and Buchholz (2000), Introduction to the CoNLL-2000 Shared Task: Chunking",
        home="https://www.clips.uantwerpen.be/conll2000/chunking/",
        licence="freely distributed",
        splits="test as published; dev is 10 % of the sentences of the published train",
        published=(
            Published("train", 211727, TABLE_4, "tokens"),
            Published("test", 47377, TABLE_4, "tokens"),
            Published("train", 8936, CONLL_2000),
            Published("test", 2012, CONLL_2000),
        ),
        synthetic="tasks.data.synthetic_spans:conll2000",
    ),
    Dataset(
        name="ptb",
        help="Wall Street Journal with parts of speech (Penn Treebank), 45 tags",
        kind=KIND,
        folder="ptb",
        layouts=(
            Layout(("wsj/",), TREES, ("parsed/mrg", "treebank_3/parsed/mrg")),
            Layout(("combined/",), TREES, ("treebank",)),
            Layout(("train.txt", "dev.txt", "test.txt"), "tasks.data.treebank:read_text"),
        ),
        classes=45,
        origin="Marcus, Santorini and Marcinkiewicz (1993), Treebank-3 (LDC99T42); the free sample comes with NLTK",
        home="https://catalog.ldc.upenn.edu/LDC99T42",
        licence="that of the LDC; the sample is for non-commercial use",
        splits="sections 0 to 18, 19 to 21, 22 to 24; the sample is parted by file: 80 % train, 10 % dev, 10 % test",
        published=(
            Published("train", 912344, TABLE_4, "tokens"),
            Published("dev", 131768, TABLE_4, "tokens"),
            Published("test", 129654, TABLE_4, "tokens"),
            Published("train", 38219, COLLINS),
            Published("dev", 5527, COLLINS),
            Published("test", 5462, COLLINS),
        ),
        synthetic="tasks.data.synthetic_grammar:trees",
    ),
    Dataset(
        name="wnut17",
        help="posts of social media with new and rare named entities of 6 types",
        kind=KIND,
        folder="wnut17",
        layouts=(
            Layout(
                ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"), "tasks.data.columns:read_wnut"
            ),
        ),
        classes=13,
        origin="Derczynski et al. (2017), Results of the WNUT2017 Shared Task on Novel and Emerging Entity Recognition",
        home="https://noisy-text.github.io/2017/emerging-rare-entities.html",
        licence="CC BY 4.0",
        splits="as published",
        published=(
            Published("train", 3394, WNUT_17),
            Published("dev", 1009, WNUT_17),
            Published("test", 1287, WNUT_17),
        ),
        synthetic="tasks.data.synthetic_spans:wnut",
    ),
    Dataset(
        name="ud-ewt",
        help="English of the web with universal parts of speech (Universal Dependencies EWT), 17 tags",
        kind=KIND,
        folder="ud-ewt",
        layouts=(
            Layout(
                tuple(f"en_ewt-ud-{split}.conllu" for split in ("train", "dev", "test")),
                "tasks.data.conllu:read",
                ("UD_English-EWT",),
            ),
        ),
        classes=17,
        origin="Silveira et al. (2014), A Gold Standard Dependency Corpus for English",
        home="https://github.com/UniversalDependencies/UD_English-EWT",
        licence="CC BY-SA 4.0",
        splits="as published",
        published=(Published("all", 16622, "its README (Universal Dependencies 2.x)"),),
        synthetic="tasks.data.synthetic_grammar:conllu",
    ),
)
