// What a figure says to people who do not see it: a name, and a table that only screen readers find.
const MOST_ROWS = 200;
const UNSEEN = "position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap";

function titleOf(axis) {
  const title = axis?.title?.text ?? axis?.title ?? "";
  return plain(String(title).replaceAll(/<[^>]*>/g, " "));
}

function nameOf({ layout }, name) {
  const [x, y] = [titleOf(layout.xaxis), titleOf(layout.yaxis)];
  const axes = x && y ? `: ${y} against ${x}` : "";
  return `${name.charAt(0).toUpperCase()}${name.slice(1)}${axes}`;
}

function spoken(value) {
  return typeof value === "number" ? String(Number(value.toPrecision(6))) : String(value ?? "");
}

function span(values) {
  const known = values.filter((each) => each !== null && !Number.isNaN(each));
  if (!known.length) return "";
  if (known.some((each) => typeof each !== "number")) return `${spoken(known[0])} to ${spoken(known.at(-1))}`;
  const [low, high] = known.reduce(([a, b], each) => [Math.min(a, each), Math.max(b, each)], [Infinity, -Infinity]);
  return `${spoken(low)} to ${spoken(high)}`;
}

// Every point where they are few, else what each series spans.
function tableOf({ data, layout }) {
  if (isParallel(data)) return parallelTable({ data }, MOST_ROWS);
  const [x, y] = [titleOf(layout.xaxis) || "x", titleOf(layout.yaxis) || "y"];
  const series = data.map((each, at) => ({
    name: each.name ? plain(each.name) : `series ${at + 1}`,
    xs: Array.from(each.orientation === "h" && each.base ? numbers(each.base) : numbers(each.x)),
    ys: Array.from(numbers(each.y)),
  }));
  const whole = series.filter((each) => each.xs.some((value) => value !== null));
  if (whole.reduce((sum, each) => sum + each.xs.length, 0) <= MOST_ROWS) {
    const rows = whole.flatMap(({ name, xs, ys }) => xs.map((value, i) => [name, spoken(value), spoken(ys[i])]));
    return { head: ["Series", x, y], rows };
  }
  const rows = whole.slice(0, MOST_ROWS).map(({ name, xs, ys }) => [name, String(xs.length), span(xs), span(ys)]);
  return { head: ["Series", "Points", x, y], rows };
}

function row(cells, kind) {
  const line = document.createElement("tr");
  for (const text of cells) line.append(Object.assign(document.createElement(kind), { textContent: text }));
  return line;
}

function speak(part) {
  const name = nameOf(part.figure, part.name);
  part.div.setAttribute("role", "group");
  part.div.setAttribute("aria-label", name);
  if (!part.table) {
    part.table = document.createElement("div");
    part.table.style.cssText = UNSEEN;
    part.div.after(part.table);
  }
  const { head, rows } = tableOf(part.figure);
  const table = document.createElement("table");
  table.append(Object.assign(document.createElement("caption"), { textContent: name }));
  table.append(row(head, "th"), ...rows.map((each) => row(each, "td")));
  part.table.replaceChildren(table);
}
