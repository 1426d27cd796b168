"""A model of timm's, with the arguments of timm's create_loader: timm_loop.py FOLDER"""

import sys

import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy

from warpfeed.timm import create_loader

mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=4)
augment = "rand-m9-mstd0.5-inc1"
loader = create_loader(
    sys.argv[1], 32, 8, is_training=True, auto_augment=augment, re_prob=0.25, re_mode="pixel", mixup=mixup
)
model = timm.create_model("resnet10t", num_classes=4)
optimizer, criterion = torch.optim.SGD(model.parameters(), 0.05), SoftTargetCrossEntropy()
loss = torch.zeros(())
for epoch in range(2):
    for images, targets in loader:
        loss = criterion(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
