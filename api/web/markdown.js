// Markdown as models write it, as elements. The text is hostile: it only ever becomes text of elements that are named here;
// addresses are those of http, https and mailto; images are not loaded; HTML is shown as it is written.
//
// A text that grows is parsed into blocks each time, and only the blocks that changed are made anew.

import { element, fill } from "./dom.js";

const deepest = 8; // nested quotes and lists; emphasis within emphasis

// Markdown shows a text in an element.
export class Markdown {
  constructor(parent) {
    this.parent = parent;
    this.shown = []; // sources of the blocks that are there
  }

  show(text) {
    const all = blocks(text.replace(/\r\n?/g, "\n").split("\n"));
    let same = 0;
    while (same < all.length && same < this.shown.length && all[same] === this.shown[same]) same++;
    while (this.parent.childNodes.length > same) this.parent.lastChild.remove();
    for (const source of all.slice(same)) this.parent.append(block(source, 0));
    this.shown = all;
  }
}

const bullet = /^( {0,3})([-*+]|\d{1,9}[.)])(?: +|$)/;
const heading = /^ {0,3}(#{1,6})(?=\s|$)/;
const rule = /^ {0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$/;
const quote = /^ {0,3}> ?/;
const tableRule = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const blank = line => line.trim() === "";

// fence is the mark and the language of a line that opens code, or null.
function fence(line) {
  const text = line.trimStart();
  let n = 0;
  while (text[n] === text[0] && (text[0] === "`" || text[0] === "~")) n++;
  const info = text.slice(n).trim();
  return n < 3 || line.length - text.length > 3 || text[0] === "`" && info.includes("`") ? null : { mark: text.slice(0, n), info };
}

// closes says whether a line ends the code that open began.
const closes = (line, open) => line.trim().length >= open.length && line.trim().replaceAll(open[0], "") === "" && /^ {0,3}\S/.test(line);

// blocks splits lines into the sources of top-level blocks.
function blocks(lines) {
  const all = [];
  for (let i = 0; i < lines.length;) {
    const start = i, line = lines[i];
    if (blank(line)) { i++; continue; }
    const code = fence(line);
    if (code) {
      for (i++; i < lines.length && !closes(lines[i], code.mark); i++);
      i++;
    } else if (heading.test(line) || rule.test(line)) {
      i++;
    } else if (quote.test(line)) {
      for (i++; i < lines.length && quote.test(lines[i]); i++);
    } else if (bullet.test(line)) {
      i = listEnd(lines, i);
    } else if (isTable(lines, i)) {
      for (i += 2; i < lines.length && !blank(lines[i]) && lines[i].includes("|"); i++);
    } else {
      for (i++; i < lines.length && !blank(lines[i]) && !begins(lines, i); i++);
    }
    all.push(lines.slice(start, Math.min(i, lines.length)).join("\n"));
  }
  return all;
}

const begins = (lines, i) => fence(lines[i]) || heading.test(lines[i]) || rule.test(lines[i]) || quote.test(lines[i]) || bullet.test(lines[i]) || isTable(lines, i);

const isTable = (lines, i) => lines[i].includes("|") && i + 1 < lines.length && lines[i + 1].includes("-") && lines[i + 1].includes("|") && tableRule.test(lines[i + 1].slice(0, 500));

// listEnd is where the list that begins at line i ends: at a line that is not blank, not indented and no item of its kind.
function listEnd(lines, i) {
  const ordered = /\d/.test(bullet.exec(lines[i])[2]);
  let code = null;
  for (let k = i + 1; k < lines.length; k++) {
    const open = fence(lines[k].trimStart());
    if (code) {
      if (closes(lines[k].trimStart(), code)) code = null;
      continue;
    }
    if (open && /^\s{2,}/.test(lines[k])) { code = open.mark; continue; }
    if (blank(lines[k])) {
      const next = lines.slice(k + 1, k + 3).find(l => !blank(l));
      const item = next !== undefined && bullet.exec(next);
      if (next === undefined || !/^\s{2,}/.test(next) && !(item && /\d/.test(item[2]) === ordered)) return k;
      continue;
    }
    const item = bullet.exec(lines[k]);
    if (item && !rule.test(lines[k])) {
      if (/\d/.test(item[2]) !== ordered) return k;
    } else if (!/^\s{2,}/.test(lines[k]) && (blank(lines[k - 1]) || begins(lines, k))) {
      return k;
    }
  }
  return lines.length;
}

// block makes the element of one block.
function block(source, depth) {
  const lines = source.split("\n");
  const code = fence(lines[0]);
  if (code) {
    const end = lines.length > 1 && closes(lines.at(-1), code.mark) ? -1 : undefined;
    return codeBlock(lines.slice(1, end).join("\n"), code.info.split(/\s/)[0].slice(0, 30));
  }
  const head = heading.exec(lines[0]);
  if (head) { // the page has h1 and h2 itself
    const e = element("p", { class: "heading h" + head[1].length, role: "heading", "aria-level": String(Math.min(head[1].length + 2, 9)) });
    return inline(e, withoutHashes(lines[0].trim().slice(head[1].length).trim()), 0);
  }
  if (rule.test(lines[0])) return element("hr");
  if (depth < deepest && quote.test(lines[0])) return within(element("blockquote"), lines.map(l => l.replace(quote, "")), depth);
  if (depth < deepest && bullet.test(lines[0])) return list(lines, depth);
  if (isTable(lines, 0)) return table(lines);
  return inline(element("p"), source, 0);
}

// withoutHashes is a heading's text without those that may follow it.
function withoutHashes(text) {
  let end = text.length;
  while (text[end - 1] === "#") end--;
  return end === 0 || text[end - 1] === " " ? text.slice(0, end).trim() : text;
}

function within(parent, lines, depth) {
  for (const source of blocks(lines)) parent.append(block(source, depth + 1));
  return parent;
}

function codeBlock(text, language) {
  const copy = element("button", { type: "button", class: "copy quiet", onclick: async e => {
    const button = e.currentTarget;
    await navigator.clipboard.writeText(text).then(() => { button.textContent = "Copied"; }, () => { button.textContent = "Not allowed"; });
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } }, "Copy");
  return element("div", { class: "code" },
    element("div", { class: "code-head" }, element("span", {}, language), copy),
    element("pre", { tabIndex: 0, role: "group", "aria-label": language ? "Code, " + language : "Code" }, element("code", {}, text)));
}

function list(lines, depth) {
  const first = bullet.exec(lines[0]), ordered = /\d/.test(first[2]);
  const e = element(ordered ? "ol" : "ul");
  if (ordered && parseInt(first[2]) !== 1) e.start = parseInt(first[2]);
  let item = null, margin = 0;
  const done = () => {
    if (!item) return;
    const li = within(element("li"), item, depth);
    if (li.childElementCount > 0 && li.firstChild.tagName === "P") unwrap(li.firstChild); // tight
    const task = /^\[([ xX])\] /.exec(li.firstChild?.nodeType === Node.TEXT_NODE ? li.firstChild.data : "");
    if (task) li.firstChild.data = (task[1] === " " ? "☐ " : "☑ ") + li.firstChild.data.slice(4);
    e.append(li);
  };
  for (const line of lines) {
    const mark = bullet.exec(line);
    if (mark && (!item || mark[1].length < margin) && !(item && rule.test(line))) {
      done();
      margin = Math.min(mark[0].length, mark[1].length + mark[2].length + 1);
      item = [line.slice(mark[0].length)];
    } else {
      const indent = line.length - line.trimStart().length;
      item.push(line.slice(Math.min(indent, margin)));
    }
  }
  done();
  return e;
}

function unwrap(e) {
  while (e.firstChild) e.before(e.firstChild);
  e.remove();
}

function table(lines) {
  const cells = line => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map(c => c.trim().replaceAll("\\|", "|"));
  const head = cells(lines[0]);
  const right = cells(lines[1]).map(c => c.endsWith(":") && !c.startsWith(":"));
  const row = (line, name) => fill(element("tr"), cells(line).slice(0, head.length).map((c, i) =>
    inline(element(name, right[i] ? { class: "number" } : {}), c, 0)));
  return element("div", { class: "scroll", tabIndex: 0, role: "group", "aria-label": "Table" }, element("table", {},
    element("thead", {}, row(lines[0], "th")), fill(element("tbody"), lines.slice(2).map(l => row(l, "td")))));
}

const longest = 2000; // text or address of a link

// withoutStop is an address without the punctuation of the sentence around it.
function withoutStop(address) {
  let end = address.length;
  while (".,;:!?*_~)]}".includes(address[end - 1] ?? "x")) end--;
  return address.slice(0, end);
}

// Where something inline may begin.
const special = /[\\`*_~[!<\n]|https?:\/\//g;
const wordy = /[\p{L}\p{N}]/u;

// inline appends a text with its emphasis, code and links. What has no end is text; that it has none is remembered, so that
// a text of openings alone costs no more than its length.
function inline(parent, text, depth, links = true) {
  let plain = "";
  const none = new Set(); // closings that do not come any more
  const find = (what, from) => {
    if (none.has(what)) return -1;
    const at = text.indexOf(what, from);
    if (at < 0) none.add(what);
    return at;
  };
  const put = (...nodes) => {
    if (plain) parent.append(plain);
    plain = "";
    parent.append(...nodes);
  };
  let i = 0;
  while (i < text.length) {
    special.lastIndex = i;
    const next = special.exec(text);
    if (!next) { plain += text.slice(i); break; }
    plain += text.slice(i, next.index);
    i = next.index;
    const c = text[i];
    if (c === "\\" && /[!-/:-@[-`{-~]/.test(text[i + 1] ?? "")) {
      plain += text[i + 1];
      i += 2;
    } else if (c === "\n") {
      put(element("br"));
      i++;
    } else if (c === "`") {
      const ticks = /^`+/.exec(text.slice(i, i + 50))[0];
      let end = find(ticks, i + ticks.length);
      while (end >= 0 && text[end + ticks.length] === "`") {
        let past = end;
        while (text[past] === "`") past++;
        end = find(ticks, past);
      }
      if (end < 0) { plain += ticks; i += ticks.length; continue; }
      put(element("code", {}, unpadded(text.slice(i + ticks.length, end).replaceAll("\n", " "))));
      i = end + ticks.length;
    } else if (c === "*" || c === "_" || c === "~") {
      const mark = c === "~" ? "~~" : text[i + 1] === c ? c + c : c;
      const end = text.startsWith(mark, i) && depth < deepest && opens(text, i, mark) ? ending(text, i + mark.length, mark, find) : -1;
      if (end < 0) { // the whole run is text
        let past = i;
        while (text[past] === c) past++;
        plain += text.slice(i, past);
        i = past;
        continue;
      }
      put(inline(element(mark === "~~" ? "del" : mark.length === 2 ? "strong" : "em"), text.slice(i + mark.length, end), depth + 1, links));
      i = end + mark.length;
    } else if (c === "[" || c === "!" && text[i + 1] === "[") {
      const open = i + (c === "!" ? 2 : 1);
      const middle = links ? open + text.slice(open, open + longest).indexOf("](") : -1, end = middle < open ? -1 : find(")", middle + 2);
      if (end < 0 || end - middle > longest) { plain += text.slice(i, open); i = open; continue; }
      const label = text.slice(open, middle), target = text.slice(middle + 2, end).trim().split(/\s/)[0].replace(/^<|>$/g, "");
      put(link(target, c === "!" ? "image: " + (label || target) : label, depth));
      i = end + 1;
    } else if (c === "<") {
      const auto = links && /^<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/i.exec(text.slice(i, i + 2100));
      if (!auto) { plain += c; i++; continue; }
      put(link(auto[1], "", depth));
      i += auto[0].length;
    } else if (c === "!") {
      plain += c;
      i++;
    } else if (text.startsWith("http", i)) {
      const address = !links ? "" : withoutStop(/^https?:\/\/[^\s<>"'`]{1,2000}/.exec(text.slice(i, i + 2100))?.[0] ?? "");
      if (address.length > 8) put(link(address, "", depth));
      else plain += text.slice(i, i + 4);
      i += Math.max(address.length > 8 ? address.length : 0, 4);
    } else {
      plain += c;
      i++;
    }
  }
  put();
  return parent;
}

// unpadded is code without the one space on each side that keeps its own backticks apart from the marks.
const unpadded = code => code.length > 2 && code.startsWith(" ") && code.endsWith(" ") && code.trim() ? code.slice(1, -1) : code;

// opens says whether a mark at i can begin emphasis: text follows at once, and a _ is not within a word.
const opens = (text, i, mark) => /\S/.test(text[i + mark.length] ?? "") && !(mark[0] === "_" && i > 0 && wordy.test(text[i - 1]));

// ending is where the emphasis ends whose text begins at from, or -1.
function ending(text, from, mark, find) {
  for (let end = find(mark, from + 1), tries = 0; end >= 0 && tries < 50; end = find(mark, end + 1), tries++) {
    const after = text[end + mark.length];
    if (mark.length === 1 && (after === mark || text[end - 1] === mark)) { // half of a double one
      if (after === mark) end++;
      continue;
    }
    if (/\S/.test(text[end - 1]) && !(mark[0] === "_" && after !== undefined && wordy.test(after))) return end;
  }
  return -1;
}

// link is an element that leads to an address, or its text when that is none of http, https or mailto. Without a text it
// shows the address. There is no link within a link.
function link(target, text, depth) {
  let address = null;
  try {
    address = new URL(target);
  } catch { /* it is none */ }
  if (!address || !["http:", "https:", "mailto:"].includes(address.protocol)) return inline(element("span"), text || target, depth + 1, false);
  const a = element("a", { href: address.href, rel: "noopener noreferrer nofollow", target: "_blank", title: address.href });
  if (!text) {
    a.append(target);
    return a;
  }
  return inline(a, text, depth + 1, false);
}
