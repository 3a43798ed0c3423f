"""DistributedDataParallel on the digits, as torch's own tutorials have it. It knows of no tuner.

Alone: torchrun --standalone --nproc-per-node=2 train.py --lr 0.003
"""

import argparse
import json
import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--epochs", type=int, default=5)
args = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")
if has_gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if has_gpu else "gloo")

pixels, digits = load_digits(return_X_y=True)
images = torch.tensor(pixels / 16, dtype=torch.float32)
train_x, valid_x, train_y, valid_y = train_test_split(
    images, torch.tensor(digits), test_size=0.25, stratify=digits, random_state=0
)
training = TensorDataset(train_x, train_y)
sampler = DistributedSampler(training, seed=0)
batches = DataLoader(training, batch_size=64 // dist.get_world_size(), sampler=sampler)

torch.manual_seed(0)
network = nn.Sequential(nn.Linear(64, args.width), nn.ReLU(), nn.Linear(args.width, 10))
model = DistributedDataParallel(network.to(device), device_ids=[device] if has_gpu else None)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
for epoch in range(1, args.epochs + 1):
    sampler.set_epoch(epoch)
    for batch_images, batch_classes in batches:
        loss = cross_entropy(model(batch_images.to(device)), batch_classes.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        with torch.no_grad():
            found = model.module(valid_x.to(device)).argmax(dim=1).cpu()
        accuracy = float((found == valid_y).float().mean())
        print(json.dumps({"step": epoch, "accuracy": accuracy, "loss": loss.item()}))
dist.destroy_process_group()
