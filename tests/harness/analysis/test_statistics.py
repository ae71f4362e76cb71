"""Analyses of trials against loops over the weights of the same model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dropbench.harness.analysis import ANALYSES, Findings
from dropbench.harness.analysis.options import Options
from dropbench.harness.analysis.sparsity import BINS, GrowingHistogram
from dropbench.harness.analysis.statistics import AttentionRecorder
from dropbench.harness.analysis.trained import Trained
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.base import Site
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.trials.alignment import num_mc_samples
from tests.harness.analysis.trained_runs import make_run, make_trial, train_small

CPU = Settings(device="cpu", threads=1)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train_small(tmp_path_factory.mktemp("runs"), schedule="decreasing")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    trial = make_trial("trec-synthetic", "dropattention-c", params={"ratio": 0.4, "window": 2})
    trained = Trained(make_run(tmp_path_factory.mktemp("runs"), trial), CPU)
    # Logits are in the hundreds: in float32, rounding depends on the other samples of the batch.
    trained.model.double()
    return trained


def run_analysis(kind: str, trained: Trained, **options: Any) -> Findings:
    return ANALYSES.get(kind)(trained, Options(**options))


def weights_of(trained: Trained, options: Options) -> dict[str, list[Tensor]]:
    """Return each sample's weights (H, T, S) by site, without padding because samples are evaluated one by one."""
    recorded: dict[str, list[Tensor]] = {}
    for index in trained.indices(options):
        batch = trained.task.batch(options.split, [index])
        for site in trained.sites:
            site.probe = lambda site, weights: recorded.setdefault(trained.label(site), []).append(weights[0].double())
        with torch.no_grad():
            trained.model(batch[0])
        for site in trained.sites:
            site.probe = None
    return recorded


def entropy_of(row: Tensor) -> float:
    return -math.fsum(p * math.log(p) for p in row.tolist() if p > 0)


def test_entropy_of_images_is_that_of_the_class_token(digits: Trained) -> None:
    options = Options(samples=12)
    findings = run_analysis("entropy", digits, samples=12)
    for label, samples in weights_of(digits, options).items():
        expected = [[entropy_of(head[0]) for head in sample] for sample in samples]
        assert np.allclose(findings.arrays[label], expected, atol=1e-5)
        assert findings.scalars[label] == pytest.approx(np.mean(expected), abs=1e-5)
    first, last = findings.arrays
    assert (first, last) == ("encoder-self.1", "encoder-self.2")
    assert findings.scalars["mean"] == pytest.approx((findings.scalars[first] + findings.scalars[last]) / 2)
    assert findings.scalars["last"] == findings.scalars[last]


def test_entropy_of_texts_is_the_mean_over_words_without_padding(texts: Trained) -> None:
    options = Options(samples=40)
    findings = run_analysis("entropy", texts, samples=40)
    lengths = {len(texts.task.batch("test", [index])[0][0]) for index in texts.indices(options)}
    assert len(lengths) > 1  # so that padding occurs
    for label, samples in weights_of(texts, options).items():
        expected = [[np.mean([entropy_of(row) for row in head]) for head in sample] for sample in samples]
        assert np.allclose(findings.arrays[label], expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["diversity", "disagreement"])
@pytest.mark.parametrize("which", ["digits", "texts"])
def test_overlap_of_heads_is_the_mean_over_all_real_queries(
    kind: str, which: str, request: pytest.FixtureRequest
) -> None:
    trained: Trained = request.getfixturevalue(which)
    findings = run_analysis(kind, trained, samples=20)
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
    findings = run_analysis("sparsity", trained, samples=30)
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
    recorder = AttentionRecorder(digits, lambda weights: weights[:, 0, :, 0])
    site = Site("windows", "cross", 0, 1, 1)
    before = digits.batch_size
    digits.batch_size = 2
    weights = torch.rand(6, 1, 4, 3) + 0.1  # three windows of each of two images
    recorder(site, weights)
    digits.batch_size = before
    (values,) = recorder.recorded["cross.1"]
    assert torch.allclose(values, weights[:, 0, :, 0].view(2, 12).double().mean(1))


def test_indices_are_the_split_or_a_reproducible_sample_of_it(digits: Trained) -> None:
    indices = digits.indices(Options())
    assert indices == list(range(digits.task.size("test")))
    sample = digits.indices(Options(samples=10))
    assert len(set(sample)) == 10
    assert sample == sorted(sample) != indices[:10]
    assert digits.indices(Options(samples=10)) == sample
    with pytest.raises(InputError, match=f"--samples 100000: expected 1 to {len(indices)}"):
        digits.indices(Options(samples=100_000))


def test_evaluation_equals_that_at_the_end_of_the_trial(digits: Trained) -> None:
    assert digits.evaluate(Options()) == {"accuracy": digits.result["metrics"]["test/accuracy"]}
    assert not digits.model.training


def test_a_monte_carlo_trial_is_analyzed_with_its_mean_weights(tmp_path: Path) -> None:
    plain, aligned = (
        train_small(tmp_path, params={"ratio": 0.6}, align=align) for align in ("none", "monte-carlo-300")
    )
    assert num_mc_samples(aligned.trial.align) == 300
    sharp, smooth = (run_analysis("entropy", trained, samples=30).scalars["mean"] for trained in (plain, aligned))
    assert smooth > sharp + 0.01  # DropKey, Eq. 4: the expectation is smoother


def test_sites_have_short_labels_if_these_are_unique(digits: Trained) -> None:
    assert [digits.label(site) for site in digits.sites] == ["encoder-self.1", "encoder-self.2"]
    twin = Site("other.attention", "encoder-self", 0, 2, 4)
    digits.sites.append(twin)
    try:
        assert digits.label(digits.sites[0]) == "blocks.0.attn"
        assert digits.label(twin) == "other.attention"
    finally:
        digits.sites.remove(twin)


def test_class_attention_is_analyzed_although_not_regularized() -> None:
    """VOLO's class attention has no regularizer, but is a site of the trained model."""
    import timm

    from dropbench.harness.models.adapter import site_of
    from dropbench.harness.models.regularize import bind, find_patches
    from dropbench.harness.models.sites import sites

    with torch.device("meta"):
        model = timm.create_model("volo_d1_224", img_size=64)
    bind(model, "dropkey", ratio=0.3)
    assert "class" not in {site.kind for site in sites(model)}
    for patch in find_patches(model):
        if site_of(patch.module) is None:
            patch.attach()
    class_sites = [site for site in sites(model) if site.kind == "class"]
    assert class_sites
    assert all(site.regularizer is None for site in class_sites)


@pytest.mark.parametrize(("amp", "autocasts"), [("no", False), ("bf16", True), ("fp16", False)])
def test_a_trial_is_analyzed_in_the_precision_of_its_training(tmp_path: Path, amp: str, autocasts: bool) -> None:
    trial = make_trial()
    trained = Trained(make_run(tmp_path, trial.model_copy(update={"recipe": {**trial.recipe, "amp": amp}})), CPU)
    with trained.evaluation_context():
        assert torch.is_autocast_enabled("cpu") == autocasts


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
