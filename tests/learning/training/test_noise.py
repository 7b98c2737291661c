import pytest
import torch

from course.learning.training.noise import gradient_noise_scale


def test_by_hand():
    slopes = torch.tensor([-1.0, -2.0, -3.0, -6.0], dtype=torch.float64)
    assert gradient_noise_scale(slopes[:, None]) == pytest.approx(14 / 3 / 9)


def test_at_a_batch_of_the_noise_scale_the_noise_is_as_long_as_the_gradient():
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(20_000, 30, generator=generator, dtype=torch.float64)
    signal = torch.linspace(0.1, 0.5, 30, dtype=torch.float64)
    batch = round(gradient_noise_scale(signal + 2 * noise))
    means = (signal + 2 * noise)[: 20_000 // batch * batch].view(-1, batch, 30).mean(dim=1)
    away = (means - signal).square().sum(dim=1).mean()
    assert batch > 10 and away / signal.square().sum() == pytest.approx(1, rel=0.05)
