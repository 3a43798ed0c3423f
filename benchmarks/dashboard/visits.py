"""What a user does on each page of the dashboard, for `every_page` to time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from playwright.sync_api import Page as Tab

TOKEN = "correct horse battery"
_FIGURE, _TABLE = "[data-drawn]", '[data-testid="stDataFrame"] canvas'
_ROW_PX = 35
_HEADER_PX = 52


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One page of the dashboard and what a user does there, in this order."""

    name: str
    #: Below the address of the server.
    path: str
    #: Selector of what is there when the page can be seen.
    seen: str
    steps: tuple[tuple[str, Callable[[Tab], None]], ...] = ()


def _press(text: str) -> tuple[str, Callable[[Tab], None]]:
    return text, lambda tab: tab.get_by_role("button", name=text, exact=True).first.click()


def _tab(text: str) -> tuple[str, Callable[[Tab], None]]:
    return text, lambda tab: tab.get_by_role("tab", name=text, exact=True).click()


def _pick(text: str) -> tuple[str, Callable[[Tab], None]]:
    """One of the words of a choice."""
    return text, lambda tab: tab.get_by_role("radio", name=text, exact=True).first.click()


def _count_up(label: str) -> tuple[str, Callable[[Tab], None]]:
    button = f'[data-testid="stNumberInput"]:has-text("{label}") button'
    return f"{label}: one more", lambda tab: tab.locator(button).last.click()


def _toggle(label: str) -> tuple[str, Callable[[Tab], None]]:
    box = f'[data-testid="stCheckbox"]:has-text("{label}") label'
    return f"toggle {label}", lambda tab: tab.locator(box).first.click()


def _write(label: str, text: str) -> tuple[str, Callable[[Tab], None]]:
    def write(tab: Tab) -> None:
        field = tab.get_by_label(label, exact=True).first
        field.fill(text)
        field.press("Enter")

    return f"{label}: {text}", write


def _choose(label: str, option: str) -> tuple[str, Callable[[Tab], None]]:
    def choose(tab: Tab) -> None:
        field = tab.get_by_label(label, exact=True).first
        field.fill(option)
        field.press("Enter")

    return f"{label}: {option}", choose


def _select_row(row: int, *, place: int = 0) -> tuple[str, Callable[[Tab], None]]:
    """A click at the left of a row of a table."""

    def select(tab: Tab) -> None:
        box = tab.get_by_test_id("stDataFrame").nth(place).bounding_box()
        assert box is not None
        tab.mouse.click(box["x"] + 18, box["y"] + _HEADER_PX + _ROW_PX * row)

    return f"select row {row + 1}", select


def _brush() -> tuple[str, Callable[[Tab], None]]:
    """Selects a range on the second axis of the parallel coordinates."""

    def brush(tab: Tab) -> None:
        tab.locator(".parcoords").scroll_into_view_if_needed()
        box = tab.locator(".parcoords .axis-title").nth(1).bounding_box()
        assert box is not None
        across = box["x"] + box["width"] / 2
        tab.mouse.move(across, box["y"] + 120)
        tab.mouse.down()
        tab.mouse.move(across, box["y"] + 200, steps=4)
        tab.mouse.up()

    return "select a range", brush


def _unlock() -> tuple[str, Callable[[Tab], None]]:
    def unlock(tab: Tab) -> None:
        tab.get_by_label("Token", exact=True).fill(TOKEN)
        tab.get_by_label("Your name, for the record").fill("Ann")
        tab.get_by_role("button", name="Unlock").click()

    return "unlock", unlock


def _set_budget(value: str) -> tuple[str, Callable[[Tab], None]]:
    def change(tab: Tab) -> None:
        tab.get_by_label("New value").fill(value)
        tab.get_by_role("button", name="Change").click()

    return f"trials = {value}", change


def visits(study: str, other: str, pareto: str, n_trials: int) -> Sequence[Visit]:
    """Every page.

    Args:
        study: The long study.
        other: A shorter one of the same objective.
        pareto: One of two objectives.
        n_trials: Trials of the long study.
    """
    of = f"?study={study}"
    some = ",".join(map(str, (3, 17, 20, n_trials // 3, n_trials - 1)))
    return (
        Visit(name="Studies", path="", seen=_TABLE, steps=(_select_row(0), _select_row(1))),
        Visit(
            name="Convergence",
            path=f"convergence{of}",
            seen=_FIGURE,
            steps=(
                _pick("wall time"),
                _pick("device-hours"),
                _toggle("log y"),
                _toggle("forecast"),
                _toggle("all values"),
                _choose("Compare with", other),
            ),
        ),
        Visit(
            name="Pareto front",
            path=f"convergence?study={pareto}",
            seen=_FIGURE,
            steps=(_choose("Objective", "latency"), _pick("wall time")),
        ),
        Visit(
            name="Learning curves",
            path=f"curves{of}",
            seen=_FIGURE,
            steps=(
                _write("Trial among its rivals (number)", "7"),
                _toggle("log x"),
                _toggle("log y"),
            ),
        ),
        Visit(
            name="Metrics",
            path=f"metrics{of}",
            seen=_FIGURE,
            steps=(
                _choose("Y axis", "latency_ms"),
                _choose("X axis", "size_mb"),
                _toggle("log y"),
                _pick("steps"),
                _pick("distribution"),
                _pick("trials per hour"),
            ),
        ),
        Visit(
            name="Parameters",
            path=f"parameters{of}",
            seen=_FIGURE,
            steps=(
                _pick("slices"),
                _pick("contour"),
                _pick("rank"),
                _toggle("with pruned trials"),
            ),
        ),
        Visit(
            name="Parallel coordinates",
            path=f"parameters{of}",
            seen="[data-drawn]:has(canvas)",
            steps=(_brush(), _toggle("with pruned trials")),
        ),
        Visit(
            name="Trials",
            path=f"trials{of}",
            seen=_TABLE,
            steps=(
                _write("Filter", "lr < 0.001 and loss < 0.5"),
                _press("pruned"),
                _write("Filter", ""),
                _toggle("Select several"),
                _select_row(1),
                _toggle("Select several"),
                _select_row(2),
                _press("All trials"),
            ),
        ),
        Visit(
            name="One trial",
            path=f"trials{of}&trial={n_trials - 1}",
            seen=_FIGURE,
            steps=(_press("All trials"),),
        ),
        Visit(
            name="Compare (trials)",
            path=f"compare{of}&trials={some}",
            seen=_FIGURE,
            steps=(_select_row(1), _pick("studies")),
        ),
        Visit(
            name="Compare (studies)",
            path=f"compare{of}&compare=studies&studies={study}&studies={other}",
            seen=_FIGURE,
            steps=(_pick("wall time"), _pick("device-hours"), _toggle("band over seeds")),
        ),
        Visit(
            name="Devices",
            path=f"devices{of}",
            seen=_FIGURE,
            steps=(_pick("7 d"), _pick("1 h"), _pick("trial"), _pick("memory")),
        ),
        Visit(
            name="Best",
            path=f"best{of}",
            seen='[data-testid="stTabs"]',
            steps=(_count_up("How many"), _tab("JSON")),
        ),
        Visit(
            name="Control",
            path=f"control{of}",
            seen=_TABLE,
            steps=(_unlock(), _set_budget("10"), _press("Keep the budget")),
        ),
    )


def visits_of_a_week(study: str) -> Sequence[Visit]:
    """The page of devices of a machine that has worked for a week."""
    return (
        Visit(
            name="Devices, a week of 8 GPUs",
            path=f"devices?study={study}",
            seen=_FIGURE,
            steps=(
                _pick("7 d"),
                _pick("1 d"),
                _pick("1 h"),
                _pick("all"),
                _pick("trial"),
                _pick("memory"),
                _toggle("all studies"),
            ),
        ),
    )
