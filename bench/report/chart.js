// Draws every .plot from its data-chart, and again when the colours change. A .plot's data-drawn says how many of its series were found among
// its pixels, data-series how many have anything to draw that no later one covers.
"use strict";
(() => {
  const dashes = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
  const borders = ["solid", "dashed", "dotted", "double"]; // of the same series in the legend
  const palette = 8;
  const format = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const drawn = new Map(); // element -> uPlot

  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const rgb = hex => [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));

  // seen counts the series whose colour is on the canvas, in the part where lines are drawn.
  function seen(u, colors) {
    const { left, top, width, height } = u.bbox;
    const pixels = u.ctx.getImageData(left, top, Math.max(width, 1), Math.max(height, 1)).data;
    const counts = colors.map(() => 0), wanted = colors.map(rgb);
    for (let i = 0; i < pixels.length; i += 4) {
      if (pixels[i + 3] < 200) continue;
      wanted.forEach((c, k) => {
        if (Math.abs(pixels[i] - c[0]) + Math.abs(pixels[i + 1] - c[1]) + Math.abs(pixels[i + 2] - c[2]) < 30) counts[k]++;
      });
    }
    return counts.filter(n => n > 3).length;
  }

  function draw(element) {
    const chart = JSON.parse(element.dataset.chart);
    const soft = color("--soft"), line = color("--line"), font = "12px system-ui, sans-serif";
    const colors = chart.series.map(s => color("--series-" + (s.colour % palette + 1)));
    const some = chart.series.map(s => s.values.some(v => v !== null));
    const same = (a, b) => a.unit === b.unit && a.values.every((v, i) => v === b.values[i]);
    const visible = chart.series.map((s, i) => some[i] && !chart.series.slice(i + 1).some(later => same(s, later)));
    const few = chart.values.length <= 24;
    const name = i => chart.labels ? chart.labels[i] ?? "" : format.format(i);
    const x = {
      label: chart.x, labelFont: font, font, stroke: soft, labelSize: 18, size: 34,
      grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 4 },
      values: (u, at) => at.map(name),
    };
    if (chart.labels) x.splits = () => chart.values;
    const options = {
      width: element.clientWidth, height: 280, padding: [10, chart.units.length > 1 ? 0 : 14, 0, 0],
      scales: { x: { time: false, range: (u, low, high) => few ? [low - (high - low || 1) * .03, high + (high - low || 1) * .03] : [low, high] } },
      axes: [x],
      series: [{ label: chart.x, value: (u, v) => v == null ? "–" : name(v) }],
      legend: { markers: { dash: (u, i) => borders[chart.series[i - 1].dash % borders.length] } },
      cursor: { drag: { x: !chart.labels, y: false } },
      hooks: {
        draw: [u => {
          if (element.dataset.drawn) return; // once: reading pixels back is slow
          element.dataset.series = visible.filter(Boolean).length;
          element.dataset.drawn = seen(u, colors.filter((c, i) => visible[i]));
        }],
      },
    };
    chart.units.forEach((unit, i) => {
      options.scales["y" + i] = { range: (u, low, high) => [Math.min(low ?? 0, 0), high > 0 ? high * 1.06 : 1] };
      options.axes.push({
        scale: "y" + i, side: i ? 1 : 3, label: unit, labelFont: font, font, stroke: soft, labelSize: 18,
        size: (u, texts) => 14 + 7 * Math.max(2, ...(texts ?? []).map(t => t.length)),
        grid: { show: i === 0, stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 4 },
        values: (u, at) => at.map(v => format.format(v)),
      });
    });
    chart.series.forEach((s, i) => options.series.push({
      label: s.name, scale: "y" + s.unit, stroke: colors[i], width: 2, dash: dashes[s.dash % dashes.length],
      fill: s.fill ? colors[i] + "22" : undefined,
      points: { show: few || s.values.filter(v => v !== null).length < 2, size: 7, fill: colors[i], stroke: colors[i] },
      value: (u, v) => v == null ? "–" : format.format(v) + (chart.units[s.unit] ? " " + chart.units[s.unit] : ""),
    }));
    drawn.get(element)?.destroy();
    delete element.dataset.drawn;
    element.textContent = "";
    element.style.display = "block"; // an empty one takes no room
    options.width = element.clientWidth;
    drawn.set(element, new uPlot(options, [chart.values, ...chart.series.map(s => s.values)], element));
  }

  const plots = [...document.querySelectorAll(".plot")];
  const drawAll = () => plots.forEach(draw);
  drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  // In the next frame: a size changed within the callback is reported as an error.
  const sizes = new ResizeObserver(entries => requestAnimationFrame(() => entries.forEach(e => {
    const u = drawn.get(e.target), width = e.target.clientWidth;
    if (u && width > 0 && width !== u.width) u.setSize({ width, height: 280 });
  })));
  plots.forEach(p => sizes.observe(p));
})();
