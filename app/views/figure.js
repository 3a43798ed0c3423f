// Draws one Plotly figure and keeps it: a refresh goes to Plotly.react, which leaves the zoom, and
// what was hidden, alone while `layout.uirevision` stays the same. Streamlit's own chart element
// is made anew when its data change, and the zoom with it.
// A range that the figure itself gives, such as that of a timeline that grows, wins over a zoom in
// Plotly; here it does not (`zoomed`).
const PARTS = new WeakMap();
let loading;

function library(url) {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  loading ??= new Promise((resolve, reject) => {
    const src = new URL(url, window.location.origin).href;
    const early = [...document.scripts].find((each) => each.src === src);  // `tuner.app.assets`
    const script = early ?? document.createElement("script");
    script.addEventListener("load", () => resolve(window.Plotly));
    script.addEventListener("error", () => reject(new Error(`${url} can't be loaded`)));
    if (!early) document.head.append(Object.assign(script, { src }));
  });
  return loading;
}

function isNarrow(element) {
  return element.clientWidth < 500;
}

// Whether a page's background is dark: of its own colour, which a reader may have chosen.
function isDark(element) {
  const told = getComputedStyle(element).getPropertyValue("--st-background-color").trim() || "#ffffff";
  const pen = document.createElement("canvas").getContext("2d");
  pen.fillStyle = told;
  pen.fillRect(0, 0, 1, 1);
  const [red, green, blue] = pen.getImageData(0, 0, 1, 1).data;
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue < 128;
}

// Scales from little to much end in what stands out most: the darkest on white, the palest on black.
function shaded(data, element) {
  if (!data.some((each) => each.meta === "reversed in the dark") || !isDark(element)) return data;
  return data.map((each) => {
    if (each.meta !== "reversed in the dark") return each;
    if (each.colorscale) return { ...each, reversescale: !each.reversescale };
    if (!each.marker?.colorscale) return each;
    return { ...each, marker: { ...each.marker, reversescale: !each.marker.reversescale } };
  });
}

// On a phone the names stand below, where they take nothing from the figure.
function below(done, data) {
  const n = data.filter((each) => each.showlegend !== false && each.name).length;
  if (done.showlegend === false || n < 2) return;
  done.legend = { ...done.legend, yref: "container", y: 0, yanchor: "bottom" };
  done.height = (done.height ?? 450) + 22 * Math.ceil(n / 2);
}

// On a phone panels in a row would be a finger wide each: two in a row.
function stacked(done) {
  const names = Object.keys(done).filter((each) => /^xaxis\d*$/.test(each));
  const rows = Math.ceil(names.length / 2);
  for (const name of names.length > 2 ? names : []) {
    const place = Number(name.slice(5) || 1) - 1;
    const isRight = place % 2 === 1, top = 1 - Math.floor(place / 2) / rows;
    const other = name.replace("x", "y");
    done[name] = { ...done[name], domain: isRight ? [0.55, 1] : [0, 0.45] };
    done[other] = { ...done[other], domain: [top - 0.5 / rows, top], showticklabels: !isRight };
  }
  if (names.length > 2) done.height = 120 + 240 * rows;
}

function dressed(layout, element, data) {
  const style = getComputedStyle(element);
  const value = (name, other) => style.getPropertyValue(name).trim() || other;
  const text = value("--st-text-color", "#31333f");
  const line = value("--st-border-color", "rgba(128, 128, 128, 0.25)");
  const background = value("--st-background-color", "#ffffff");
  const narrow = isNarrow(element);
  const font = { color: text, size: narrow ? 10 : 12, family: value("--st-font", "sans-serif") };
  const done = { ...layout, font, width: element.clientWidth || undefined };
  done.hoverlabel = { bgcolor: background, bordercolor: text, font: { color: text } };
  done.modebar = { bgcolor: "rgba(0,0,0,0)", color: line, activecolor: text };
  for (const name of Object.keys(layout).filter((each) => /^[xy]axis\d*$/.test(each))) {
    done[name] = { gridcolor: line, linecolor: line, tickcolor: line, ...layout[name] };
    // Plotly writes a zoom into the range that it was given.
    if (layout[name].range) done[name].range = [...layout[name].range];
  }
  if (narrow) below(done, data);
  if (narrow && layout.meta?.panels) stacked(done);
  if (layout.meta?.own_background) done.paper_bgcolor = done.plot_bgcolor = background;
  return done;
}

function sameRange(axis, one, other) {
  const [a, b] = one.map((each) => axis.r2l(each));
  const [c, d] = other.map((each) => axis.r2l(each));
  return Math.max(Math.abs(a - c), Math.abs(b - d)) <= 1e-6 * Math.abs(b - a);
}

// The figure's own ranges, except where somebody has zoomed since they were drawn.
function zoomed(part, layout) {
  const { given, div } = part;
  if (!given || !div._fullLayout || given.uirevision !== layout.uirevision) return layout;
  const kept = { ...layout };
  for (const name of Object.keys(given).filter((each) => given[each]?.range && layout[each]?.range)) {
    const axis = div._fullLayout[name];
    if (axis?.range && !sameRange(axis, axis.range, given[name].range)) {
      kept[name] = { ...layout[name], range: [...axis.range] };
    }
  }
  return kept;
}

// What a double click leads back to: the range as it is given now, not the first one.
function remember(part, layout) {
  part.given = layout;
  for (const [name, { range }] of Object.entries(layout).filter(([, each]) => each?.range)) {
    const axis = part.div._fullLayout[name];
    if (axis) [axis._rangeInitial0, axis._rangeInitial1] = range;
  }
}

async function saved(part) {
  const { figure, url, name } = part;
  const whole = await (await fetch(new URL(url, window.location.origin))).text();
  const text = JSON.stringify(figure).replaceAll("<", "\\u003c");
  const page = `<!doctype html><meta charset="utf-8"><title>${encodeURIComponent(name)}</title>
<script>${whole}<\/script><div id="figure"></div>
<script>const f = ${text}; Plotly.newPlot("figure", f.data, f.layout, { responsive: true });<\/script>`;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([page], { type: "text/html" }));
  link.download = `${name}.html`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

function buttons(part) {
  const icon = { width: 24, height: 24, path: "M5 20h14v-2H5v2zM19 9h-4V3H9v6H5l7 7 7-7z" };
  const html = { name: "html", title: "Save as HTML", icon, click: () => saved(part) };
  return {
    displaylogo: false,
    displayModeBar: isNarrow(part.div) ? false : "hover",
    modeBarButtonsToAdd: part.url ? [html] : [],
    modeBarButtonsToRemove: ["select2d", "lasso2d"],
    toImageButtonOptions: { format: "png", filename: part.name, scale: 2 },
  };
}

async function draw(part) {
  const { data, layout } = part.figure;
  // Out of sight while the page is made anew: it is drawn once it has a width.
  part.width = part.div.clientWidth;
  if (!part.width) return;
  if (!window.Plotly && !part.sketched) {
    const { font, modebar } = dressed(layout, part.div, data);
    part.sketched = sketch(part.div, part.figure, { text: font.color, line: modebar.color });
    if (part.sketched) part.div.dataset.drawn = "sketch";
    // The picture is on the screen before the browser is busy with the program.
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  }
  const Plotly = await library(part.url);
  if (!part.div.isConnected || part.figure.data !== data) return;
  if (!part.div._fullLayout) part.div.replaceChildren();
  part.width = part.div.clientWidth;
  // The same object each time: with another configuration Plotly begins anew, without the zoom.
  if (part.narrow !== isNarrow(part.div)) part.buttons = buttons(part);
  part.narrow = isNarrow(part.div);
  const look = dressed(zoomed(part, layout), part.div, data);
  await Plotly.react(part.div, arranged(part, shaded(data, part.div)), look, part.buttons);
  remember(part, layout);
  speak(part);
  part.div.dataset.drawn = "plotly";
  part.div.dataset.colour = part.div._fullLayout.font.color;
  if (part.hears) return;
  part.hears = true;
  if (isParallel(data)) hearLines(part);
  part.div.on("plotly_click", (event) => {
    const trial = event.points[0]?.customdata;
    if (Number.isInteger(trial)) part.tell(trial);
  });
}

function begun(parentElement) {
  const div = document.createElement("div");
  div.style.width = "100%";
  parentElement.append(div);
  const part = { div, hears: false, width: div.clientWidth };
  const again = () => part.figure && draw(part);
  part.sizes = new ResizeObserver(() => div.clientWidth !== part.width && again());
  part.sizes.observe(div);
  part.scheme = window.matchMedia("(prefers-color-scheme: dark)");
  part.recolour = () => requestAnimationFrame(again);
  part.scheme.addEventListener("change", part.recolour);
  // Streamlit also ends a component before it hands it new data, and begins it again at once.
  part.end = () => {
    part.ending = setTimeout(() => ended(parentElement, part), 1000);
  };
  PARTS.set(parentElement, part);
  return part;
}

function ended(parentElement, part) {
  part.sizes.disconnect();
  part.scheme.removeEventListener("change", part.recolour);
  window.Plotly?.purge(part.div);
  part.div.remove();
  part.table?.remove();
  part.words?.remove();
  PARTS.delete(parentElement);
}

export default function mount({ data, parentElement, setTriggerValue }) {
  const part = PARTS.get(parentElement) ?? begun(parentElement);
  clearTimeout(part.ending);
  if (part.text === data.figure) return part.end;
  part.text = data.figure;
  part.figure = JSON.parse(data.figure);
  part.url = data.library;
  part.name = data.name;
  part.tell = (trial) => data.is_heard && setTriggerValue("trial", trial);
  part.div.style.minHeight = `${part.figure.layout.height ?? 300}px`;
  draw(part);
  return part.end;
}
