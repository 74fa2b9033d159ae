"""How far engines are from PyTorch: half precision hardly, FP8 too far to ship."""

import pytest

claim = pytest.mark.claim
PRINTED = (
    "nonfinite_share",
    "kl_mean",
    "kl_p99",
    "agreement",
    "cls_cosine_mean",
    "cls_cosine_min",
    "cls_relative_l2",
    "cls_bar_share",
    "sts_spearman",
)


@claim("fnet/fp16-kl", "fnet/fp16-kl-any-inputs")
def test_half_precision_predicts_as_pytorch(fnet, case, expect):
    """Masked-LM KL of half precision."""
    expect(fnet.figure(case, "kl_mean"))


@claim("fnet/fp16-agreement", "fnet/fp16-agreement-any-inputs")
def test_half_precision_agrees(fnet, case, expect):
    """Top-1 agreement of half precision."""
    expect(fnet.figure(case, "agreement"))


@claim("fnet/fp16-cls-cosine", "fnet/fp8-cls-cosine")
def test_cls_keeps_its_direction(fnet, case, expect):
    """CLS cosine alone does not show what FP8 loses."""
    expect(fnet.figure(case, "cls_cosine_mean"))


@claim(
    "fnet/fp16-within-quality-bar",
    "fnet/fp8-base-misses-quality-bar",
    "fnet/fp8-large-512-mostly-within-bar",
    "fnet/fp8-large-256-mostly-outside-bar",
)
def test_quality_bar(fnet, case, expect):
    """Share of the first 400 STS-B sentences within 4% of PyTorch."""
    expect(fnet.figure(case, "cls_bar_share"))


@claim("fnet/fp16-sts-as-pytorch", "fnet/fp8-base-loses-sts")
def test_sentence_similarity(fnet, case, expect):
    """Spearman against the STS-B scores, PyTorch's less the engine's."""
    expect(fnet.figure(case, "sts_spearman_loss"))


@claim("fnet/fp8-loses-agreement")
def test_fp8_loses_agreement(fnet, case, expect):
    """Paired with half precision on the same masked tokens."""
    expect(fnet.figure(case, "agreement_loss"))


@claim("fnet/fp8-agreement-below-97", "fnet/look-again-2", "fnet/fp8-no-output-dense-below-99")
def test_fp8_agreement_is_low(fnet, case, expect):
    """No FP8 recipe comes near the study's 99%."""
    expect(fnet.figure(case, "agreement"))


@claim("fnet/fp8-no-output-dense-kl")
def test_half_of_the_kl_is_output_dense(fnet, case, expect):
    """Leaving `output.dense` in fp16 takes about half of FP8's KL away."""
    expect(fnet.figure(case, "kl_ratio"))


@pytest.mark.every_case("fnet")
def test_quality_is_as_printed(fnet, case, as_documented):
    """Every printed quality figure, which the study found equal across GPUs and TensorRT versions."""
    as_documented({name: each for name, each in fnet.figures(case).items() if name in PRINTED})


@claim("fnet/prompt-cosine")
def test_prompt(fnet, case, expect):
    """The study's own prompt."""
    expect(fnet.prompt_cosine(case))
