// The page pool as a map: a square for each page, in the colour of the model that holds it; pale where the page only keeps
// prefixes for reuse.

import { byId } from "./dom.js";
import { colorValue, value } from "./colors.js";

export const uses = ["free", "live", "cached"];
let latest = null; // {map, names, total} and how it is laid out

// drawPool draws the map. runs are [model, use, pages]; names those of the models.
export function drawPool(runs, names) {
  const canvas = byId("pool"), width = canvas.parentElement.clientWidth - 2 * parseFloat(getComputedStyle(canvas.parentElement).paddingLeft);
  const total = runs.reduce((n, r) => n + r[2], 0);
  if (width <= 0) return;
  const cell = cellSize(total, width), columns = Math.max(1, Math.floor(width / cell)), rows = Math.ceil(total / columns);
  const ratio = devicePixelRatio || 1, height = Math.max(1, rows * cell);
  const w = Math.round(width * ratio), h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.height = height + "px";
  }
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, width, height);
  const gap = cell >= 5 ? 1 : cell >= 3 ? .5 : 0, free = value("--free");
  const colors = new Map();
  let page = 0;
  for (const [model, use, pages] of runs) {
    if (!colors.has(model)) colors.set(model, colorValue(model));
    c.fillStyle = use === 0 ? free : colors.get(model);
    c.globalAlpha = use === 2 ? .38 : 1;
    for (const end = page + pages; page < end; page++) {
      c.fillRect(page % columns * cell, Math.floor(page / columns) * cell, cell - gap, cell - gap);
    }
  }
  c.globalAlpha = 1;
  latest = { runs, names, total, cell, columns };
  canvas.setAttribute("aria-label", describe(runs, names, total));
}

// cellSize is the largest side of a square with which all pages fit about 150 pixels of height.
function cellSize(total, width) {
  for (const size of [14, 12, 10, 9, 8, 7, 6, 5, 4, 3]) {
    if (Math.ceil(total / Math.floor(width / size)) * size <= 160) return size;
  }
  return 2;
}

// counts are the pages of the map by model and use.
export function counts(runs) {
  const all = new Map();
  for (const [model, use, pages] of runs) {
    if (!all.has(model)) all.set(model, [0, 0, 0]);
    all.get(model)[use] += pages;
  }
  return all;
}

const nameOf = (names, model) => names[model] ?? "other models"; // that this server does not list

function describe(runs, names, total) {
  const parts = [`${total} pages of the KV cache`];
  for (const [model, n] of counts(runs)) parts.push(model === -1 ? `${n[0]} free` : `${nameOf(names, model)}: ${n[1]} live, ${n[2]} cached`);
  return parts.join("; ");
}

// hover says what page is under the pointer.
export function startPool() {
  byId("pool").addEventListener("pointermove", e => {
    if (!latest) return;
    const page = Math.floor(e.offsetY / latest.cell) * latest.columns + Math.floor(e.offsetX / latest.cell);
    let left = page, text = "";
    for (const [model, use, pages] of latest.runs) {
      if (left < pages) {
        text = `page ${page + 1}: ` + (model === -1 ? "free" : `${nameOf(latest.names, model)}, ${uses[use]}`);
        break;
      }
      left -= pages;
    }
    e.currentTarget.title = text;
  }, { passive: true });
}
