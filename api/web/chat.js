// The chat: a conversation in turns, each a prompt and an answer from every chosen model, side by side. A model is sent its
// own answers as the conversation so far.

import { element, byId, setText, keyed, announce } from "./dom.js";
import { stream, inWords } from "./api.js";
import { Markdown } from "./markdown.js";
import { color } from "./colors.js";

const turns = []; // {text, answers: [Answer], element}
let known = [];   // models, as /v1/models lists them
const chosen = new Set(JSON.parse(sessionStorage.getItem("openinfer-models") ?? "[]"));
let follow = true; // the end is in view, and is to stay so

// Answer is what one model says to one prompt.
class Answer {
  constructor(model) {
    this.model = model;
    this.text = this.reasoning = this.finish = this.problem = "";
    this.calls = [];
    this.usage = null;
    this.sent = this.first = this.last = 0; // when
    this.abort = null;
    this.state = element("span", { class: "answer-state" });
    this.body = element("div", { class: "answer-body markdown" });
    this.thought = element("div", { class: "markdown" });
    this.thinking = element("details", { class: "reasoning", hidden: true }, element("summary", {}, "Reasoning"), this.thought);
    this.callList = element("div", { class: "calls" });
    this.error = element("p", { class: "problem", role: "alert", hidden: true });
    this.meter = element("p", { class: "meter" });
    this.retry = element("button", { type: "button", class: "quiet", hidden: true, onclick: () => retry(this) }, "Retry");
    this.element = element("article", { class: "answer", "aria-label": "Answer of " + model },
      element("header", {}, element("span", { class: "swatch" }), element("strong", {}, model), this.state),
      this.thinking, this.body, this.callList, this.error,
      element("footer", {}, this.meter, this.retry));
    this.element.style.setProperty("--own", color(known.findIndex(m => m.id === model)));
    this.shownText = new Markdown(this.body);
    this.shownThought = new Markdown(this.thought);
    this.drawn = 0;
  }

  get busy() { return this.abort !== null; }

  // ask sends the conversation and takes the answer until it ends or is stopped.
  async ask(messages, settings) {
    this.abort = new AbortController();
    this.sent = performance.now();
    this.draw();
    const clock = setInterval(() => this.draw(), 250); // the time until the first token
    try {
      const body = { model: this.model, messages, stream: true, stream_options: { include_usage: true, continuous_usage_stats: true }, ...settings };
      for await (const event of stream("/v1/chat/completions", body, this.abort.signal)) {
        this.take(event);
        this.drawSoon();
      }
    } catch (error) {
      if (error.name === "AbortError") this.finish = "stopped";
      else this.problem = inWords(error);
    }
    clearInterval(clock);
    this.abort = null;
    this.draw();
    announce(this.problem ? `${this.model}: ${this.problem}` : this.finish === "stopped" ? `${this.model} was stopped` : `${this.model} has answered`);
    refreshButtons();
  }

  take(event) {
    if (event.usage) this.usage = event.usage;
    const choice = event.choices?.[0];
    if (!choice) return;
    const delta = choice.delta ?? {};
    const thought = delta.reasoning_content ?? delta.reasoning ?? "";
    if (delta.content || thought || delta.tool_calls) {
      this.last = performance.now();
      this.first ||= this.last;
    }
    this.text += delta.content ?? "";
    this.reasoning += thought;
    for (const part of delta.tool_calls ?? []) {
      const call = this.calls[part.index ?? 0] ??= { id: "", name: "", arguments: "" };
      call.id = part.id ?? call.id;
      call.name += part.function?.name ?? "";
      call.arguments += part.function?.arguments ?? "";
    }
    if (choice.finish_reason) this.finish = choice.finish_reason;
  }

  // drawSoon draws at most once a frame, and less often the longer that takes.
  drawSoon() {
    if (this.drawn) return;
    this.drawn = setTimeout(() => requestAnimationFrame(() => this.draw()), Math.min(30 + this.text.length / 500, 400));
  }

  draw() {
    clearTimeout(this.drawn);
    this.drawn = 0;
    this.shownText.show(this.text);
    this.thinking.hidden = this.reasoning === "";
    if (this.reasoning) this.shownThought.show(this.reasoning);
    keyed(this.callList, this.calls.filter(Boolean), c => this.calls.indexOf(c), makeCall, updateCall);
    this.error.hidden = this.problem === "";
    setText(this.error, this.problem);
    setText(this.meter, this.measures());
    setText(this.state, this.doing());
    this.element.classList.toggle("busy", this.busy);
    this.element.setAttribute("aria-busy", String(this.busy));
    this.retry.hidden = this.busy || turns.at(-1)?.answers.includes(this) !== true;
    scrollAlong();
  }

  // doing is what it does before it answers, in words.
  doing() {
    if (!this.busy || this.text) return "";
    if (this.first) return this.reasoning ? "reasoning" : "calling";
    const here = known.find(m => m.id === this.model)?.state === "resident";
    return (here ? "waiting " : "loading the model ") + seconds(performance.now() - this.sent);
  }

  // measures are the answer's numbers in words.
  measures() {
    const parts = [], u = this.usage;
    if (this.first) parts.push("TTFT " + seconds(this.first - this.sent));
    if (u?.completion_tokens > 1 && this.last > this.first) {
      parts.push(number((u.completion_tokens - 1) / (this.last - this.first) * 1000) + " tok/s");
    }
    if (u?.completion_tokens) parts.push(u.completion_tokens + " tokens");
    if (u) {
      const cached = u.prompt_tokens_details?.cached_tokens ?? 0;
      parts.push(`prompt ${u.prompt_tokens}, ${cached} cached`);
    }
    const ends = { length: "cut at max tokens", stopped: "stopped", tool_calls: "calls tools" };
    if (ends[this.finish]) parts.push(ends[this.finish]);
    return parts.join(" · ");
  }
}

const number = x => x >= 100 ? x.toFixed(0) : x.toFixed(1);
const seconds = ms => ms < 1000 ? Math.round(ms) + " ms" : (ms / 1000).toFixed(ms < 10000 ? 2 : 1) + " s";

const makeCall = () => element("details", { class: "call", open: true }, element("summary"), element("pre", { tabIndex: 0, role: "group", "aria-label": "Arguments" }));

function updateCall(e, call) {
  setText(e.firstChild, "Calls " + call.name);
  let shown = call.arguments;
  try {
    shown = JSON.stringify(JSON.parse(shown), null, 2);
  } catch { /* not whole yet */ }
  setText(e.lastChild, shown);
}

// conversation is what a model is sent for a turn: the turns that it answered, and this one.
function conversation(model, last) {
  const messages = [];
  const system = byId("system").value.trim();
  if (system) messages.push({ role: "system", content: system });
  for (const turn of turns.slice(0, last)) {
    const answer = turn.answers.find(a => a.model === model);
    if (answer?.text) messages.push({ role: "user", content: turn.text }, { role: "assistant", content: answer.text });
  }
  messages.push({ role: "user", content: turns[last].text });
  return messages;
}

function settings() {
  const s = {};
  if (byId("temperature").value !== "") s.temperature = Number(byId("temperature").value);
  if (byId("max-tokens").value !== "") s.max_tokens = Number(byId("max-tokens").value);
  return s;
}

function send(text) {
  const models = known.filter(m => chosen.has(m.id)).map(m => m.id);
  const turn = { text, answers: models.map(m => new Answer(m)) };
  const index = turns.push(turn) - 1;
  turn.grid = element("div", { class: "answers" }, ...turn.answers.map(a => a.element));
  turn.element = element("div", { class: "turn" }, question(turn), turn.grid);
  byId("turns").append(turn.element);
  for (const t of turns.slice(0, index)) t.answers.forEach(a => { a.retry.hidden = true; });
  follow = true;
  const with_ = settings();
  for (const a of turn.answers) a.ask(conversation(a.model, index), with_);
  refreshButtons();
}

// question is the prompt of a turn, which can be edited: what came after it is then asked anew.
function question(turn) {
  const text = element("p", {}, turn.text);
  const edit = element("button", { type: "button", class: "quiet", onclick: () => {
    const area = element("textarea", { value: turn.text, rows: Math.min(12, turn.text.split("\n").length + 1), "aria-label": "Edited message" });
    const close = () => { form.replaceWith(box); edit.focus(); };
    const form = element("form", { class: "question editing", onsubmit: e => {
      e.preventDefault();
      if (!area.value.trim()) return;
      again(turn, area.value);
    }, onkeydown: e => {
      if (e.key === "Escape") { e.stopPropagation(); close(); }
      if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); form.requestSubmit(); }
    } }, area, element("div", { class: "buttons" },
      element("button", { type: "button", class: "quiet", onclick: close }, "Cancel"), element("button", { type: "submit" }, "Ask again")));
    box.replaceWith(form);
    area.focus();
  } }, "Edit");
  const box = element("div", { class: "question" }, text, edit);
  return box;
}

// again asks a turn's prompt, edited, in the place of the turn and all after it.
function again(turn, text) {
  for (const old of turns.splice(turns.indexOf(turn))) {
    old.answers.forEach(a => a.abort?.abort());
    old.element.remove();
  }
  send(text);
  byId("prompt").focus();
}

// retry asks for one answer of the last turn again.
function retry(old) {
  const turn = turns.at(-1), fresh = new Answer(old.model);
  turn.answers[turn.answers.indexOf(old)] = fresh;
  old.element.replaceWith(fresh.element);
  fresh.ask(conversation(fresh.model, turns.length - 1), settings());
  refreshButtons();
  byId("stop").focus();
}

const stop = () => turns.forEach(t => t.answers.forEach(a => a.abort?.abort()));

function refreshButtons() {
  const busy = turns.some(t => t.answers.some(a => a.busy));
  const focused = document.activeElement === byId("stop");
  byId("stop").hidden = !busy;
  byId("send").hidden = busy;
  byId("send").disabled = ![...chosen].some(id => known.some(m => m.id === id));
  if (focused && !busy) byId("prompt").focus();
}

// scrollAlong keeps the end in view while the reader has not scrolled away from it.
function scrollAlong() {
  const e = byId("turns");
  if (follow) e.scrollTop = e.scrollHeight;
}

function fit() {
  const area = byId("prompt");
  area.style.height = "auto";
  area.style.height = Math.min(area.scrollHeight + 2, 220) + "px";
}

// showModels takes the list of models.
export function showModels(models) {
  known = models;
  if (![...chosen].some(id => models.some(m => m.id === id)) && models.length > 0) chosen.add(models[0].id);
  keyed(byId("choices"), models, m => m.id, m => {
    const box = element("input", { type: "checkbox", checked: chosen.has(m.id), onchange: () => {
      if (box.checked) chosen.add(m.id);
      else chosen.delete(m.id);
      sessionStorage.setItem("openinfer-models", JSON.stringify([...chosen]));
      refreshButtons();
      heading();
    } });
    return element("label", { class: "choice" }, box, element("span", { class: "swatch" }), element("span", { class: "name" }, m.id), element("span", { class: "pill" }));
  }, (e, m) => {
    e.style.setProperty("--own", color(models.indexOf(m)));
    setText(e.lastChild, m.state === "resident" ? "" : m.state);
  });
  heading();
  refreshButtons();
}

function heading() {
  const names = known.filter(m => chosen.has(m.id)).map(m => m.id);
  setText(byId("settings").firstElementChild, names.length === 0 ? "Choose a model" : names.length === 1 ? names[0] : names.length + " models side by side");
  byId("prompt").placeholder = names.length === 0 ? "Choose a model first" : names.length === 1 ? "Ask " + names[0] : `Ask ${names.length} models at once`;
}

// start wires the form.
export function start() {
  const form = byId("composer"), area = byId("prompt");
  byId("settings").open = matchMedia("(min-width: 52rem)").matches;
  form.addEventListener("submit", e => {
    e.preventDefault();
    const text = area.value;
    if (!text.trim() || byId("send").disabled || byId("send").hidden) return;
    for (const id of ["temperature", "max-tokens"]) if (!byId(id).reportValidity()) return;
    area.value = "";
    fit();
    send(text);
  });
  area.addEventListener("keydown", e => {
    if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
    e.preventDefault();
    form.requestSubmit();
  });
  area.addEventListener("input", fit);
  byId("chat-view").addEventListener("keydown", e => { if (e.key === "Escape") stop(); });
  byId("stop").addEventListener("click", stop);
  byId("clear").addEventListener("click", () => {
    stop();
    turns.splice(0).forEach(t => t.element.remove());
    refreshButtons();
    area.focus();
  });
  byId("turns").addEventListener("scroll", () => {
    const e = byId("turns");
    follow = e.scrollHeight - e.scrollTop - e.clientHeight < 60;
  }, { passive: true });
}
