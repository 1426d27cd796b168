"""A linear model in JAX: jax_loop.py FOLDER"""

import sys

import jax
import jax.numpy as jnp

from warpfeed import transforms as t
from warpfeed.jax import DataLoader

steps = [t.RandomResizedCrop(32), t.Normalize((0.5,) * 3, (0.25,) * 3)]
loader = DataLoader(sys.argv[1], 8, shuffle=True, transform=steps, drop_last=True)


def loss_of(weights: jax.Array, images: jax.Array, labels: jax.Array) -> jax.Array:
    scores = jax.nn.log_softmax(images.reshape(len(images), -1) @ weights)
    return -jnp.take_along_axis(scores, labels[:, None], 1).mean()


def update(weights: jax.Array, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    loss, gradient = jax.value_and_grad(loss_of)(weights, images, labels)
    return weights - 0.01 * gradient, loss


step = jax.jit(update)
weights, loss = jnp.zeros((32 * 32 * 3, 4)), jnp.zeros(())
for epoch in range(2):
    for images, labels in loader:
        weights, loss = step(weights, images, labels)
    print(f"epoch {epoch}: loss {loss:.3f}")
