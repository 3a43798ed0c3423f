// Parallel coordinates: Plotly's own lines have no hover text and no click, and a refresh puts moved
// axes back. Ranges and the order of axes are kept by their labels.
function isParallel(data) {
  return data[0]?.type === "parcoords";
}

// A figure's text has its tags escaped for Plotly; a page's text is not HTML.
function plain(text) {
  return text.replaceAll("&lt;", "<");
}

// Plotly shows the names of choices character by character, unlike all other text.
function spelled(trace) {
  const dimensions = trace.dimensions.map((each) => (each.ticktext ? { ...each, ticktext: each.ticktext.map(plain) } : each));
  return { ...trace, dimensions };
}

// New data in the order of axes, and with the ranges, that a reader has chosen.
function arranged(part, given) {
  const data = isParallel(given) ? [spelled(given[0])] : given;
  const old = part.div.data?.[0];
  if (!isParallel(data) || part.axes !== part.figure.layout.uirevision || old?.type !== "parcoords") {
    part.axes = part.figure.layout.uirevision;
    return data;
  }
  const place = new Map(old.dimensions.map((each, at) => [each.label, at]));
  const chosen = new Map(old.dimensions.map((each) => [each.label, each.constraintrange]));
  const dimensions = data[0].dimensions
    .map((each) => (chosen.get(each.label) ? { ...each, constraintrange: chosen.get(each.label) } : each))
    .toSorted((a, b) => (place.get(a.label) ?? Infinity) - (place.get(b.label) ?? Infinity));
  // Otherwise Plotly would put the ranges at the places that these axes had.
  part.turn = (part.turn ?? 0) + 1;
  return [{ ...data[0], dimensions, uirevision: `${part.turn}` }];
}

function lineBelow(part, event) {
  const at = event?.curveNumber;
  const trace = part.div.data?.[0];
  const trial = numbers(trace?.customdata)[at];
  return Number.isInteger(trial) ? { trial, text: plain(trace.meta.parallel[at]) } : null;
}

// The line below the mouse: its values in a line of text, its trial by a click.
function hearLines(part) {
  part.words = document.createElement("div");
  part.words.style.cssText = "min-height:2.6em;font-size:0.85em;overflow-wrap:anywhere";
  part.words.textContent = part.hint = "Drag along an axis to select a range, drag a name to move the axis. A click on a line opens its trial.";
  part.div.after(part.words);
  part.div.on("plotly_hover", (event) => {
    part.line = lineBelow(part, event);
    if (part.line) part.words.textContent = part.line.text;
  });
  part.div.on("plotly_unhover", () => {
    part.line = null;
    part.words.textContent = part.hint;
  });
  let from = null;
  part.div.addEventListener("pointerdown", (event) => (from = [event.clientX, event.clientY]), true);
  part.div.addEventListener("click", (event) => {
    const moved = from && Math.hypot(event.clientX - from[0], event.clientY - from[1]) > 4;
    if (part.line && !moved) part.tell(part.line.trial);
  });
}

function parallelTable({ data }, most) {
  const lines = data[0].meta.parallel.map(plain).reverse().slice(0, most);
  return { head: ["Trials, the best first"], rows: lines.map((each) => [each]) };
}
