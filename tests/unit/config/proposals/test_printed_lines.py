"""The pattern that is proposed for a printed line reads the line that the program prints."""

from __future__ import annotations

import ast
import contextlib
import io
import re

import pytest
from tqdm import tqdm

from tuner.config.notation.metric_pattern import expand
from tuner.config.proposals.printed_lines import printed_result, result_of

#: Prints, as public programs have them; they are executed with these values.
VALUES = {
    "epoch": 3,
    "epochs": 90,
    "i": 7,
    "loss": 0.25,
    "val_loss": 0.5,
    "acc": 0.75,
    "correct": 9,
    "n": 10,
    "losses": {"train": 0.25, "val": 0.5},
    "lr": 1e-05,
    "reward": [24.0],
    "fps": 60,
}
PRINTS = {
    "f-string": ('print(f"epoch {epoch}: loss {loss:.4f}")', "loss", "minimize", 3, 0.25),
    "of-an-epoch": (
        'print(f"Epoch [{epoch}/{epochs}], Loss: {loss:.4f}, Val Acc: {acc:.2%}")',
        "val_acc",
        "maximize",
        3,
        75,
    ),
    "both-kinds-of-data": (
        "print(f\"step {i}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}\")",
        "val_loss",
        "minimize",
        7,
        0.5,
    ),
    "format": (
        "print('\\nTest set: Average loss: {:.4f}, Accuracy: {}/{} ({:.0f}%)\\n'"
        ".format(loss, correct, n, 100.0 * correct / n))",
        "loss",
        "minimize",
        None,
        0.25,
    ),
    "format-by-name": (
        'print("[{e:03d}] val_loss={v:8.3f}".format(e=epoch, v=val_loss))',
        "val_loss",
        "minimize",
        3,
        0.5,
    ),
    "percent": (
        'print("epoch %3d | lr %.2e | accuracy %6.2f%%" % (epoch, lr, 100 * acc))',
        "accuracy",
        "maximize",
        3,
        75,
    ),
    "words": ('print("Epoch:", epoch, "Valid loss:", val_loss)', "valid_loss", "minimize", 3, 0.5),
    "sum": ('print("acc: " + str(acc) + " (end)")', "acc", "maximize", None, 0.75),
    "array": (
        'print(f"global_step={i}, episodic_return={reward}")',
        "episodic_return",
        "maximize",
        7,
        24,
    ),
    "logger": (
        'logger.info("iter %d: perplexity = %s", i, loss)',
        "perplexity",
        "minimize",
        7,
        0.25,
    ),
    "mean-of-episodes": (
        'print(f"Episode {i}\\tLast reward: {fps}\\tAverage reward: {acc:.2f}")',
        "reward",
        "maximize",
        7,
        0.75,
    ),
    "a-metric": (
        'metric = acc; print(f"epoch {epoch}: {100 * metric:.2f}")',
        "metric",
        "maximize",
        3,
        75,
    ),
    "name-of-the-value": ('print(f"result {val_loss:.3f}")', "loss", "minimize", None, 0.5),
}


class Logger:
    def info(self, text: str, *values: object) -> None:
        print("INFO:train:" + text % values)


def printed(text: str) -> list[str]:
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        exec(text, {"logger": Logger(), **VALUES})
    return stream.getvalue().splitlines()


@pytest.mark.parametrize(
    ("text", "name", "direction", "step", "value"), PRINTS.values(), ids=PRINTS
)
def test_pattern_reads_the_printed_line(
    text: str, name: str, direction: str, step: int | None, value: float
) -> None:
    result = printed_result(ast.parse(text))
    assert result is not None
    assert (result.name, result.direction) == (name, direction)
    pattern = re.compile(expand(result.pattern))
    (found,) = filter(None, map(pattern.search, printed(text)))
    assert float(found[name]) == value
    assert ("step" in pattern.groupindex) == (step is not None)
    if step is not None:
        assert int(found["step"]) == step


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (['print(f"Train loss {loss}")', 'print(f"Test loss {loss}")'], 2),
        (['print(f"test acc {acc}")', 'print(f"train epoch {epoch} loss {loss}")'], 1),
        (['print(f"epoch {epoch} loss {loss}")', 'print(f"loss {loss}")'], 1),
        (['print(f"loss {loss}")', 'print(f"final loss {loss}")'], 2),
    ],
    ids=["held-out", "held-out-first", "with-a-step", "the-last-one"],
)
def test_the_line_of_the_result_is_chosen(texts: list[str], line: int) -> None:
    result = printed_result(ast.parse("\n".join(texts)))
    assert result is not None
    assert result.line == line


@pytest.mark.parametrize(
    "text",
    [
        "print('loss')",
        "print(f'{fps:.1f} frames per second')",
        "print(loss)",
        "print('%d %d' % (1,)); print('{} {'.format(loss))",
        "def loss(): ...\nprint(lossy, f'{epochs} epochs')",
    ],
)
def test_no_line_is_proposed_without_a_metric_and_a_word(text: str) -> None:
    assert printed_result(ast.parse(text)) is None


BAR = """
import argparse
from tqdm import tqdm
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
for epoch in range(3):
    bar = tqdm(batches, desc=f"Epoch {epoch + 1}/3")
    for batch in bar:
        bar.set_postfix(POSTFIX)
"""


@pytest.mark.parametrize(
    ("postfix", "name", "direction"),
    [
        ("loss=loss.item(), lr=lr", "loss", "minimize"),
        ("{'train_loss': a, 'val_acc': b}", "val_acc", "maximize"),
        ("OrderedDict(acc=a)", "acc", "maximize"),
    ],
)
def test_what_a_progress_bar_shows_is_read(postfix: str, name: str, direction: str) -> None:
    result = result_of(ast.parse(BAR.replace("POSTFIX", postfix)))
    assert result is not None
    assert (result.name, result.direction) == (name, direction)
    shown = io.StringIO()
    for epoch in range(2):
        bar = tqdm(range(4), desc=f"Epoch {epoch + 1}/3", file=shown, mininterval=0)
        for batch in bar:
            bar.set_postfix({"lr": 0.1, name: epoch + batch / 10})
    pattern = re.compile(expand(result.pattern))
    found = [each for line in shown.getvalue().split("\r") if (each := pattern.search(line))]
    read = {float(each["step"]): float(each[name]) for each in found}
    assert read == {1.0: 0.3, 2.0: 1.3}


def test_a_bar_without_a_metric_is_no_result() -> None:
    assert result_of(ast.parse(BAR.replace("POSTFIX", "lr=lr"))) is None
