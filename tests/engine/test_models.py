"""The networks: shapes, sizes, parameter names, loading weights, and training on 8 cores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from engine.errors import Refused
from engine.models import weights
from engine.models.resnet import ResNet
from engine.models.scan_lstm import LSTM, unrolled_modules
from engine.models.text_classifier import LstmClassifier
from engine.models.unet import UNet
from tests.engine.processes import on_cores


def num_parameters(model: nn.Module) -> int:
    """All of them."""
    return sum(parameter.numel() for parameter in model.parameters())


def efficientnet(*words: Any, **options: Any) -> Any:
    """An EfficientNet. Its module imports torchvision, which takes seconds that other tests need not wait for."""
    from engine.models.efficientnet import EfficientNet

    return EfficientNet(*words, **options)


@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet50"])
def test_resnet_matches_torchvision(name: str) -> None:
    from torchvision.models import get_model

    theirs = get_model(name, num_classes=10).eval()
    ours = ResNet(name, 10).eval()
    ours.load_state_dict(theirs.state_dict())
    images = torch.randn(2, 3, 40, 56)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images))


@pytest.mark.parametrize("name", ["b0", "b7"])
def test_efficientnet_matches_torchvision(name: str) -> None:
    from torchvision.models import get_model

    with torch.device("meta"):
        theirs = get_model(f"efficientnet_{name}", num_classes=3)
        ours = efficientnet(name, 3)
    shapes = {key: value.shape for key, value in theirs.state_dict().items()}
    assert {key: value.shape for key, value in ours.state_dict().items()} == shapes
    norms = [[(m.eps, m.momentum) for m in net.modules() if isinstance(m, nn.BatchNorm2d)] for net in (theirs, ours)]
    assert norms[0] == norms[1]


def test_unet_has_published_size_and_thin_one_is_small() -> None:
    with torch.device("meta"):
        assert 30e6 < num_parameters(UNet("resnet50")) < 35e6
    assert num_parameters(UNet("thin", 8)) < 200_000
    assert num_parameters(ResNet("thin", 10, width=8)) < 200_000
    assert num_parameters(efficientnet("b0", width=0.25, depth=0.3)) < 200_000


@pytest.mark.parametrize("size", [(32, 32), (96, 96), (64, 160)])
def test_the_unet_gives_two_maps_of_the_images_size(size: tuple[int, int]) -> None:
    maps = UNet("thin", 8)(torch.randn(2, 3, *size))
    assert maps.mask.shape == maps.depth.shape == (2, 1, *size)


def test_unsupported_unet_side_is_rejected_with_a_valid_one() -> None:
    with pytest.raises(Refused, match=r"images of 100 x 96 pixels.*multiples of 32; resize or pad them to 96 x 96"):
        UNet("thin", 8)(torch.randn(1, 3, 100, 96))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: efficientnet("b8"), 'no EfficientNet "b8"; there are b0, b1'),
        (lambda: UNet("vgg"), 'no ResNet "vgg"; there are thin, resnet18'),
    ],
)
def test_unknown_network_lists_the_known_ones(make: Any, words: str) -> None:
    with pytest.raises(Refused, match=words):
        make()


def test_small_images_keep_their_size_at_the_stem() -> None:
    model = efficientnet("b0", 5, width=0.25, depth=0.3, stem_stride=1)
    assert model.features[0](torch.randn(1, 3, 32, 64)).shape[2:] == (32, 64)
    assert model(torch.randn(2, 3, 32, 64)).shape == (2, 5)


@pytest.mark.parametrize("pool", ["mean", "last"])
def test_padding_never_counts_in_a_text(pool: Any) -> None:
    model = LstmClassifier(20, 8, 8, layers=2, num_logits=2, pool=pool).eval()
    text = torch.tensor([[3, 4, 5]])
    padded = torch.tensor([[3, 4, 5, 7, 9, 0, 0]])
    alone = model(text, torch.tensor([3]))
    torch.testing.assert_close(model(padded, torch.tensor([3])), alone)
    assert not torch.allclose(model(padded, torch.tensor([4])), alone)


@pytest.mark.parametrize("pool", ["mean", "last"])
def test_an_empty_text_has_logits_that_no_padding_moves(pool: Any) -> None:
    model = LstmClassifier(20, 8, 8, pool=pool).eval()
    logits = model(torch.tensor([[0, 0, 0], [1, 2, 3]]), torch.tensor([0, 0]))
    assert logits.isfinite().all()
    torch.testing.assert_close(logits[0], logits[1])


def saved(path: Path, content: Any) -> Path:
    """A file of weights."""
    torch.save(content, path)
    return path


@pytest.mark.parametrize("wrap", [lambda state: state, lambda state: {"model": state, "epoch": 3}])
def test_user_weights_load_except_the_head(wrap: Any, tmp_path: Path) -> None:
    pretrained, model = ResNet("thin", 1000, width=4), ResNet("thin", 10, width=4)
    head = model.fc.weight.clone()
    state = {f"module.{name}": value for name, value in pretrained.state_dict().items()}
    weights.load(model, saved(tmp_path / "w.pt", wrap(state)), "fc.")
    name = "layer4.0.conv2.weight"
    torch.testing.assert_close(model.get_parameter(name), pretrained.get_parameter(name))
    torch.testing.assert_close(model.fc.weight, head)


def test_lightning_weights_are_found_below_network_name(tmp_path: Path) -> None:
    trained, model = ResNet("thin", 10, width=4), ResNet("thin", 10, width=4)
    state = {f"net.{name}": value for name, value in trained.state_dict().items()}
    content = {"learner": {}, "fingerprint": {"task": "lightning"}, "state_dict": state, "epoch": 3}
    weights.load(model, saved(tmp_path / "w.pt", content), "fc.")
    assert all(torch.equal(value, trained.state_dict()[name]) for name, value in model.state_dict().items())
    assert weights.new_head(model) == []


def test_mismatched_weights_are_named(tmp_path: Path) -> None:
    state = ResNet("thin", 10, width=4).state_dict()
    del state["bn1.weight"]
    state["layer9.weight"] = torch.zeros(1)
    state["conv1.weight"] = torch.zeros(8, 3, 7, 7)
    with pytest.raises(Refused) as refused:
        weights.load(ResNet("thin", 10, width=4), saved(tmp_path / "w.pt", state), "fc.")
    (problem,) = refused.value.problems
    assert problem.key == "model.weights"
    for words in (
        "lack bn1.weight",
        "have besides layer9.weight",
        "conv1.weight is [8, 3, 7, 7], expected [4, 3, 7, 7]",
    ):
        assert words in problem.message


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read: No such file"), (b"", "not a weights file"), (b"PK\3\4 cut", "not a weights file")],
)
def test_file_without_weights_is_reported(content: bytes | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Refused, match=words):
        weights.load(ResNet("thin", 10, width=4), path, "fc.")


def test_weights_in_an_unknown_home_are_reported() -> None:
    with pytest.raises(Refused, match="there is no home directory ~nobody-here"):
        weights.load(ResNet("thin", 10, width=4), "~nobody-here/w.pt", "fc.")


def test_pickled_network_or_non_tensors_are_rejected(tmp_path: Path) -> None:
    model = ResNet("thin", 10, width=4)
    for content, words in ((model, "not a weights file"), ([1, 2], "no named weights"), ({}, "no named weights")):
        with pytest.raises(Refused, match=words):
            weights.load(model, saved(tmp_path / "w.pt", content), "fc.")


def test_unrolled_recurrent_modules_are_named_with_a_fix() -> None:
    model = nn.ModuleDict({"ours": LSTM(2, 3), "theirs": nn.LSTM(2, 3), "rnn": nn.RNN(2, 3), "cell": nn.LSTMCell(2, 3)})
    first, second = unrolled_modules(model)
    assert first.startswith('"theirs" is an nn.LSTM')
    assert second.startswith('"rnn" is an nn.RNN')
    assert all("engine.models.scan_lstm.LSTM" in sentence for sentence in (first, second))
    assert unrolled_modules(nn.LSTM(2, 3))[0].startswith("the network is an nn.LSTM")
    assert unrolled_modules(LstmClassifier(9)) == []


def test_only_bidirectional_gru_is_unrolled() -> None:
    model = nn.ModuleDict({"one": nn.GRU(2, 3), "both": nn.GRU(2, 3, bidirectional=True)})
    (sentence,) = unrolled_modules(model)
    assert sentence.startswith('"both" is an nn.GRU')
    assert "use engine.models.scan_lstm.LSTM in its place" in sentence


def trained(*cases: str) -> dict[str, Any]:
    """Results of training the networks on 8 virtual cores."""
    found: dict[str, Any] = on_cores("tests.engine.netcheck", *cases)
    return found


def learned(found: dict[str, Any]) -> None:
    """The loss fell, no operation ran on the host, nothing compiled after the second step."""
    assert found["parameters"] < 200_000
    assert found["losses"][-1] < 0.8 * found["losses"][0]
    assert found["fallbacks"] == {}
    first, last = found["compiles"][found["warm_up"] - 1], found["compiles"][-1]
    assert (last["begun"], last["done"]) == (first["begun"], first["done"])


@pytest.mark.xla
def test_same_grus_are_unrolled_with_runtime_imported() -> None:
    found = on_cores("tests.engine.grucheck")
    assert list(found["sentences"]) == ["both"]
    assert found["difference"] < 1e-5


@pytest.mark.slow
@pytest.mark.xla
def test_text_classifier_learns_on_8_cores_fp32_and_bf16() -> None:
    for found in trained("lstm:fp32", "lstm:bf16").values():
        learned(found)


# The other precision is covered by tests/engine/test_workloads.py.
@pytest.mark.xla
@pytest.mark.slow
@pytest.mark.parametrize("case", ["resnet:bf16", "unet:bf16"])
def test_an_image_network_learns_on_8_cores(case: str) -> None:
    learned(trained(case)[case])
