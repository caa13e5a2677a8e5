"""A small float32 MLP with manual backprop, and Adam."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
Int = npt.NDArray[np.int64]


def _rowwise_matmul(x: F32, weight: F32) -> F32:
    """X @ weight, one product per row: a row's bits don't depend on the batch it is in.

    For a matrix BLAS picks its arithmetic by shape and by a row's place in a tile, so the same row would differ in the
    last bit between rollout and minibatch.
    """
    product: F32 = np.matmul(x[:, None, :], weight)[:, 0]
    return product


def global_norm(arrays: Sequence[F32]) -> float:
    return float(np.sqrt(sum(np.sum(np.square(a, dtype=np.float64)) for a in arrays)))


class MLP:
    """tanh hidden layers, linear output; `params` alternates weights and biases."""

    def __init__(self, sizes: Sequence[int], rng: np.random.Generator, output_gain: float) -> None:
        self.params: list[F32] = []
        for index, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
            gain = output_gain if index == len(sizes) - 2 else 1.0
            weight = rng.normal(0.0, gain / np.sqrt(fan_in), (fan_in, fan_out))
            self.params += [weight.astype(np.float32), np.zeros(fan_out, np.float32)]

    @property
    def layers(self) -> list[F32]:
        """Weights and biases of the net; `params` may hold more."""
        return self.params

    def forward(self, inputs: F32) -> tuple[F32, list[F32]]:
        """Output for rows of inputs, and the activations that backward needs."""
        activations = [inputs]
        layers = self.layers
        for index in range(0, len(layers) - 2, 2):
            hidden = _rowwise_matmul(activations[-1], layers[index]) + layers[index + 1]
            activations.append(np.tanh(hidden))
        return _rowwise_matmul(activations[-1], layers[-2]) + layers[-1], activations

    def backward(self, activations: Sequence[F32], d_output: F32) -> list[F32]:
        grads: list[F32] = []
        delta = d_output
        for layer in range(len(activations) - 1, -1, -1):
            grads[:0] = [activations[layer].T @ delta, delta.sum(axis=0)]
            if layer:
                delta = (delta @ self.layers[2 * layer].T) * (1 - np.square(activations[layer]))
        return grads

    def snapshot(self) -> list[F32]:
        return [param.copy() for param in self.params]

    def distance(self, snapshot: Sequence[F32]) -> float:
        return global_norm([now - then for now, then in zip(self.params, snapshot, strict=True)])


class GaussianMLP(MLP):
    """An MLP for the means of a diagonal Gaussian, and logarithms of standard deviations that no input changes.

    A row of the output holds the means, then the logarithms.
    """

    def __init__(self, sizes: Sequence[int], rng: np.random.Generator, output_gain: float) -> None:
        super().__init__(sizes, rng, output_gain)
        self.log_std: F32 = np.zeros(sizes[-1], np.float32)
        self.params.append(self.log_std)

    @property
    def layers(self) -> list[F32]:
        return self.params[:-1]

    def forward(self, inputs: F32) -> tuple[F32, list[F32]]:
        means, activations = super().forward(inputs)
        return np.concatenate([means, np.broadcast_to(self.log_std, means.shape)], axis=-1), activations

    def backward(self, activations: Sequence[F32], d_output: F32) -> list[F32]:
        d_means, d_log_std = np.split(d_output, 2, axis=-1)
        return [*super().backward(activations, d_means), d_log_std.sum(axis=0)]


@dataclass(slots=True)
class Adam:
    """Adam with global-norm clipping; `step` returns the norm before clipping."""

    eps: float
    max_grad_norm: float | None
    betas: tuple[float, float] = (0.9, 0.999)
    steps: int = 0
    first: list[F32] = field(default_factory=list)
    second: list[F32] = field(default_factory=list)

    def step(self, params: Sequence[F32], grads: Sequence[F32], learning_rate: float) -> float:
        norm = global_norm(grads)
        scale = np.float32(self._clip_scale(norm))
        if not self.first:
            self.first = [np.zeros_like(p) for p in params]
            self.second = [np.zeros_like(p) for p in params]
        self.steps += 1
        for index, (param, grad) in enumerate(zip(params, grads, strict=True)):
            self._step_one(index, param, grad * scale, learning_rate)
        return norm

    def _clip_scale(self, norm: float) -> float:
        if self.max_grad_norm is None:
            return 1.0
        return float(np.minimum(1.0, self.max_grad_norm / (norm + 1e-6)))

    def _step_one(self, index: int, param: F32, grad: F32, learning_rate: float) -> None:
        beta1, beta2 = self.betas
        first, second = self.first[index], self.second[index]
        first += np.float32(1 - beta1) * (grad - first)
        second += np.float32(1 - beta2) * (np.square(grad) - second)
        corrected = np.sqrt(second / np.float32(1 - beta2**self.steps)) + np.float32(self.eps)
        param -= np.float32(learning_rate / (1 - beta1**self.steps)) * first / corrected


@dataclass(slots=True)
class SGD(Adam):
    """Plain gradient descent with the same clipping: the step is as small as the gradient."""

    def _step_one(self, _index: int, param: F32, grad: F32, learning_rate: float) -> None:
        param -= np.float32(learning_rate) * grad


def log_softmax(logits: F32) -> F32:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_probs: F32 = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return log_probs


def sample(logits: F32, rng: np.random.Generator) -> Int:
    """Gumbel-max sampling; NaN logits give index 0 instead of an exception."""
    drawn: Int = np.argmax(logits + rng.gumbel(size=logits.shape), axis=-1).astype(np.int64)
    return drawn
