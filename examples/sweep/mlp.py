"""The model of the sweep: its parameters are keys of the config, so a range can change them."""

from torch import Tensor, nn


class Mlp(nn.Module):
    """An MLP for the digits.

    Args:
        hidden: The number of hidden units.
        dropout: The fraction of them that is dropped in training.
    """

    def __init__(self, hidden: int = 64, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, 10)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the class scores of images."""
        return self.layers(images)
