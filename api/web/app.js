// The page: two views, chat and server, and the snapshot of the server that both show.

import { byId, setText } from "./dom.js";
import { getJSON, askForKey, apiKey, inWords } from "./api.js";
import { onScheme } from "./colors.js";
import * as chat from "./chat.js";
import * as server from "./server.js";
import { startPool } from "./pool.js";

const every = { server: 1000, chat: 4000 }; // milliseconds between snapshots
let view = "";
let refused = false; // the reader gave no key
let timer = 0, asked = 0;

function show() {
  view = location.hash === "#server" ? "server" : "chat";
  for (const name of ["chat", "server"]) {
    byId(name + "-view").hidden = name !== view;
    byId("to-" + name).setAttribute("aria-current", name === view ? "page" : "false");
  }
  poll();
}

async function poll() {
  clearTimeout(timer);
  const mine = ++asked; // a later call takes over
  if (document.hidden) return;
  let pause = every[view];
  try {
    const state = await getJSON("/v1/state", { quiet: refused });
    refused = false;
    chat.showModels(state.models);
    if (view === "server") server.showState(state);
    server.showProblem(null);
    health(state.ready ? "ready" : state.reason || "not ready", state.ready ? "good" : "warn");
    byId("simulated").hidden = !state.simulated;
    setText(byId("simulated"), state.simulated ? "simulated " + state.simulated : "");
    byId("simulated").title = "No answer is computed: times are those of the card's data sheet, and texts are made up.";
    byId("to-server").title = "OpenInfer " + state.version;
  } catch (error) {
    if (error.status === 401) {
      refused = true;
      byId("key-button").hidden = false;
      pause = 5000;
    }
    server.showProblem(inWords(error));
    health(error.status === 401 ? "needs a key" : "not reachable", "bad");
  }
  if (asked === mine) timer = setTimeout(poll, pause);
}

function health(text, kind) {
  setText(byId("health"), text);
  byId("health").className = "badge " + kind;
}

byId("key-button").hidden = apiKey() === "";
byId("key-button").addEventListener("click", async () => {
  if (await askForKey()) {
    refused = false;
    poll();
  }
});
addEventListener("hashchange", show);
document.addEventListener("visibilitychange", poll);
onScheme(poll);
let resized = 0;
addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(poll, 150); });
chat.start();
startPool();
show();
if (view === "chat" && matchMedia("(pointer: fine)").matches) byId("prompt").focus();
