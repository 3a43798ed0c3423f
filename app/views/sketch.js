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
    return;
  }
  const size = each.marker?.size ?? 6;
  pen.fillStyle = each.marker?.color ?? "#2a78d6";
  pen.globalAlpha = each.marker?.opacity ?? 1;
  for (let i = 0; i < xs.length; i++) {
    pen.fillRect(x(xs[i]) - size / 2, y(ys[i]) - size / 2, size, size);
  }
  pen.globalAlpha = 1;
}

// Whether there was something that it can draw.
function sketch(div, { data, layout }, colours) {
  const kinds = data.every((each) => /^scatter(gl)?$/.test(each.type ?? "scatter"));
  const main = data.filter((each) => (each.yaxis ?? "y") === "y" && (each.xaxis ?? "x") === "x");
  if (!kinds || !main.length || layout.meta?.no_sketch) return false;
  const width = div.clientWidth, height = layout.height ?? 450, scaled = window.devicePixelRatio || 1;
  const canvas = document.createElement("canvas");
  canvas.width = width * scaled; canvas.height = height * scaled;
  canvas.style = `width:${width}px;height:${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(scaled, scaled);
  const x = scale(main.flatMap((each) => numbers(each.x)), layout.xaxis, 70, width - 12);
  const y = scale(main.flatMap((each) => numbers(each.y)), layout.yaxis, height - 50, 40);
  pen.font = "12px sans-serif"; pen.strokeStyle = colours.line;
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
