"""Checkpoints without the frozen rest of a model: `checkpoint: {params: trainable}`.

Such a checkpoint has only those entries of the model's state that training has changed, and a hash of each of the
others:

    state_dict   trained parameters, and everything else that differs from the model as it was built
    frozen       name -> shape and SHA-256, for all other entries: `(64, 32) 9f86d0...`

Who reads it completes it with the entries of a model that was built with the same base weights. An entry whose hash
differs is refused. So nothing else has to know about such checkpoints.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from hookline.checkpoint.compatibility import other_shapes, shape_of
from hookline.common.escape import escaped
from hookline.errors import StorageError

#: The entry of a checkpoint with the hashes of the tensors that are left out.
KEY = "frozen"
#: The columns into which the numbers of a tensor are put, to be summed up each.
LANES = 64

Fingerprint = tuple[Any, ...]


class FrozenRest:
    """The entries of a model's state as it was built, by cheap fingerprints, to find those that have changed."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._built = {name: fingerprint(value) for name, value in state.items() if _has_bytes(value)}
        self._hashes: dict[str, str] = {}

    def split(self, state: Mapping[str, Any], trained: Collection[str]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the entries that have to be saved, and the hashes of all others.

        An entry has to be saved if it is trained, or if it differs from the model as it was built, for any reason: it
        was trained earlier, a norm updates its statistics, or a hook has changed it.
        """
        kept, left = {}, {}
        for name, value in state.items():
            same = name not in trained and name in self._built and fingerprint(value) == self._built[name]
            if same:
                left[name] = self._hashes[name] = self._hashes.get(name) or described(value)
            else:
                kept[name] = value
        return kept, left


def strip(checkpoint: dict[str, Any], rest: FrozenRest, trained: Collection[str]) -> dict[str, Any]:
    """Return a checkpoint without the weights that a model has when it is built in the same way."""
    state = checkpoint["state_dict"]
    kept, left = rest.split(state, trained)
    stripped = {**checkpoint, "state_dict": kept, KEY: left}
    states = checkpoint.get("hooks")
    if isinstance(states, Mapping):
        # The average of a tensor that never changes is that tensor.
        stripped["hooks"] = {
            name: {**own, "averaged": _without_equal(own["averaged"], state, left)} if _is_average(own) else own
            for name, own in states.items()
        }
    return stripped


def _without_equal(averaged: Mapping[str, Any], state: Mapping[str, Any], left: Collection[str]) -> dict[str, Any]:
    return {
        name: value
        for name, value in averaged.items()
        if not (name in left and isinstance(value, Tensor) and torch.equal(value, state[name].to(value.dtype)))
    }


def is_partial(checkpoint: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint has only the trained part of a model."""
    return KEY in checkpoint


def complete(checkpoint: dict[str, Any], own: Mapping[str, Any], path: object, tolerant: bool = False) -> list[str]:
    """Add the entries of a model to a checkpoint that does not have them, if they are the ones that it was saved with.

    If they are not, it is refused, unless `tolerant`: then return their names.
    """
    hashes = checkpoint.pop(KEY)
    if not isinstance(hashes, dict) or not all(isinstance(each, str) for pair in hashes.items() for each in pair):
        raise StorageError(f"{path} cannot be used: {KEY} is not of the type that a run saves")
    wrong = list(_differing(hashes, own))
    if wrong and not tolerant:
        misfits = [*_of_another_shape(hashes, own), *other_shapes(own, checkpoint["state_dict"])]
        if misfits:
            raise StorageError(f"{path} does not fit the model; nothing was loaded:\n  " + "\n  ".join(misfits))
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise StorageError(
            f"{path} has only the trained parameters (params: trainable), and the frozen rest of this model is not the "
            f"one that it was trained with: {wrong[0]}{more}; nothing was loaded\n"
            "  build the model with the same base weights: the same load_from, or the same parameters of the model"
        )
    base = {name: own[name] for name in hashes if name in own}
    whole = {**base, **checkpoint["state_dict"]}
    order = [*(name for name in own if name in whole), *(name for name in whole if name not in own)]
    checkpoint["state_dict"] = {name: whole[name] for name in order}
    states = checkpoint.get("hooks")
    for state in states.values() if isinstance(states, dict) else ():
        if _is_average(state):
            state["averaged"] = {**base, **state["averaged"]}
    return wrong


def _differing(hashes: Mapping[str, str], own: Mapping[str, Any]) -> Iterator[str]:
    for name, expected in hashes.items():
        if name not in own:
            yield f"{escaped(name)} is missing"
        elif not _has_bytes(own[name]) or digest(own[name]) != expected.rpartition(" ")[2]:
            yield f"{escaped(name)} differs"


def _of_another_shape(hashes: Mapping[str, str], own: Mapping[str, Any]) -> Iterator[str]:
    """Yield the frozen entries that have another shape: this is the reason why their hashes differ."""
    for name, expected in hashes.items():
        shape = expected.rpartition(" ")[0]
        if shape and name in own and shape != str(shape_of(own[name])):
            yield f"{escaped(name)}: the model has {shape_of(own[name])}, the checkpoint {escaped(shape)}"


def _is_average(state: Any) -> bool:
    return isinstance(state, Mapping) and isinstance(state.get("averaged"), Mapping)


def _has_bytes(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout is torch.strided and not value.is_quantized


def fingerprint(tensor: Tensor) -> Fingerprint:
    """Return a few sums over the bits of a tensor. This is much cheaper than a hash, and runs on the device.

    The numbers are summed up in columns, so that a new order or new signs show up, too.
    """
    numbers = _bytes_of(tensor)
    if numbers.numel() % 4 == 0 and numbers.numel():
        numbers = numbers.view(torch.int32)
    whole = numbers.numel() // LANES * LANES
    sums = numbers[:whole].view(-1, LANES).sum(0, dtype=torch.int64)
    return (tensor.dtype, tuple(tensor.shape), *sums.tolist(), *numbers[whole:].tolist())


def described(tensor: Tensor) -> str:
    """Return the shape of a tensor, for messages, and its hash."""
    return f"{shape_of(tensor)} {digest(tensor)}"


def digest(tensor: Tensor) -> str:
    """Return the SHA-256 of a tensor: of its type, its shape and its bytes."""
    sha256 = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
    sha256.update(_bytes_of(tensor).cpu().numpy().data)
    return sha256.hexdigest()


def _bytes_of(tensor: Tensor) -> Tensor:
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return torch.view_as_real(flat).reshape(-1).view(torch.uint8) if flat.is_complex() else flat.view(torch.uint8)
