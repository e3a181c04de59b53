// Asking the server: the API key, streams of server-sent events, and errors in words.

import { byId } from "./dom.js";

const stored = "openinfer-api-key";

export const apiKey = () => sessionStorage.getItem(stored) ?? "";

// ServerError is an answer that is an error; message is for the reader.
export class ServerError extends Error {
  constructor(status, body, retryAfter) {
    super(words(status, body, retryAfter));
    this.status = status;
    this.code = body?.code ?? "";
    this.retryAfter = retryAfter;
  }
}

function words(status, body, retryAfter) {
  const said = body?.message ?? "";
  const again = retryAfter ? ` Try again in ${retryAfter} s.` : "";
  switch (body?.code) {
    case "over_capacity": return "The server has no room for this now." + again + (said ? ` (${said})` : "");
    case "model_loading": return "The model is still loading." + again;
    case "model_unloaded": return "The model was unloaded while it answered." + again;
    case "model_load_failed": return "The model could not be loaded; the server's log says why." + again;
    case "shutting_down": return "The server is stopping." + again;
    case "request_cancelled": return "This request was cancelled on the server.";
    case "invalid_api_key": return said;
    case "step_failed": return "The server failed at this step. Retry may help.";
  }
  if (status === 429) return "Too many requests." + again + (said ? ` (${said})` : "");
  if (status === 503) return "The server cannot answer now." + again + (said ? ` (${said})` : "");
  return said || `The server answered with status ${status}.`;
}

let asking = null; // the dialog that is open, as a promise

// askForKey lets the reader enter a key, and resolves to whether there is one now.
export function askForKey(why) {
  if (asking) return asking;
  const dialog = byId("key-dialog"), input = byId("key");
  if (why) byId("key-text").textContent = why;
  input.value = apiKey();
  byId("key-form").onsubmit = () => { dialog.returnValue = "use"; };
  byId("key-cancel").onclick = () => dialog.close("");
  dialog.returnValue = "";
  dialog.showModal();
  asking = new Promise(resolve => dialog.addEventListener("close", () => {
    asking = null;
    const use = dialog.returnValue === "use" && input.value.trim() !== "";
    if (use) sessionStorage.setItem(stored, input.value.trim());
    byId("key-button").hidden = false;
    resolve(use);
  }, { once: true }));
  return asking;
}

// Over HTTP/1 a browser opens six connections to a server and no more, and a stream keeps one. Requests that may carry cookies
// and those that may not have six of their own each: what is short goes without, so that the page stays alive while six models
// answer, and so do four more streams. Over HTTPS there is one connection for all.
const apart = location.protocol === "http:" ? "omit" : "same-origin";
let streams = 0; // that may carry cookies

// request asks the server. Where a key is wanted it asks the reader for one and tries again, unless quiet.
export async function request(path, { body, signal, quiet, credentials = apart } = {}) {
  for (;;) {
    const headers = {};
    if (apiKey()) headers.Authorization = "Bearer " + apiKey();
    if (body) headers["Content-Type"] = "application/json";
    const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal, credentials, cache: "no-store" });
    if (answer.ok) return answer;
    const parsed = await answer.json().then(v => v.error, () => null);
    const error = new ServerError(answer.status, parsed, Number(answer.headers.get("Retry-After")) || 0);
    if (answer.status !== 401 || quiet || !await askForKey(error.message)) throw error;
  }
}

export const getJSON = async (path, options) => (await request(path, options)).json();
export const postJSON = async (path, body) => (await request(path, { body })).json();

// stream posts a request for a stream and yields its events. An error event is thrown.
export async function* stream(path, body, signal) {
  const full = streams >= 6;
  if (!full) streams++;
  let rest = "", ended = false, reader = null;
  try {
    const answer = await request(path, { body, signal, credentials: full ? apart : "same-origin" });
    reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "[DONE]") { ended = true; continue; }
        const event = JSON.parse(data);
        if (event.error) throw new ServerError(0, event.error, 0);
        yield event;
      }
    }
  } finally {
    if (!full) streams--;
    reader?.cancel().catch(() => {});
  }
  if (!ended) throw new Error("The connection ended before the answer did.");
}

// inWords is what to tell the reader of any error.
export function inWords(error) {
  if (error instanceof TypeError) return "The server cannot be reached.";
  return error.message;
}
