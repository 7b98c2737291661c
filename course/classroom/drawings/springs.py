"""Workers on a bowl, tied to a centre by springs: `springs` walks them, `show_springs` draws it."""

import torch

from course.classroom import figures

HIGHEST = 14  # x in the picture


def springs(rate, alpha, tau, workers=4, steps=120, noise=4.0, start=10.0):
    """Places of workers [steps + 1, workers] and of their centre [steps + 1] on the bowl x^2 / 2.

    Slopes have an error of deviation `noise`, one draw for all settings; in steps 0, tau, ... the
    springs pull at both ends.
    """
    errors = noise * torch.randn(steps, workers, generator=torch.Generator().manual_seed(0))
    x, c = torch.full((workers,), start), torch.tensor(start)
    xs, cs = [x], [c]
    for step, error in enumerate(errors):
        force = alpha * (x - c) if step % tau == 0 else torch.zeros(workers)
        x, c = x - rate * (x + error) - force, c + force.sum()
        xs.append(x)
        cs.append(c)
    return torch.stack(xs), torch.stack(cs)


def show_springs(rate, alpha, tau):
    """The walks of four workers and of their centre; the title says where the centre is."""
    xs, c = springs(rate, alpha, tau)
    outside = (c.abs() > 2 * HIGHEST).nonzero()
    seen = int(outside[0]) if len(outside) else len(c)
    axes = figures.panels(1, 6.6, 3)[0]
    axes.plot(xs[:seen], color="0.6", linewidth=0.7)
    axes.plot(c[:seen], color="black", linewidth=2, linestyle="--")
    axes.axhline(0, color="0.3", linewidth=0.6)
    far, gap = c[-20:].abs().max().item(), (xs - c[:, None])[-20:].abs().max().item()
    told = f"at {c[20]:.1f} in step 20; last 20: at most {far:.2g} from 0, {gap:.2g} from a worker"
    answer = f"Centre {told if far < 100 else 'more than 100 away in the end'}"
    figures.named(axes, answer, "step (thin lines: workers, dashed: their centre)", "x (bottom: 0)")
    axes.set(xlim=(0, len(c) - 1), ylim=(-HIGHEST, HIGHEST))
    return axes
