// Building elements. Text only ever becomes text: nothing in this page is parsed as markup.

// element makes an element with properties and children; strings among them become text.
export function element(name, properties = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") e.className = value;
    else if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
    else if (key.includes("-") || key === "role" || key === "scope") e.setAttribute(key, value);
    else e[key] = value;
  }
  return fill(e, children);
}

// fill appends any number of children.
export function fill(parent, children) {
  for (const c of children) parent.append(c);
  return parent;
}

export const byId = id => document.getElementById(id);

// setText touches the element only when its text changes, so that a selection in it stays.
export function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// keyed makes parent's children those of items, in their order. An item's child is made once and then updated, so that
// focus and animations stay.
export function keyed(parent, items, key, make, update) {
  const old = new Map([...parent.children].map(c => [c.dataset.key, c]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const k = String(key(item));
    let child = old.get(k);
    old.delete(k);
    if (!child) {
      child = make(item);
      child.dataset.key = k;
    }
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
    update(child, item);
  }
  for (const child of old.values()) child.remove();
}

// ask shows a question and resolves to whether it was answered with yes.
export function ask(text, yes) {
  const dialog = byId("sure");
  byId("sure-text").textContent = text;
  byId("sure-yes").textContent = yes;
  dialog.returnValue = "";
  byId("sure-yes").onclick = () => dialog.close("yes");
  byId("sure-no").onclick = () => dialog.close("");
  dialog.showModal();
  return new Promise(resolve => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

// announce says something to those who do not see the page.
export const announce = text => { byId("announced").textContent = text; };

let toastTimer = 0;

// toast says something for a few seconds.
export function toast(text) {
  const e = byId("toast");
  e.textContent = text;
  e.classList.add("shown");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => e.classList.remove("shown"), 5000);
}
