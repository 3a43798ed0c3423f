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

// Of subplots that share an axis one has its title and its numbers.
function axisOf(layout, id, kind) {
  const axis = layout[`${kind}axis${(id ?? kind).slice(1)}`];
  return axis?.matches && axis.matches !== id ? axisOf(layout, axis.matches, kind) : axis;
}

// A tick's text where the axis has one for this value.
function labelled(axis, value) {
  const at = axis?.ticktext ? numbers(axis.tickvals).indexOf(value) : -1;
  return at < 0 ? plain(spoken(value)) : plain(String(axis.ticktext[at]));
}

function seriesOf(each, at, { data, layout }, name) {
  const [x, y] = [axisOf(layout, each.xaxis, "x"), axisOf(layout, each.yaxis, "y")];
  const isBar = each.orientation === "h" && each.base;
  // A bar of a timeline says what it is of, how long it was and from when on.
  const told = isBar && typeof each.customdata?.[0] === "string";
  const xs = told ? each.customdata.map((text) => text.replaceAll("<br>", ", ")) : numbers(isBar ? each.base : each.x);
  return {
    x, y, xs: Array.from(xs), ys: Array.from(numbers(each.y)),
    zs: each.z ? Array.from(numbers(each.z)).flat() : null,
    isGrid: each.type === "contour",
    zTitle: plain(String(each.colorbar?.title?.text ?? "value")),
    name: each.name ? plain(each.name) : data.length === 1 ? name : `line ${at + 1}`,
    // An axis without numbers only names what is on it, such as trials without a value.
    bare: y?.showticklabels === false,
  };
}

// Of a map of colours each row, of a surface between points the whole.
function cellRows({ name, x, y, xs, ys, zs, isGrid }) {
  if (isGrid) return [[name, span(xs), span(ys), span(zs)]];
  return ys.map((each, i) => [name, span(xs), labelled(y, each), span(zs.slice(i * xs.length, (i + 1) * xs.length))]);
}

function pointRows({ name, x, y, xs, ys, bare }) {
  const known = xs.map((value, i) => [value, ys[i]]).filter((pair) => pair.some((each) => each !== null && !Number.isNaN(each)));
  return known.map(([one, other]) => [name, labelled(x, one), ...(bare ? [] : [labelled(y, other)])]);
}

// A table for each pair of axes: every point where they are few, else what each series spans.
function tablesOf({ data, layout }, name) {
  if (isParallel(data)) return [parallelTable({ data }, MOST_ROWS)];
  const drawn = data.map((each, at) => (each.hoverinfo === "skip" && !each.name ? null : seriesOf(each, at, { data, layout }, name)));
  const whole = drawn.filter((each) => each?.xs.some((value) => value !== null));
  const areFew = whole.reduce((sum, each) => sum + each.xs.length, 0) <= MOST_ROWS;
  const tables = new Map();
  for (const each of whole) {
    const [x, y] = [titleOf(each.x) || "x", titleOf(each.y) || "y"];
    const key = `${y} against ${x}${each.zs ? `: ${each.zTitle}` : ""}`;
    const points = areFew || each.zs ? [] : ["Points"];
    const head = ["Series", ...points, x, ...(each.bare ? [] : [y]), ...(each.zs ? [each.zTitle] : [])];
    if (!tables.has(key)) tables.set(key, { head, rows: [], caption: each.bare ? y : key });
    const spans = [each.name, String(each.xs.length), span(each.xs), ...(each.bare ? [] : [span(each.ys)])];
    tables.get(key).rows.push(...(each.zs ? cellRows(each) : areFew ? pointRows(each) : [spans]));
  }
  return [...tables.values()].map((each) => ({ ...each, rows: each.rows.slice(0, MOST_ROWS) }));
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
  const tables = tablesOf(part.figure, part.name);
  part.table.replaceChildren(...tables.map(({ head, rows, caption }, at) => {
    const table = document.createElement("table");
    table.append(Object.assign(document.createElement("caption"), { textContent: at ? caption : name }));
    table.append(row(head, "th"), ...rows.map((each) => row(each, "td")));
    return table;
  }));
}
