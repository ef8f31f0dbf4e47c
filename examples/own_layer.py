"""A layer of one's own: say what its weight multiplies, and it is protected like any other.

python examples/own_layer.py     a few seconds; old outputs should move by less than 1e-4
"""

import torch
from torch import Tensor, nn

import nscl


class CosineLinear(nn.Module):
    """Scores by angle: rows of unit length times a weight. nscl has never heard of it."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, features) / features**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Angles, not lengths."""
        return nn.functional.normalize(x, dim=-1) @ self.weight.T


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 48), nn.Tanh(), CosineLinear(48, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    try:
        nscl.Memory(model)
    except nscl.NsclError as problem:  # an unknown layer is never passed over in silence
        print(f"before: {problem}\n")

    @nscl.register_layer(CosineLinear)
    def cosine_rows(module: CosineLinear, x: Tensor) -> Tensor:
        return nn.functional.normalize(x, dim=-1)  # the rows that `weight` multiplies

    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-6))
    memory.protect(optimizer)
    old = torch.randn(8, 32).repeat(8, 1)  # eight old inputs: few enough to leave much room
    before = model(old).detach()
    print(memory.remember([old]), "\n")

    x, y = torch.randn(64, 32), torch.randint(0, 4, (64,))
    losses = []
    for _ in range(200):
        loss = nn.functional.cross_entropy(10 * model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    moved = (model(old) - before).abs().max().item()
    print(f"new loss {losses[0]:.2f} -> {losses[-1]:.2f}; old outputs moved by at most {moved:.1e}")


if __name__ == "__main__":
    main()
