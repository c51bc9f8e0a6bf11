"""The loop never calls torch_xla.sync(), so that each program contains all steps before it."""

from small import Net

net = Net()
total = 0.0
for x, y in net.batches(14):
    loss = net.loss(x, y)
    net.update(loss)
    total += loss.item()  # fault: recompile
print("mean loss", total / 14)
