"""Reading the samples of a batch, each with random numbers that depend on (seed, epoch, index) alone.

Seeding costs more than most draws. torch's generator is seeded for every sample, because a dataset may also read its
seed. Python's and numpy's are seeded from the first batch on in which a sample drew from them. A later batch that draws
from another one is read again. Samples that never draw can be read together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate, get_worker_info

from hookline.common.rng import TWISTERS, mix
from hookline.errors import DataError, blame

if TYPE_CHECKING:
    from hookline.common.rng import State

#: The key of a sample: seed, epoch, index.
Key = tuple[int, int, int]

BEGINNING = itemgetter(0, 1)

torchs = torch.default_generator


class Seeded(Dataset[Any]):
    """A dataset that reads batches by keys (seed, epoch, index) and draws random numbers that depend on them alone.

    It also collates the batches, because a collate function may draw random numbers, too. A dataset or collate function
    that never draws any can save the time for seeding with an attribute `draws_random_numbers = False`. With `True`,
    all generators are seeded for every sample of a dataset. It needs this if it draws and then restores the state.
    """

    def __init__(self, dataset: Dataset[Any], collate: Callable[[list[Any]], Any] | None) -> None:
        self.dataset = dataset
        self.collate = default_collate if collate is None else collate
        draws, inner = getattr(dataset, "draws_random_numbers", None), _innermost(dataset)
        is_tensors = all(
            getattr(type(inner), name, None) is getattr(TensorDataset, name, None)
            for name in ("__getitem__", "__getitems__")
        )
        quiet = self.collate is default_collate or not getattr(self.collate, "draws_random_numbers", True)
        self._samples_draw = not is_tensors if draws is None else bool(draws)
        self._collate_draws = not quiet and (draws is None or bool(draws))
        #: Whether a batch is selected from tensors, without its samples.
        self._from_tensors = is_tensors and not self._samples_draw and self.collate is default_collate
        #: Whether samples are read together, as long as none of them draws.
        self._together = not draws and _reads_together(type(inner))
        #: The generators, by their place in TWISTERS, that are seeded for every sample.
        self._used: set[int] = set(range(len(TWISTERS))) if draws else set()
        #: Whether the next batch finds out which generators are used.
        self._finding_out = not draws

    def __getitems__(self, keys: list[Key]) -> Any:
        if not self._samples_draw and not self._collate_draws:
            batch = _select(self.dataset, [index for _, _, index in keys]) if self._from_tensors else None
            return self.collate(self._samples(keys)) if batch is None else batch
        # Restore the states afterwards: without workers, these are the generators that training uses.
        state, states = torchs.get_state(), [twister.state() for twister in TWISTERS]
        try:
            return self._read_seeded(keys, states)
        finally:
            torchs.set_state(state)
            for twister, before in zip(TWISTERS, states, strict=True):
                twister.restore(before)

    def _samples(self, keys: list[Key]) -> list[Any]:
        """Return samples that do not draw."""
        together = self._read_together(keys) if self._together else None
        if together is not None:
            return together
        samples: list[Any] = []
        with _Blame(keys, samples):
            samples.extend(self.dataset[index] for _, _, index in keys)
        return samples

    def _read_together(self, keys: list[Key]) -> list[Any] | None:
        """Return the samples of one call; None if it failed: reading one after the other finds the reason."""
        try:
            return self.dataset.__getitems__([index for _, _, index in keys])  # type: ignore[attr-defined, no-any-return]  # it has this method
        except Exception:
            self._together = False
            return None

    def _read_seeded(self, keys: list[Key], states: list[State]) -> Any:
        for number, state in enumerate(states):
            if state.official is not None:  # a draw would not show in it
                TWISTERS[number].seed(mix(*keys[0]))
                states = [*states[:number], TWISTERS[number].just_seeded(), *states[number + 1 :]]
        samples = self._draw_together(keys, states) if self._samples_draw and self._together else None
        while True:
            numbers = () if self._finding_out else set(range(len(TWISTERS))) - self._used
            unseeded = [(number, states[number]) for number in numbers]
            try:
                batch = self._collate(keys, self._draw_each(keys) if samples is None else samples)
            except Exception:
                if not self._note_draws(unseeded):
                    raise
            else:
                if not self._note_draws(unseeded):
                    self._finding_out = False
                    return batch

    def _draw_together(self, keys: list[Key], states: list[State]) -> list[Any] | None:
        """Return the samples of one call, if none of them drew a number."""
        torchs.manual_seed(mix(*keys[0]))
        state = torchs.get_state()
        samples = self._read_together(keys)
        drew = any(twister.differs(before) for twister, before in zip(TWISTERS, states, strict=True))
        if samples is not None and not drew and torch.equal(state, torchs.get_state()):
            return samples
        self._together, self._finding_out = False, True
        return None

    def _draw_each(self, keys: list[Key]) -> list[Any]:
        samples: list[Any] = []
        dataset, used, seed_torch = self.dataset, [TWISTERS[number] for number in self._used], torchs.manual_seed
        with _Blame(keys, samples):
            for seed, (_, _, index) in zip(_seeds(keys), keys, strict=True):
                if self._finding_out:
                    before = self._seed(seed)
                    samples.append(dataset[index])
                    self._note_draws(before)
                else:
                    seed_torch(seed)
                    for twister in used:
                        twister.seed(seed)
                    samples.append(dataset[index])
        return samples

    def _collate(self, keys: list[Key], samples: list[Any]) -> Any:
        if not self._collate_draws:
            return self.collate(samples)
        before = self._seed(mix(*keys[0], 1))
        batch = self.collate(samples)
        self._note_draws(before)
        return batch

    def _seed(self, seed: int) -> list[tuple[int, State]]:
        """Seed the generators. To find out which of them are used, seed all, and return their states."""
        torchs.manual_seed(seed)
        numbers = range(len(TWISTERS)) if self._finding_out else self._used
        for number in numbers:
            TWISTERS[number].seed(seed)
        return [(number, TWISTERS[number].just_seeded()) for number in numbers if self._finding_out]

    def _note_draws(self, before: list[tuple[int, State]]) -> bool:
        """Note the generators that were drawn from since some states, and return whether there are any."""
        drawn = {number for number, state in before if TWISTERS[number].differs(state)}
        self._used |= drawn
        return bool(drawn)


class _Blame:
    """Names the sample in an error: the one after those that were read."""

    def __init__(self, keys: list[Key], samples: list[Any]) -> None:
        self._keys, self._samples = keys, samples

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Exception):
            _, epoch, index = self._keys[len(self._samples)]
            worker = get_worker_info()
            where = "the training process" if worker is None else f"worker {worker.id}"
            blame(error, f"reading sample {index} of epoch {epoch} in {where}", exit_code=DataError.exit_code)


def _reads_together(kind: type) -> bool:
    """Return whether a class reads several samples in one call, and no subclass of it changes a single sample."""
    for base in kind.__mro__:
        if "__getitems__" in vars(base):
            return True
        if "__getitem__" in vars(base):
            return False
    return False


def _innermost(dataset: Any) -> Any:
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return dataset


def _select(dataset: Any, indices: list[int]) -> list[Tensor] | None:
    """Return the batch of the samples of a TensorDataset, or of a subset of one; None if only its samples can tell."""
    try:
        while type(dataset) is Subset:
            indices = [dataset.indices[index] for index in indices]
            dataset = dataset.dataset
        if not all(map(_is_plain, dataset.tensors)):
            return None
        places = torch.tensor(indices)
        return [tensor.index_select(0, places) for tensor in dataset.tensors]
    except (IndexError, RuntimeError, TypeError):  # reading the samples one by one finds the reason
        return None


def _is_plain(tensor: Tensor) -> bool:
    plain = type(tensor) is Tensor and tensor.device.type == "cpu" and not tensor.requires_grad
    return plain and tensor.is_contiguous() and not tensor.is_quantized


def _seeds(keys: Sequence[Key]) -> list[int]:
    """Return `mix(*key)` of each key, faster, because keys of a batch begin with the same numbers."""
    beginnings = set(map(BEGINNING, keys))
    if len(beginnings) > 1:
        return [mix(*key) for key in keys]
    begun = ",".join(map(str, beginnings.pop())).encode() + b","
    digests = [blake2b(begun + str(index).encode(), digest_size=8).digest() for _, _, index in keys]
    return [int.from_bytes(digest, "big") >> 1 for digest in digests]
