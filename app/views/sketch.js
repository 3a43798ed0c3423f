// A first look at a figure while Plotly's program (5 MB) loads: points, lines and axes on a canvas.
const KINDS = { f8: Float64Array, f4: Float32Array, i8: BigInt64Array, i4: Int32Array };
Object.assign(KINDS, { i2: Int16Array, i1: Int8Array, u4: Uint32Array, u2: Uint16Array, u1: Uint8Array });

function numbers(column) {
  if (!column?.bdata) return column ?? [];
  const bytes = Uint8Array.from(atob(column.bdata), (each) => each.charCodeAt(0));
  return Array.from(new KINDS[column.dtype](bytes.buffer), Number);
}

function scale(values, axis, from, to) {
  const isLog = axis?.type === "log";
  const put = (value) => (isLog ? Math.log10(value) : value);
  // A range of a logarithmic axis holds logarithms.
  let [low, high] = typeof axis?.range?.[0] === "number" ? axis.range : [Infinity, -Infinity];
  const given = low < high;
  for (const each of given ? [] : values) {
    const at = put(each);
    if (Number.isFinite(at)) { low = Math.min(low, at); high = Math.max(high, at); }
  }
  if (!(high > low)) { low -= 0.5; high += 0.5; }
  const margin = given ? 0 : 0.04 * (high - low);
  low -= margin; high += margin;
  const at = (value) => from + ((put(value) - low) / (high - low)) * (to - from);
  return { at, ticks: ticks(low, high, isLog) };
}

function ticks(low, high, isLog) {
  const raw = (high - low) / 6, unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((each) => each * unit).find((each) => each >= raw);
  const places = isLog ? Math.max(1, Math.round(step)) : step;
  const found = [];
  for (let at = Math.ceil(low / places) * places; at <= high; at += places) {
    found.push(isLog ? 10 ** at : Number(at.toPrecision(12)));
  }
  return found;
}

function trace(pen, each, x, y) {
  const xs = numbers(each.x), ys = numbers(each.y);
  if ((each.mode ?? "").includes("lines")) {
    pen.strokeStyle = each.line?.color ?? "#2a78d6";
    pen.lineWidth = each.line?.width ?? 2;
    pen.beginPath();
    xs.forEach((at, i) => {
      if (i && each.line?.shape === "hv") pen.lineTo(x(at), y(ys[i - 1]));
      if (i && each.line?.shape === "vh") pen.lineTo(x(xs[i - 1]), y(ys[i]));
      pen.lineTo(x(at), y(ys[i]));
    });
    pen.stroke();
    if (!each.mode.includes("markers") && xs.length > 1) return;  // One point makes no line.
  }
  const size = each.marker?.size ?? 6;
  pen.fillStyle = each.marker?.color ?? each.line?.color ?? "#2a78d6";
  pen.globalAlpha = each.marker?.opacity ?? 1;
  for (let i = 0; i < xs.length; i++) {
    pen.fillRect(x(xs[i]) - size / 2, y(ys[i]) - size / 2, size, size);
  }
  pen.globalAlpha = 1;
}

function blank(div, layout) {
  const width = div.clientWidth, height = layout.height ?? 450, scaled = window.devicePixelRatio || 1;
  const canvas = document.createElement("canvas");
  canvas.width = width * scaled; canvas.height = height * scaled;
  canvas.style = `width:${width}px;height:${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(scaled, scaled);
  pen.font = "12px sans-serif";
  return { canvas, pen, width, height };
}

// Horizontal bars with their names.
function sketchBars(div, { data, layout }, colours) {
  const { canvas, pen, width, height } = blank(div, layout);
  const lengths = numbers(data[0].x), names = data[0].y, most = Math.max(...lengths, 1e-9);
  pen.textAlign = "right";
  const left = 12 + Math.max(...names.map((each) => pen.measureText(each).width));
  const step = (height - 90) / names.length;
  names.forEach((name, i) => {
    const at = height - 60 - (i + 0.5) * step;
    pen.fillStyle = colours.text;
    pen.fillText(name, left - 6, at + 4);
    pen.fillStyle = data[0].marker?.color ?? "#2a78d6";
    pen.fillRect(left, at - 0.4 * step, (width - left - 24) * (lengths[i] / most), 0.8 * step);
  });
  div.replaceChildren(canvas);
  return true;
}

// A row of bars for each device, with a few times below.
function sketchTimeline(div, { data, layout }, colours) {
  const { canvas, pen, width, height } = blank(div, layout);
  const [start, end] = layout.xaxis.range.map((each) => Date.parse(each));
  const { ticktext: names, range } = layout.yaxis, left = 70, top = 40, bottom = height - 60;
  const x = (at) => left + ((at - start) / (end - start)) * (width - left - 12);
  const y = (row) => top + ((row - range[1]) / (range[0] - range[1])) * (bottom - top);
  pen.fillStyle = colours.text; pen.textAlign = "right";
  names.forEach((name, row) => pen.fillText(name, left - 6, y(row) + 4));
  pen.textAlign = "center";
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    const text = new Date(start + part * (end - start)).toLocaleString([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false });
    pen.fillText(text, Math.min(Math.max(x(start + part * (end - start)), left + 40), width - 50), bottom + 18);
  }
  pen.save(); pen.beginPath(); pen.rect(left, top, width - left - 12, bottom - top); pen.clip();
  for (const each of data) {
    const rows = numbers(each.y), lengths = numbers(each.x), { color, pattern } = each.marker;
    const [widths, offsets] = [each.width, each.offset].map((one) => (typeof one === "number" ? null : numbers(one)));
    pen.globalAlpha = pattern ? 0.4 : 1;
    each.base.forEach((begin, i) => {
      const at = x(Date.parse(begin)), low = rows[i] + (offsets?.[i] ?? each.offset);
      pen.fillStyle = typeof color === "string" ? color : color[i];
      pen.fillRect(at, y(low), Math.max(0.5, x(Date.parse(begin) + lengths[i]) - at), y(low + (widths?.[i] ?? each.width)) - y(low));
    });
  }
  pen.restore();
  div.replaceChildren(canvas);
  return true;
}

// A colour of a scale of `#rrggbb` from 0 to 1.
function shade(scale, at) {
  const next = scale.findIndex(([place]) => place >= at);
  if (next < 1) return scale.at(next).at(1);
  const [[from, low], [to, high]] = [scale[next - 1], scale[next]];
  const part = (at - from) / (to - from);
  const mixed = [1, 3, 5].map((place) => {
    const [a, b] = [low, high].map((each) => parseInt(each.slice(place, place + 2), 16));
    return Math.round(a + part * (b - a)).toString(16).padStart(2, "0");
  });
  return `#${mixed.join("")}`;
}

// The axes and the lines of parallel coordinates, in the order and the colours that Plotly draws.
function sketchParallel(div, { data, layout }, colours) {
  const { canvas, pen, width, height } = blank(div, layout);
  const { l, r, t, b } = { l: 80, r: 80, t: 100, b: 80, ...layout.margin };
  const axes = data[0].dimensions.map((each, i, all) => {
    const [low, high] = each.range;
    return {
      label: each.label,
      x: l + ((width - l - r) * i) / Math.max(1, all.length - 1),
      at: numbers(each.values).map((value) => height - b - ((value - low) / (high - low)) * (height - t - b)),
    };
  });
  const { color, colorscale } = data[0].line, ranks = numbers(color);
  for (let line = 0; line < ranks.length; line++) {
    pen.strokeStyle = shade(colorscale, ranks[line]);
    pen.beginPath();
    for (const { x, at } of axes) pen.lineTo(x, at[line]);
    pen.stroke();
  }
  pen.textAlign = "center";
  for (const { label, x } of axes) {
    pen.fillStyle = pen.strokeStyle = colours.text;
    pen.fillText(label.replaceAll("&lt;", "<"), x, t - 16);
    pen.beginPath(); pen.moveTo(x, t); pen.lineTo(x, height - b); pen.stroke();
  }
  div.replaceChildren(canvas);
  return true;
}

// Whether there was something that it can draw.
function sketch(div, { data, layout }, colours) {
  if (layout.meta?.no_sketch) return false;
  if (data[0]?.type === "parcoords") return sketchParallel(div, { data, layout }, colours);
  if (data.length && data.every((each) => each.type === "bar" && Array.isArray(each.base)) && layout.yaxis?.ticktext) {
    return sketchTimeline(div, { data, layout }, colours);
  }
  const isPlain = data.length === 1 && data[0].type === "bar" && !data[0].base;
  if (isPlain && data[0].orientation === "h" && Array.isArray(data[0].y)) {
    return sketchBars(div, { data, layout }, colours);
  }
  const kinds = data.every((each) => /^scatter(gl)?$/.test(each.type ?? "scatter"));
  const main = data.filter((each) => (each.yaxis ?? "y") === "y" && (each.xaxis ?? "x") === "x");
  if (!kinds || !main.length) return false;
  const { canvas, pen, width, height } = blank(div, layout);
  const x = scale(main.flatMap((each) => numbers(each.x)), layout.xaxis, 70, width - 12);
  const y = scale(main.flatMap((each) => numbers(each.y)), layout.yaxis, height - 50, 40);
  pen.strokeStyle = colours.line;
  for (const [found, isX] of [[x, true], [y, false]]) {
    for (const value of found.ticks) {
      const at = found.at(value), text = String(Number(value.toPrecision(6)));
      pen.beginPath();
      pen.moveTo(isX ? at : 70, isX ? 40 : at); pen.lineTo(isX ? at : width - 12, isX ? height - 50 : at);
      pen.stroke();
      pen.fillStyle = colours.text; pen.textAlign = isX ? "center" : "right";
      pen.fillText(text, isX ? at : 64, isX ? height - 34 : at + 4);
    }
  }
  pen.textAlign = "center";
  pen.fillText(layout.xaxis?.title?.text ?? "", width / 2, height - 12);
  pen.save(); pen.beginPath(); pen.rect(70, 40, width - 82, height - 90); pen.clip();
  for (const each of main) trace(pen, each, x.at, y.at);
  pen.restore();
  pen.save(); pen.translate(14, height / 2); pen.rotate(-Math.PI / 2); pen.fillStyle = colours.text;
  pen.fillText(layout.yaxis?.title?.text ?? "", 0, 0); pen.restore();
  div.replaceChildren(canvas);
  return true;
}
