"""DistributedDataParallel on the digits, one process per device, started by mpirun.

`tuner.current` takes the rank of each process from Open MPI, so that each has a device of its own.
Alone: mpirun -n 2 python train.py
"""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import tuner
from tuner import ddp

EPOCHS = 3

trial = tuner.current(defaults={"lr": 3e-3, "width": 64})
print(f"rank {trial.rank} of {trial.world_size} on {trial.device}", flush=True)

pixels, digits = load_digits(return_X_y=True)
images = torch.tensor(pixels / 16, dtype=torch.float32)
train_x, valid_x, train_y, valid_y = train_test_split(
    images, torch.tensor(digits), test_size=0.25, stratify=digits, random_state=0
)
with ddp.group(trial):
    torch.manual_seed(trial.seed)
    layers = (nn.Linear(64, trial.params.width), nn.ReLU(), nn.Linear(trial.params.width, 10))
    model = ddp.wrap(nn.Sequential(*layers).to(trial.device), trial)
    batches = ddp.loader(TensorDataset(train_x, train_y), trial, batch_size=128 // trial.world_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=trial.params.lr)
    for epoch in range(1, EPOCHS + 1):
        batches.sampler.set_epoch(epoch)
        for batch_images, batch_classes in batches:
            loss = cross_entropy(
                model(batch_images.to(trial.device)), batch_classes.to(trial.device)
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            found = ddp.unwrap(model)(valid_x.to(trial.device)).argmax(dim=1).cpu()
        # Of all ranks, only the reports of rank 0 are sent.
        accuracy = float((found == valid_y).float().mean())
        trial.report(accuracy, epoch)
        if trial.should_prune():
            break
if trial.is_main:
    print(f"accuracy {accuracy:.3f}")
