// The live view of the server: GET /v1/state as memory, models, charts and requests, and what one can do about them.

import { element, byId, setText, keyed, ask, toast } from "./dom.js";
import { postJSON, inWords } from "./api.js";
import { color } from "./colors.js";
import { drawPool, counts } from "./pool.js";
import { drawChart } from "./charts.js";

const moving = new Map(); // model -> what is being done with its weights
const cancelling = new Set(); // ids of requests
let before = null; // the state before, for what is counted between two
let last = null;

const bytes = n => {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (n >= size) return (n / size >= 100 ? (n / size).toFixed(0) : (n / size).toFixed(1)) + " " + unit;
  }
  return n + " B";
};
export const time = ms => ms == null ? "–" : ms === 0 ? "0" : ms < 9.95 ? ms.toFixed(1) + " ms" : ms < 1000 ? ms.toFixed(0) + " ms" : ms < 60000 ? (ms / 1000).toFixed(1) + " s" : Math.floor(ms / 60000) + " min " + Math.floor(ms / 1000 % 60) + " s";
const rate = x => x >= 100 ? x.toFixed(0) : x > 0 ? x.toFixed(1) : "0";
const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
const whole = n => n.toLocaleString("en");

// showState shows a snapshot.
export function showState(s) {
  if (!last || s.time_ms - (before?.time_ms ?? 0) >= 900) before = last;
  last = s;
  const names = s.models.map(m => m.id);
  showFacts(s);
  showMemory(s, names);
  keyed(byId("models"), s.models.map((m, i) => ({ ...m, index: i })), m => m.id, makeCard, updateCard);
  const h = s.history, n = h.models[0]?.tokens_per_second.length ?? 0;
  const times = Array.from({ length: n }, (_, i) => h.end - (n - i) * h.slot_seconds + h.slot_seconds / 2);
  drawChart("chart-rate", "Tokens per second", times, names, h.models.map(m => m.tokens_per_second), x => String(Math.round(x * 10) / 10));
  drawChart("chart-ttft", "Time to first token", times, names, h.models.map(m => m.ttft_ms), time);
  drawChart("chart-tpot", "Time per output token", times, names, h.models.map(m => m.tpot_ms), time);
  showRequests(s, names);
}

// busyShare is the part of the time between two snapshots that the device spent in steps, or null.
function busyShare(s) {
  if (!before || s.time_ms <= before.time_ms) return null;
  const spent = x => x.models.reduce((n, m) => n + m.step_seconds, 0);
  return Math.min(1, Math.max(0, (spent(s) - spent(before)) * 1000 / (s.time_ms - before.time_ms)));
}

function showFacts(s) {
  const sum = f => s.models.reduce((n, m) => n + f(m), 0);
  const refused = sum(m => m.refused_queue_full + m.refused_sla), busy = busyShare(s);
  const c = s.card, percent = x => (x * 100).toFixed(0) + " %";
  const facts = [
    ["Tokens per second", rate(sum(m => m.tokens_per_second)), "generated, over ten seconds"],
    ["Running", whole(sum(m => m.running)), plural(sum(m => m.waiting), "sequence") + " waiting"],
    ["Device", c?.utilization != null ? percent(c.utilization) : busy == null ? "–" : percent(busy),
      c?.power_watts != null ? `${c.power_watts.toFixed(0)} W${c.power_limit_watts ? " of " + c.power_limit_watts.toFixed(0) : ""}${c.temperature_celsius != null ? `, ${c.temperature_celsius.toFixed(0)} °C` : ""}` : s.simulated ? "of the simulated card's time in steps" : "of the time in steps"],
    ["Refused", whole(refused), refused ? `${whole(sum(m => m.refused_queue_full))} queue full, ${whole(sum(m => m.refused_sla))} by their target` : "nobody so far"],
    ["Finished", whole(sum(m => m.finished)), `${whole(sum(m => m.cancelled))} cancelled, ${whole(sum(m => m.failed))} failed`],
    ["Prompt tokens cached", sum(m => m.prompt_tokens) ? percent(sum(m => m.cached_tokens) / sum(m => m.prompt_tokens)) : "–", `of ${whole(sum(m => m.prompt_tokens))}`],
  ];
  keyed(byId("facts"), facts, f => f[0], f => element("div", { class: "fact" }, element("span", {}, f[0]), element("strong"), element("small")), (e, f) => {
    setText(e.children[1], f[1]);
    setText(e.children[2], f[2]);
  });
}

// showMemory shows what the device's memory is divided into, and the pages of the pool.
function showMemory(s, names) {
  const m = s.memory, pool = s.pool, parts = [];
  setText(byId("memory-note"), m.device ? `${m.device}; ${bytes(m.bytes)} for models` : "");
  let resident = 0;
  s.models.forEach((x, i) => {
    if (x.state !== "resident") return;
    resident += x.weight_bytes;
    parts.push({ key: "w" + x.id, size: x.weight_bytes, color: color(i), label: x.id, title: `${x.id}: weights, ${bytes(x.weight_bytes)}` });
  });
  if (m.weight_bytes > resident) parts.push({ key: "unused", size: m.weight_bytes - resident, class: "room", label: "parked", title: `Room that parked weights left: ${bytes(m.weight_bytes - resident)}` });
  const page = pool.page_bytes;
  parts.push({ key: "live", size: pool.live * page, class: "kv-live", label: "KV live", title: "KV cache, live: " + bytes(pool.live * page) });
  parts.push({ key: "cached", size: pool.cached * page, class: "kv-cached", label: "KV cached", title: "KV cache, kept for reuse: " + bytes(pool.cached * page) });
  parts.push({ key: "free", size: pool.free * page, class: "kv-free", label: "KV free", title: "KV cache, free: " + bytes(pool.free * page) });
  const rest = m.bytes - m.weight_bytes - m.kv_bytes;
  parts.push({ key: "rest", size: Math.max(0, rest), class: "rest", label: "other", title: `Scratch ${bytes(m.scratch_bytes)}, the rest in reserve: ${bytes(Math.max(0, rest))}` });
  const all = parts.reduce((n, p) => n + p.size, 0) || 1;
  keyed(byId("memory"), parts.filter(p => p.size > 0), p => p.key, p => element("div", { class: p.class ?? "weights" }, element("span")), (e, p) => {
    e.style.flexGrow = p.size / all;
    if (p.color) e.style.setProperty("--own", p.color);
    e.title = p.title;
    setText(e.firstChild, p.size / all > .07 ? p.label : "");
  });
  const parked = s.models.filter(x => x.state === "parked");
  legend("memory-legend", [
    ["weights", "", `weights ${bytes(resident)}` + (parked.length ? `, ${plural(parked.length, "model")} parked (${bytes(parked.reduce((n, x) => n + x.weight_bytes, 0))})` : "")],
    ["kv", "kv-live", `KV cache ${bytes(m.kv_bytes)}`],
    ["rest", "rest", `scratch and reserve ${bytes(Math.max(0, rest))}`],
  ].map(([key, kind, text]) => ({ key, kind, text })));
  setText(byId("pool-note"), `${whole(pool.live)} live, ${whole(pool.cached)} cached, ${whole(pool.free)} free, ${bytes(page)} each`);
  drawPool(pool.map, names);
  const n = counts(pool.map);
  legend("pool-legend", [
    ...names.map((name, i) => ({ key: name, color: color(i), text: `${name} ${n.has(i) ? `${whole(n.get(i)[1])} live, ${whole(n.get(i)[2])} cached` : "none"}` })),
    { key: "free", kind: "kv-free", text: `free ${whole(n.get(-1)?.[0] ?? 0)}` },
  ]);
}

function legend(id, items) {
  keyed(byId(id), items, i => i.key, i => element("span", { class: "key" }, element("span", { class: "swatch " + (i.kind ?? "") }), element("span")), (e, i) => {
    if (i.color) e.style.setProperty("--own", i.color);
    setText(e.lastChild, i.text);
  });
}

function makeCard(m) {
  const button = (label, what, kind) => element("button", { type: "button", class: kind, onclick: () => move(m.id, what) }, label);
  const e = element("article", { class: "panel card", "aria-label": m.id },
    element("header", {}, element("span", { class: "swatch" }), element("strong", { class: "name" }, m.id), element("span", { class: "pill" })),
    element("p", { class: "rate" }, element("b"), " tok/s", element("span", { class: "load" })),
    element("dl"),
    element("div", { class: "buttons" }, button("Load", "load", ""), button("Park", "park", "quiet"), button("Unload now", "unload", "quiet")));
  e.querySelectorAll(".buttons button").forEach((b, i) => b.setAttribute("aria-label", ["Load ", "Park ", "Unload now: "][i] + m.id));
  return e;
}

function updateCard(e, m) {
  const [head, speed, list, buttons] = e.children, busy = moving.get(m.id);
  e.style.setProperty("--own", color(m.index));
  const state = busy ?? m.state;
  e.dataset.state = m.state;
  setText(head.lastChild, state);
  head.lastChild.className = "pill " + (busy ? "busy" : m.state);
  setText(speed.firstChild, rate(m.tokens_per_second));
  setText(speed.lastChild, `${m.running} running, ${m.waiting} waiting`);
  const refused = m.refused_queue_full + m.refused_sla;
  const rows = [
    ["First token", m.ttft_ms == null ? "–" : `${time(m.ttft_ms)}, worst ${time(m.ttft_worst_ms)}`],
    ["Per token", time(m.tpot_ms)],
    ["Weights", m.weight_bytes ? bytes(m.weight_bytes) : "–"],
    ["KV cache", (m.kv_usage * 100).toFixed(m.kv_usage < .1 ? 1 : 0) + " % of the pool"],
    ["Generated", whole(m.generated_tokens) + " tokens"],
    ["Refused", refused ? whole(refused) + (m.late ? `, ${whole(m.late)} late` : "") : m.late ? `0, ${whole(m.late)} late` : "0"],
  ];
  keyed(list, rows, r => r[0], r => element("div", {}, element("dt", {}, r[0]), element("dd")), (d, r) => setText(d.lastChild, r[1]));
  const [load, park, unload] = buttons.children;
  load.hidden = m.state !== "parked";
  park.hidden = unload.hidden = m.state !== "resident";
  load.disabled = park.disabled = Boolean(busy);
  if (unload.hidden === false) unload.hidden = m.running + m.waiting === 0 && !busy;
}

// move has a model's weights loaded or unloaded: to park lets running answers end first, to unload now ends them.
async function move(id, what) {
  const m = last?.models.find(x => x.id === id);
  if (what === "unload" && m?.running + m?.waiting > 0 &&
    !await ask(`Unload ${id} now? ${plural(m.running + m.waiting, "request")} will end with an error.`, "Unload now")) return;
  moving.set(id, what === "load" ? "loading" : "parking");
  if (last) showState(last);
  try {
    const done = await postJSON(what === "load" ? "/v1/models/load" : "/v1/models/unload", { model: id, ...(what === "unload" ? { force: true } : {}) });
    toast(`${id} is ${done.state} (${done.seconds.toFixed(1)} s)`);
  } catch (error) {
    toast(`${id}: ${inWords(error)}`);
  }
  moving.delete(id);
}

const states = { waiting: "waiting", prefill: "reading its prompt", decode: "answering" };

function showRequests(s, names) {
  setText(byId("requests-note"), s.requests.length === 0 ? "none now" : whole(s.requests.length + s.unlisted_requests) + (s.unlisted_requests ? `, of which ${s.requests.length} are shown` : ""));
  byId("requests").parentElement.hidden = s.requests.length === 0;
  keyed(byId("requests").tBodies[0], s.requests, r => r.id + " " + r.index, r => {
    const cancel = element("button", { type: "button", class: "quiet small", "aria-label": `Cancel ${r.id}`, onclick: async () => {
      cancelling.add(r.id);
      cancel.disabled = true;
      try {
        await postJSON("/v1/requests/cancel", { id: r.id });
        toast("Cancelled " + r.id);
      } catch (error) {
        toast(inWords(error));
      }
    } }, "Cancel");
    return element("tr", {}, element("th", { scope: "row", class: "mono", title: r.id }, short(r)),
      element("td", { class: "of" }, element("span", { class: "swatch" }), r.model), element("td"),
      element("td", { class: "progress" }, element("span", { class: "bar" }, element("span")), element("small")),
      element("td", { class: "number" }), element("td", { class: "number" }), element("td"), element("td", {}, cancel));
  }, (e, r) => {
    const [, model, state, progress, age, first, target, action] = e.children;
    model.style.setProperty("--own", color(names.indexOf(r.model)));
    setText(state, states[r.state]);
    const share = r.state === "decode" ? r.completion_tokens / r.max_tokens : Math.min(1, r.computed_tokens / r.prompt_tokens);
    progress.firstChild.firstChild.style.width = Math.min(100, share * 100).toFixed(1) + "%";
    progress.dataset.state = r.state;
    setText(progress.lastChild, r.state === "decode" ? `${whole(r.completion_tokens)} of at most ${whole(r.max_tokens)}` : `prompt ${whole(r.computed_tokens)} of ${whole(r.prompt_tokens)}`);
    setText(age, time(r.age_ms));
    setText(first, r.ttft_ms ? time(r.ttft_ms) : "–");
    setText(target, targets(r));
    target.className = r.late ? "bad" : "";
    action.firstChild.disabled = cancelling.has(r.id);
  });
}

const short = r => r.id.replace(/^(chatcmpl|cmpl|req)-/, "").slice(0, 8) + (r.index ? "." + r.index : "");

function targets(r) {
  const parts = [];
  if (r.target_ttft_ms) parts.push("first in " + time(r.target_ttft_ms));
  if (r.target_tpot_ms) parts.push(time(r.target_tpot_ms) + " per token");
  if (r.late) parts.push("cannot be met");
  else if (r.due_ms && parts.length) parts.push(r.due_ms < 0 ? "due" : `due in ${time(r.due_ms)}`);
  return parts.join(", ") || "–";
}

// showProblem says why there is no state; null: there is one.
export function showProblem(text) {
  byId("server-problem").hidden = text === null;
  setText(byId("server-problem"), text ?? "");
}
