// The last minutes of every model as lines, drawn by uPlot.

import { byId } from "./dom.js";
import { colorValue, value, onScheme } from "./colors.js";

const drawn = new Map(); // id -> {plot, names}
const height = 190;

function options(width, names, unit) {
  const soft = value("--soft"), line = value("--line"), font = "12px system-ui, sans-serif";
  return {
    width, height, padding: [8, 8, 0, 0], legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: { x: { time: true }, y: { range: (u, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
    axes: [
      { stroke: soft, font, size: 30, space: 70, grid: { show: false }, ticks: { stroke: line, width: 1, size: 4 },
        values: (u, at) => at.map(t => new Date(t * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })), incrs: [60, 120, 300] },
      { stroke: soft, font, grid: { stroke: line, width: 1 }, ticks: { show: false },
        size: (u, texts) => 12 + 7 * Math.max(2, ...(texts ?? []).map(t => t.length)), values: (u, at) => at.map(unit) },
    ],
    series: [{}, ...names.map((label, i) => ({
      label, stroke: colorValue(i), width: 1.75, spanGaps: false,
      points: { show: (u, s, from, to) => lonely(u.data[s], from, to), size: 5, stroke: colorValue(i), fill: colorValue(i) },
    }))],
  };
}

// lonely says whether a line has values without a neighbour, which only points show.
function lonely(data, from, to) {
  for (let i = from; i <= to; i++) if (data[i] != null && data[i - 1] == null && data[i + 1] == null) return true;
  return false;
}

// smooth is the mean of each value and its neighbours on both sides, so that a line is not all noise.
const smooth = values => values.map((v, i) => {
  const near = values.slice(Math.max(0, i - 2), i + 3).filter(x => x != null);
  return v == null ? null : near.reduce((a, b) => a + b, 0) / near.length;
});

// drawChart draws values (by model, a list over times) into an element.
export function drawChart(id, what, times, names, values, unit) {
  const box = byId(id), width = box.clientWidth, key = names.join("\n");
  if (width <= 0) return;
  let d = drawn.get(id);
  if (d && (d.key !== key || d.stale)) {
    d.plot.destroy();
    d = null;
  }
  const data = [times, ...values.map(smooth)];
  if (!d) {
    d = { key, plot: new uPlot(options(width, names, unit), data, box), stale: false };
    drawn.set(id, d);
  } else {
    if (d.plot.width !== width) d.plot.setSize({ width, height });
    d.plot.setData(data);
  }
  const now = names.map((n, i) => [n, values[i].findLast(v => v != null && v > 0)]).filter(x => x[1] != null);
  box.setAttribute("aria-label", `${what} over the last five minutes. Latest: ` + (now.map(x => `${x[0]} ${unit(x[1])}`).join(", ") || "nothing"));
}

onScheme(() => drawn.forEach(d => { d.stale = true; }));
