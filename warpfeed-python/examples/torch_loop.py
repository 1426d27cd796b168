"""A training loop that can be stopped anywhere, and goes on with the next batch: torch_loop.py FOLDER [CHECKPOINT]"""

import os
import sys

import torch
from torch import nn
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from warpfeed.torch import DataLoader  # was: from torch.utils.data import DataLoader

EPOCHS = 3

folder, checkpoint = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "checkpoint.pt"
steps = [T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3)]
data = ImageFolder(folder, T.Compose(steps))
loader = DataLoader(data, batch_size=8, shuffle=True)

torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 64), nn.ReLU(), nn.Linear(64, len(data.classes)))
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
first = 0
if os.path.exists(checkpoint):
    saved = torch.load(checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    loader.load_state_dict(saved["loader"])
    first = saved["loader"]["epoch"]

for epoch in range(first, EPOCHS):
    losses = []
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()}
        torch.save(state, checkpoint)
    print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f} over {len(losses)} batches")
