"""Analyses of whole trials: what is counted, over which queries, against loops over the same model's weights."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from harness.align import draws_of
from harness.analysis import ANALYSES, Findings, Options
from harness.analysis.sparsity import BINS, GrowingHistogram
from harness.analysis.statistics import Recorder
from harness.analysis.trained import Trained, find_run
from harness.attention import attention_weights
from harness.errors import InputError
from harness.rundir import RunDirectory
from harness.settings import Settings
from harness.site import Site
from tests.harness.trained_runs import make_run, make_trial

CPU = Settings(device="cpu", threads=1)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(make_run(tmp_path_factory.mktemp("runs"), make_trial(schedule="decreasing")), CPU)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    trial = make_trial("trec-synthetic", "dropattention-c", params={"ratio": 0.4, "window": 2})
    trained = Trained(make_run(tmp_path_factory.mktemp("runs"), trial), CPU)
    # Its logits are in the hundreds: float32 rounds them otherwise beside other neighbours in a batch.
    trained.model.double()
    return trained


def analysed(kind: str, trained: Trained, **options: Any) -> Findings:
    return ANALYSES.get(kind)(trained, Options(**options))


def weights_of(trained: Trained, options: Options) -> dict[str, list[Tensor]]:
    """By site, the weights (H, T, S) of every sample, without padding, each text evaluated alone."""
    found: dict[str, list[Tensor]] = {}
    for index in trained.indices(options):
        batch = trained.task.batch(options.split, [index])
        for site in trained.sites:
            site.probe = lambda site, weights: found.setdefault(trained.label(site), []).append(weights[0].double())
        with torch.no_grad():
            trained.model(batch[0])
        for site in trained.sites:
            site.probe = None
    return found


def entropy_of(row: Tensor) -> float:
    return -math.fsum(p * math.log(p) for p in row.tolist() if p > 0)


def test_entropy_of_images_is_the_class_tokens(digits: Trained) -> None:
    options = Options(samples=12)
    findings = analysed("entropy", digits, samples=12)
    for label, samples in weights_of(digits, options).items():
        expected = [[entropy_of(head[0]) for head in sample] for sample in samples]
        assert np.allclose(findings.arrays[label], expected, atol=1e-5)
        assert findings.scalars[label] == pytest.approx(np.mean(expected), abs=1e-5)
    first, last = findings.arrays
    assert (first, last) == ("encoder-self.1", "encoder-self.2")
    assert findings.scalars["mean"] == pytest.approx((findings.scalars[first] + findings.scalars[last]) / 2)
    assert findings.scalars["last"] == findings.scalars[last]


def test_entropy_of_texts_is_all_words_and_padding_does_not_count(texts: Trained) -> None:
    options = Options(samples=40)
    findings = analysed("entropy", texts, samples=40)
    lengths = {len(texts.task.batch("test", [index])[0][0]) for index in texts.indices(options)}
    assert len(lengths) > 1  # or nothing would be padded
    for label, samples in weights_of(texts, options).items():
        expected = [[np.mean([entropy_of(row) for row in head]) for head in sample] for sample in samples]
        assert np.allclose(findings.arrays[label], expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["diversity", "disagreement"])
@pytest.mark.parametrize("which", ["digits", "texts"])
def test_overlap_of_heads_is_the_mean_over_all_real_queries(
    kind: str, which: str, request: pytest.FixtureRequest
) -> None:
    trained: Trained = request.getfixturevalue(which)
    findings = analysed(kind, trained, samples=20)
    for label, samples in weights_of(trained, Options(samples=20)).items():
        expected = []
        for sample in samples:
            values = []
            for query in sample.transpose(0, 1):
                products = query @ query.T
                if kind == "diversity":
                    values.append(float((products - torch.eye(len(query))).square().sum()))
                else:
                    norms = query.norm(dim=1)
                    values.append(float((products / norms[:, None] / norms[None]).mean()))
            expected.append(np.mean(values))
        assert np.allclose(findings.arrays[label], expected, atol=1e-4)


@pytest.mark.parametrize("which", ["digits", "texts"])
def test_sparsity_counts_every_head_and_real_query_once(which: str, request: pytest.FixtureRequest) -> None:
    trained: Trained = request.getfixturevalue(which)
    findings = analysed("sparsity", trained, samples=30)
    for label, samples in weights_of(trained, Options(samples=30)).items():
        by_head = [torch.cat([sample[head].amax(-1) * sample.shape[-1] for sample in samples]) for head in range(2)]
        counts = findings.arrays[f"{label}.counts"]
        assert counts.sum(1).tolist()[:2] == [len(by_head[0]), len(by_head[1])]
        assert np.allclose(findings.arrays[f"{label}.heads"][:2], [float(head.mean()) for head in by_head], atol=1e-4)
        edges = findings.arrays[f"{label}.edges"]
        expected = np.histogram(by_head[0].numpy(), edges)[0]
        assert np.abs(counts[0] - expected).sum() <= 4  # values on the border of two bins, rounded


def test_a_histogram_grows_and_keeps_every_value() -> None:
    values = torch.rand(2, 5000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 300
    histogram = GrowingHistogram(2)
    for part in values.split(500, dim=1):
        histogram.add(part / 40 if histogram.number == 0 else part, torch.ones(part.shape[1], dtype=torch.bool))
    values[:, :500] /= 40
    assert histogram.counts.shape == (2, BINS)
    assert histogram.edges()[-1] >= 300
    for head in range(2):
        assert np.array_equal(histogram.counts[head].numpy(), np.histogram(values[head].numpy(), histogram.edges())[0])
    assert np.allclose(histogram.means(), values.mean(1).numpy())
    histogram.add(torch.tensor([[float("nan")], [1.0]]), torch.tensor([True]))
    assert np.isnan(histogram.means()).tolist() == [True, False]
    assert histogram.counts.sum() == 10_001


def test_windows_of_one_image_are_one_sample(digits: Trained) -> None:
    recorder = Recorder(digits, lambda weights: weights[:, 0, :, 0])
    site = Site("windows", "cross", 0, 1, 1)
    before = digits.batch_size
    digits.batch_size = 2
    weights = torch.rand(6, 1, 4, 3) + 0.1  # three windows of each of two images
    recorder(site, weights)
    digits.batch_size = before
    (found,) = recorder.found["cross.1"]
    assert torch.allclose(found, weights[:, 0, :, 0].view(2, 12).double().mean(1))


def test_all_of_a_split_or_a_sample_that_is_the_same_for_every_trial(digits: Trained) -> None:
    every = digits.indices(Options())
    assert every == list(range(digits.task.size("test")))
    some = digits.indices(Options(samples=10))
    assert len(set(some)) == 10
    assert some == sorted(some) != every[:10]
    assert digits.indices(Options(samples=10)) == some
    with pytest.raises(InputError, match=f"--samples 100000: expected 1 to {len(every)}"):
        digits.indices(Options(samples=100_000))


def test_evaluation_is_that_of_the_trials_end(digits: Trained) -> None:
    assert digits.evaluate(Options()) == {"accuracy": digits.result["metrics"]["test/accuracy"]}
    assert not digits.model.training


def test_a_trial_evaluated_by_draws_is_looked_at_with_their_weights(tmp_path: Path) -> None:
    plain, aligned = (
        Trained(make_run(tmp_path, make_trial(params={"ratio": 0.6}, align=align)), CPU)
        for align in ("none", "monte-carlo-300")
    )
    assert draws_of(aligned.trial.align) == 300
    sharp, smooth = (analysed("entropy", trained, samples=30).scalars["mean"] for trained in (plain, aligned))
    assert smooth > sharp + 0.01  # DropKey, Eq. 4: the expectation is smoother


def test_sites_have_short_names_where_these_are_unique(digits: Trained) -> None:
    assert [digits.label(site) for site in digits.sites] == ["encoder-self.1", "encoder-self.2"]
    twin = Site("other.attention", "encoder-self", 0, 2, 4)
    digits.sites.append(twin)
    try:
        assert digits.label(digits.sites[0]) == "blocks.0.attn"
        assert digits.label(twin) == "other.attention"
    finally:
        digits.sites.remove(twin)


def test_class_attention_that_training_leaves_alone_is_looked_at_too() -> None:
    """VOLO's: bound to nothing, and still a site of the trained model."""
    import timm

    from harness.adapter import site_of
    from harness.binding import bind, find_patches, sites

    with torch.device("meta"):
        model = timm.create_model("volo_d1_224", img_size=64)
    bind(model, "dropkey", ratio=0.3)
    assert "class" not in {site.kind for site in sites(model)}
    for patch in find_patches(model):
        if site_of(patch.module) is None:
            patch.attach()
    left = [site for site in sites(model) if site.kind == "class"]
    assert left
    assert all(site.regularizer is None for site in left)


def test_a_trial_is_found_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    trials = [make_trial(seed=seed) for seed in range(3)]
    for trial in trials:
        RunDirectory.create(tmp_path, trial)
    assert find_run(tmp_path, trials[0].id).id == trials[0].id
    assert find_run(tmp_path, trials[1].id[:8]).id == trials[1].id
    for start in ("", "zz"):
        with pytest.raises(InputError, match="none in"):
            find_run(tmp_path, start)
    shared = RunDirectory.create(tmp_path, make_trial(seed=3)).path
    (tmp_path / (trials[0].id[:4] + "x" * 8)).mkdir()
    (tmp_path / (trials[0].id[:4] + "x" * 8) / "trial.json").write_bytes((shared / "trial.json").read_bytes())
    with pytest.raises(InputError, match="2 ids in"):
        find_run(tmp_path, trials[0].id[:4])


def test_a_trial_without_result_or_weights_is_an_error(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, make_trial())
    with pytest.raises(InputError, match="has no result yet"):
        Trained(directory, CPU)
    make_run(tmp_path, make_trial())
    weights = next((directory.path / "checkpoint").glob("weights-*.pt"))
    content = weights.read_bytes()
    weights.write_bytes(content[:-50])
    with pytest.raises(InputError, match="selected weights: cannot be read"):
        Trained(directory, CPU)
    weights.unlink()
    with pytest.raises(InputError, match="selected weights: is missing"):
        Trained(directory, CPU)


def test_probed_weights_are_those_of_plain_attention() -> None:
    """What the analyses see is `attention_weights`, whose rows are distributions."""
    q, k = (torch.randn(1, 2, 3, 4, dtype=torch.float64) for _ in range(2))
    expected = (q @ k.transpose(-1, -2) / 2).softmax(-1)
    assert torch.allclose(attention_weights(q, k), expected, atol=1e-12)
