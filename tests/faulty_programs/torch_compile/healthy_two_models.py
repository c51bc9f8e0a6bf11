"""Healthy: two models of one class are compiled, and each has a program for each way in which it is called."""

import torch


def network(features, outputs):
    return torch.nn.Sequential(torch.nn.Linear(features, 16), torch.nn.ReLU(), torch.nn.Linear(16, outputs))


generator, critic = network(4, 8), network(8, 1)
generate, judge = torch.compile(generator, backend="aot_eager"), torch.compile(critic, backend="aot_eager")
generator_optimizer = torch.optim.Adam(generator.parameters())
critic_optimizer = torch.optim.Adam(critic.parameters())
noise, real = torch.ones(16, 4), torch.ones(16, 8)
for _ in range(20):
    made = generate(noise)
    loss = judge(made.detach()).mean() - judge(real).mean()
    critic_optimizer.zero_grad()
    loss.backward()
    critic_optimizer.step()
    generator_optimizer.zero_grad()
    (-judge(made).mean()).backward()
    generator_optimizer.step()
print("loss", loss.item())
