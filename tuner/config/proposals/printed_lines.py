"""Finds the printed line of a script that holds its result, and the pattern that reads it.

The script is not run: calls such as `print(f"epoch {epoch}: loss {loss:.4f}")` are read from its
text. A number is known by the words before it, or by the name of the value.
"""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.config.rules import STEP

#: Names of functions and methods that print a line.
_PRINTS = frozenset({"print", "info", "echo", "write", "secho", "main_print", "print_rank_0"})
_LOWER = "loss|perplexity|ppl|rmse|mae|mse|nll|wer|cer|fid|err(?:or)?"
_HIGHER = (
    "acc(?:uracy)?|auc|auroc|f1|score|reward|returns?|bleu|rouge|m?iou|map|r2|psnr|ssim|dice|"
    "precision|recall|top1|acc1|metric"
)
_METRIC = re.compile(rf"(?<![a-z])(?:{_LOWER}|{_HIGHER})(?![a-z])")
_IS_LOWER = re.compile(rf"(?<![a-z])(?:{_LOWER})$")
_STEP = re.compile(
    r"(?<![a-z])(?:epochs?|steps?|iters?|iterations?|it|global_step|updates?|episodes?|rounds?)$"
)
#: A pattern without a word would match lines of all kinds.
_LEAST_WORD = re.compile(r"[A-Za-z]{3}")
_HELD_OUT = re.compile(r"(?<![a-z])(?:val|valid|validation|test|eval|evaluation|dev)(?![a-z])")
_TRAINING = re.compile(r"(?<![a-z])train(?:ing)?(?![a-z])")
#: Values of single batches or episodes are noise.
_MEAN = re.compile(r"(?<![a-z])(?:average|avg|mean|running|smoothed)(?![a-z])")
_SPECIAL = re.compile(r"([\\.^$*+?{}\[\]()|])")
_HAS_WIDTH = re.compile(r"[ <>^+-]*[1-9]")
_WORDS = re.compile(r"[A-Za-z_][\w]*")
_OF_PERCENT = re.compile(r"%(?:\((\w+)\))?([-#0 +]*\d*(?:\.\d+)?)([diouxXeEfFgGcrsa%])")
#: More of a label belongs to another number.
_LABEL_WORDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedResult:
    """A line that a script prints, and how its numbers are read."""

    #: 0 for a line that a library prints.
    line: int
    #: Name of the objective.
    name: str
    direction: str
    pattern: str
    #: Words of the command without which the line is not printed.
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Number:
    """A position in a line at which a value is printed."""

    #: The value, as the program has it.
    value: str
    #: Its format, such as `.4f`; empty if it has none.
    form: str
    #: The words before it.
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    line: int
    parts: tuple[str | _Number, ...]

    @property
    def numbers(self) -> list[_Number]:
        return [each for each in self.parts if isinstance(each, _Number)]


def result_of(tree: ast.Module) -> PrintedResult | None:
    """The printed line with a script's result; None if none is recognized.

    Args:
        tree: The script, which is not run.
    """
    found = printed_result(tree) or _result_of_bar(tree)
    return found or (_result_of_trainer(tree) if _uses_trainer(tree) else None)


def printed_result(tree: ast.Module, *, wanted: str = "") -> PrintedResult | None:
    """The line of a script that most likely holds what is tuned; None if no line has a metric.

    Values of held-out data are preferred to those of training, a line with a step to one without.

    Args:
        tree: The script, which is not run.
        wanted: Name of the metric that is taken where a line has it.
    """
    lines = list(_lines(tree))
    named = [
        (line, each)
        for line in lines
        for each in line.numbers
        if _METRIC.search(_metric_words(each)) and _name(each) == wanted
    ]
    best = [(line, metric) for line in lines if (metric := _metric(line)) is not None]
    found = [each for each in named if _has_words(*each)]
    found = found or [each for each in best if _has_words(*each)]
    if not found:
        return None
    # The last one of equals: what is printed after training is the result.
    line, metric = max(found, key=lambda each: (_merit(*each), each[0].line))
    return PrintedResult(
        line=line.line,
        name=_name(metric),
        direction="minimize" if _is_lower_better(metric) else "maximize",
        pattern=_pattern(line, metric),
    )


def _result_of_bar(tree: ast.Module) -> PrintedResult | None:
    """What a bar of tqdm shows when it is full: `bar.set_postfix(loss=loss)`."""
    for call in _calls(tree, "set_postfix"):
        shown = [_Number(value=value, form="", label=name) for name, value in _named_values(call)]
        metrics = [each for each in shown if _METRIC.search(each.label.lower())]
        if metrics:
            best = max(metrics, key=lambda each: _HELD_OUT.search(each.label.lower()) is not None)
            before = next(filter(None, map(_step_of_bar, ast.walk(tree))), "")
            return PrintedResult(
                line=call.lineno,
                name=_name(best),
                direction="minimize" if _is_lower_better(best) else "maximize",
                pattern=f"{before}100%.*[ ,]{_escaped(best.label)}={{{_name(best)}}}",
            )
    return None


def _calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name:
            yield node


def _named_values(call: ast.Call) -> Iterator[tuple[str, str]]:
    for word in call.keywords:
        if word.arg:
            yield word.arg, ast.unparse(word.value)
    for given in call.args:
        if isinstance(given, ast.Call):
            yield from _named_values(given)  # OrderedDict(loss=loss)
        elif isinstance(given, ast.Dict):
            for key, value in zip(given.keys, given.values, strict=True):
                if isinstance(key, ast.Constant):
                    yield str(key.value), ast.unparse(value)


def _step_of_bar(node: ast.AST) -> str:
    """The step that a bar shows in front: `tqdm(batches, desc=f"Epoch {epoch}")`."""
    if not isinstance(node, ast.Call):
        return ""
    name = ast.unparse(node.func).rpartition(".")[2]
    given = [each.value for each in node.keywords if each.arg == "desc"]
    given += node.args[:1] if name == "set_description" else []
    for text in given:
        parts = tuple(_labelled(_parts(text)))
        step = _step(_Line(line=0, parts=parts))
        if step is not None:
            before = parts[: parts.index(step) + 1]
            return "".join(_expression(each, step, step) for each in before) + ".*"
    return ""


def _uses_trainer(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "transformers"
        and any(each.name.endswith("Trainer") for each in node.names)
        for node in ast.walk(tree)
    )


def _result_of_trainer(tree: ast.Module) -> PrintedResult:
    """The output of the transformers Trainer at each evaluation, if the script evaluates."""
    text = ast.unparse(tree)
    switches = [f"--{name}" for name in ("do_train", "do_eval") if f".{name}" in text]
    has_options = "HfArgumentParser" in text
    return PrintedResult(
        line=0,
        name="eval_loss",
        direction="minimize",
        # Numbers are in quotes since version 5.
        pattern="'eval_loss': '?{eval_loss}.*'epoch': '?{step}",
        words=("--eval_strategy=epoch", *switches) if has_options else (),
    )


def _has_words(line: _Line, metric: _Number) -> bool:
    return _LEAST_WORD.search(re.sub(r"\{\w+\}", "", _pattern(line, metric))) is not None


def _merit(line: _Line, metric: _Number) -> int:
    text = _context(line, metric)
    is_held_out = _HELD_OUT.search(text) is not None
    is_training = _TRAINING.search(text) is not None and not is_held_out
    is_mean = _MEAN.search(f"{metric.label} {metric.value}".lower()) is not None
    return 8 * is_held_out - 8 * is_training + 2 * (_step(line) is not None) + is_mean


def _context(line: _Line, metric: _Number) -> str:
    """Text that shows which data a value is from: its own words, or the line's beginning."""
    own = f"{metric.label} {metric.value}".lower()
    if _HELD_OUT.search(own) or _TRAINING.search(own):
        return own
    first = line.parts[0]
    return f"{own} {first if isinstance(first, str) else ''}".lower()


def _metric(line: _Line) -> _Number | None:
    metrics = [each for each in line.numbers if _METRIC.search(_metric_words(each))]
    return max(metrics, key=lambda each: _merit(line, each), default=None)


def _metric_words(number: _Number) -> str:
    """The words of a metric: the label if it names one, else with the name of the value."""
    label = number.label.lower()
    has_own_label = _METRIC.search(label) or _STEP.search(label)
    return label if has_own_label else f"{label} {number.value}".lower()


def _is_lower_better(metric: _Number) -> bool:
    return _IS_LOWER.search(_metric_word(metric)) is not None


def _metric_word(metric: _Number) -> str:
    return [found[0] for found in _METRIC.finditer(_metric_words(metric))][-1]


def _name(metric: _Number) -> str:
    """Such as `loss`, `val_loss` or `episodic_return`."""
    words = [each.lower() for each in _WORDS.findall(metric.label)]
    for place in reversed(range(len(words))):
        if _METRIC.search(words[place]):
            before = words[place - 1] if place else ""
            return f"{before}_{words[place]}" if _HELD_OUT.fullmatch(before) else words[place]
    return _metric_word(metric)


def _step(line: _Line) -> _Number | None:
    for number in line.numbers:
        words = number.label.lower().rstrip(" _")
        if _STEP.search(words) or (not words and _STEP.search(number.value.lower())):
            return number
    return None


def _pattern(line: _Line, metric: _Number) -> str:
    step = _step(line)
    parts = line.parts
    places = [
        place for place, each in enumerate(parts) if each is metric or (step and each is step)
    ]
    first, last = min(places), max(places)
    text = "".join(_expression(each, step, metric) for each in parts[first : last + 1])
    before = parts[first - 1] if first else ""
    return (_escaped(before.lstrip()) if isinstance(before, str) else "") + text


def _expression(part: str | _Number, step: _Number | None, metric: _Number) -> str:
    if isinstance(part, str):
        return _escaped(part)
    if part is not step and part is not metric:
        return ".*"
    blanks = " *" if _HAS_WIDTH.match(part.form) else ""
    if part is step:
        return f"{blanks}{{{STEP}}}"
    # Printed as they are, tensors and arrays have `tensor(` or `[` before the digits.
    return f"{blanks if part.form else '.*?'}{{{_name(metric)}}}"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text).replace("\t", r"\t")


# -- the calls -----------------------------------------------------------------------------------


def _lines(tree: ast.Module) -> Iterator[_Line]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        if name in _PRINTS:
            for parts in _split(_parts_of_call(node, name)):
                yield _Line(line=node.lineno, parts=tuple(_labelled(parts)))


def _parts_of_call(node: ast.Call, name: str) -> list[str | _Number]:
    first, *others = node.args
    if name == "info" and others and isinstance(first, ast.Constant):
        return _of_percent(str(first.value), others)
    parts: list[str | _Number] = []
    for place, argument in enumerate(node.args):
        parts += [" "] if place else []
        parts += _parts(argument)
    return parts


def _parts(node: ast.expr) -> list[str | _Number]:
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.JoinedStr):
        return [_of_place(each) for each in node.values]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_parts(node.left), *_parts(node.right)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        text, right = node.left, node.right
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            return _of_percent(text.value, right.elts if isinstance(right, ast.Tuple) else [right])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        text = node.func.value
        if node.func.attr == "format" and isinstance(text, ast.Constant):
            return _of_format(str(text.value), node)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "str" and node.args:
        return _parts(node.args[0])
    return [_Number(value=ast.unparse(node), form="")]


def _of_place(node: ast.expr) -> str | _Number:
    if not isinstance(node, ast.FormattedValue):
        return str(node.value) if isinstance(node, ast.Constant) else ""
    form = ast.unparse(node.format_spec).strip("f'\"") if node.format_spec else ""
    return _Number(value=ast.unparse(node.value), form=form)


def _of_format(text: str, node: ast.Call) -> list[str | _Number]:
    named = {each.arg: ast.unparse(each.value) for each in node.keywords if each.arg}
    values = [ast.unparse(each) for each in node.args]
    parts: list[str | _Number] = []
    n_places = 0
    try:
        for literal, name, form, _ in string.Formatter().parse(text):
            parts.append(literal)
            if name is not None:
                place = int(name) if name.isdigit() else n_places
                value = named.get(name) or (values[place] if place < len(values) else name)
                parts.append(_Number(value=value, form=form or ""))
                n_places += 1
    except ValueError:
        return []
    return parts


def _of_percent(text: str, values: Sequence[ast.expr]) -> list[str | _Number]:
    parts: list[str | _Number] = []
    written = [ast.unparse(each) for each in values]
    end = 0
    for found in _OF_PERCENT.finditer(text):
        parts.append(text[end : found.start()])
        end = found.end()
        if found[3] == "%":
            parts.append("%")
            continue
        value = written.pop(0) if written else ""
        form = "" if found[3] in "rsa" and not found[2] else f"{found[2]}{found[3]}"
        parts.append(_Number(value=found[1] or value, form=form))
    return [*parts, text[end:]]


def _split(parts: list[str | _Number]) -> Iterator[list[str | _Number]]:
    """The lines of a text, each with its parts; texts that follow each other are joined."""
    line: list[str | _Number] = []
    for part in parts:
        if isinstance(part, _Number):
            line.append(part)
            continue
        first, *others = re.split(r"[\r\n]", part)
        _append(line, first)
        for text in others:
            yield line
            line = []
            _append(line, text)
    yield line


def _append(line: list[str | _Number], text: str) -> None:
    if line and isinstance(last := line[-1], str):
        line[-1] = last + text
    elif text:
        line.append(text)


def _labelled(parts: list[str | _Number]) -> Iterator[str | _Number]:
    before = ""
    for part in parts:
        if isinstance(part, _Number):
            words = " ".join(_WORDS.findall(before)[-_LABEL_WORDS:])
            yield _Number(value=part.value, form=part.form, label=words)
            before = ""
        else:
            before = part
            yield part
