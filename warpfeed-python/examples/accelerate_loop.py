"""accelerate, on one process or several (accelerate launch): accelerate_loop.py FOLDER"""

import sys

import torch
from accelerate import Accelerator
from torch import nn

from warpfeed import transforms as t
from warpfeed.accelerate import prepare
from warpfeed.torch import DataLoader

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
steps = [t.RandomResizedCrop(32), t.Normalize((0.5,) * 3, (0.25,) * 3)]
loader = DataLoader(sys.argv[1], 8, shuffle=True, transform=steps)
model = nn.Linear(3 * 32 * 32, 4)
model, optimizer, loader = prepare(accelerator, model, torch.optim.SGD(model.parameters(), 0.01), loader)
loss = torch.zeros(())
for epoch in range(2):
    loader.set_epoch(epoch)
    for images, labels in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(images.flatten(1)), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    accelerator.print(f"epoch {epoch}: loss {loss.item():.3f}")
