from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from hookline.dialects.mmengine.structures import BaseDataElement, InstanceData, LabelData, PixelData


def test_fields_are_data_or_metadata_and_keep_their_order() -> None:
    element = BaseDataElement(metainfo={"shape": (2, 3)}, b=1, a=torch.zeros(2))
    element.c = "x"
    assert (element.keys(), element.metainfo_keys(), element.all_keys()) == (
        ["b", "a", "c"],
        ["shape"],
        ["shape", "b", "a", "c"],
    )
    assert ("c" in element, element.get("d", 4), element.pop("c"), "c" in element) == (True, 4, "x", False)
    with pytest.raises(
        AttributeError, match=r"^'shape' is already a field of the metainfo, so it cannot be set in the d"
    ):
        element.shape = 1
    with pytest.raises(
        AttributeError, match=r"^'b' is already a field of the data, so it cannot be set in the metainfo"
    ):
        element.set_metainfo({"b": 1})
    with pytest.raises(AttributeError, match=r"^'_data_fields' is private"):
        element._data_fields = {}  # type: ignore[assignment]
    with pytest.raises(KeyError, match="'z' is neither in the metainfo nor in the data"):
        element.pop("z")
    del element.a
    assert element.to_dict() == {"shape": (2, 3), "b": 1}


def test_copies_convert_what_they_hold() -> None:
    inner = InstanceData(scores=torch.ones(2, requires_grad=True))
    element = BaseDataElement(metainfo={"name": ["x"]}, inner=inner, size=np.zeros(2), other=1)
    moved = element.to(torch.float64)
    assert (moved.inner.scores.dtype, inner.scores.dtype, moved.other) == (torch.float64, torch.float32, 1)
    assert not element.detach().inner.scores.requires_grad
    assert isinstance(element.to_tensor().size, torch.Tensor)
    assert isinstance(inner.numpy().scores, np.ndarray)
    assert element.new(a=1).keys() == ["a"]
    element.clone().name.append("y")
    assert element.name == ["x"]
    assert pickle.loads(pickle.dumps(element)).inner.scores.tolist() == [1, 1]
    assert repr(BaseDataElement(metainfo={"a": 1}, b={"c": 2})).startswith(
        "<BaseDataElement(\n\n    META INFORMATION\n    a: 1\n\n    DATA FIELDS\n    b: \n        c: 2\n) at 0x"
    )


class Boxes:
    """A type of a project: it has a length, can be indexed and concatenated."""

    def __init__(self, values: list[int]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, item: slice) -> Boxes:
        return Boxes(self.values[item])

    @staticmethod
    def cat(parts: list[Boxes]) -> Boxes:
        return Boxes([value for part in parts for value in part.values])


def test_instances_are_selected_and_joined_in_all_fields() -> None:
    found = InstanceData(
        metainfo={"image": 1}, t=torch.arange(3), n=np.arange(3), l=["a", "b", "c"], s="xyz", o=Boxes([5, 6, 7])
    )
    for index in (torch.tensor([2, 0]), np.array([2, 0], dtype=np.int32), [2, 0]):
        two = found[index]
        assert (two.t.tolist(), two.n.tolist(), two.l, two.s, two.o.values) == (
            [2, 0],
            [2, 0],
            ["c", "a"],
            "zx",
            [7, 5],
        )
        assert two.image == 1
    none = found[torch.zeros(3, dtype=torch.bool)]
    assert (len(none), none.l, none.s, none.o.values) == (0, [], "", [])
    assert (found[1].l, found[-1].t.tolist(), found[1:].s) == (["b"], [2], "yz")
    both = InstanceData.cat([found, two])
    assert (both.t.tolist(), both.s, both.o.values) == ([0, 1, 2, 2, 0], "xyzzx", [5, 6, 7, 7, 5])
    with pytest.raises(AssertionError, match=r"^'w' has 2 entries, but this InstanceData has 3 instances$"):
        found.w = [1, 2]
    with pytest.raises(AssertionError, match=r"^'w' of an InstanceData must have a length$"):
        found.w = 1
    with pytest.raises(AssertionError, match=r"^2 booleans cannot select from 3 instances$"):
        found[torch.ones(2, dtype=torch.bool)]
    with pytest.raises(IndexError, match="^instance 3 does not exist: there are 3$"):
        found[3]
    with pytest.raises(AssertionError, match="^elements with different fields cannot be concatenated"):
        InstanceData.cat([found, InstanceData(t=torch.zeros(1))])


def test_pixels_have_one_size() -> None:
    found = PixelData(mask=torch.zeros(2, 4, 6))
    assert (found.shape, found[1:3, 2].mask.shape) == ((4, 6), (2, 2, 1))
    with pytest.warns(UserWarning, match=r"^'flat' has no channels: it is stored with one, as \(1, 4, 6\)$"):
        found.flat = np.zeros((4, 6))
    assert found.flat.shape == (1, 4, 6)
    with pytest.raises(
        AssertionError, match=r"^'other' has the height and width \(5, 6\), but this PixelData has \(4, 6"
    ):
        found.other = torch.zeros(1, 5, 6)
    with pytest.raises(TypeError, match="^pixels are selected by height and width, not with a int$"):
        found[1]


def test_labels_and_one_hot_vectors() -> None:
    assert LabelData.onehot_to_label(torch.tensor([0, 1, 1])).tolist() == [1, 2]
    assert LabelData.label_to_onehot(torch.tensor([2, 0]), 3).tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match="^expected a tensor with one dimension and entries between 0 and 1$"):
        LabelData.onehot_to_label(torch.tensor([2]))
    with pytest.raises(AssertionError, match="^a label is too large for 2 classes$"):
        LabelData.label_to_onehot(torch.tensor([2]), 2)
