"""A space that plain lists cannot say: as many widths as there are layers, none above the last."""

from optuna.trial import BaseTrial


def build(trial: BaseTrial) -> None:
    trial.suggest_float("lr", 1e-4, 1e-1, log=True)
    widest = 128
    for layer in range(trial.suggest_int("n_layers", 1, 3)):
        widest = trial.suggest_int(f"width_{layer}", 8, widest, log=True)
