"""Trains the final digits model: the best configuration of the study, now on all of the images.

After python -m tuner.run study.yaml: python final.py
"""

import torch

import tuner
from tuner import Params
from tuner.trials.digits_mlp import Split, build_model, splits, train_epoch

FILE = "digits.pt"


def all_images() -> Split:
    training, validation = splits()
    return Split(
        images=torch.cat([training.images, validation.images]),
        classes=torch.cat([training.classes, validation.classes]),
    )


def build_optimizer(params: Params, model: torch.nn.Module) -> torch.optim.Optimizer:
    if params.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=params.lr, momentum=params.momentum)
    return torch.optim.AdamW(model.parameters(), lr=params.lr)


def main() -> None:
    best = tuner.load_best("sqlite:///digits.db", "digits-mlp")
    params = Params(best.params)
    print(f"trial {best.trial_number} had validation accuracy {best.value:.4f} with {params}")

    torch.manual_seed(best.seed)
    images = all_images()
    model = build_model(params.width, params.depth, params.dropout)
    optimizer = build_optimizer(params, model)
    for epoch in range(1, params.epochs + 1):
        loss = train_epoch(model, optimizer, images, params.batch_size)
        print(f"epoch {epoch}: loss {loss:.4f} on {len(images.classes)} images")

    # With where it came from, so that the file can be traced back to its trial and code.
    origin = {
        "study": best.study,
        "trial_number": best.trial_number,
        "params": dict(params),
        "accuracy": best.value,
        "seed": best.seed,
        "git_commit": best.git_commit,
    }
    torch.save({"model": model.state_dict(), "origin": origin}, FILE)
    print(f"{FILE} is written, from code of git commit {best.git_commit or 'unknown'}")


if __name__ == "__main__":
    main()
