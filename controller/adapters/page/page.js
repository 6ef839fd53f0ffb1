// Keeps the page current without flicker: only what changed is replaced, and never what has focus.
"use strict";

const every = 1000 * Number(document.body.dataset.refresh);
const connection = document.getElementById("connection");
let failedSince = null;

function adopt(old, fresh) {
  if (old.dataset.live === "children") {
    const ids = (node) => Array.from(node.children, (child) => child.id).join();
    if (ids(old) === ids(fresh)) return;
  } else if (old.innerHTML === fresh.innerHTML || old.contains(document.activeElement)) {
    return;
  }
  old.replaceChildren(...fresh.childNodes);
}

async function refresh() {
  const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(10000) });
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!answer.ok) throw new Error(page.title);
  document.title = page.title;
  for (const old of document.querySelectorAll("[data-live]")) {
    const fresh = page.getElementById(old.id);
    if (fresh) adopt(old, fresh);
  }
}

async function keepCurrent() {
  if (!document.hidden) {
    try {
      await refresh();
      failedSince = null;
      if (connection.textContent) connection.textContent = "";
    } catch {
      failedSince ??= new Date();
      const time = failedSince.toISOString().slice(11, 19);
      const said = `No answer since ${time}: what is shown is old.`;
      if (connection.textContent !== said) connection.textContent = said;
    }
  }
  setTimeout(keepCurrent, every);
}

setTimeout(keepCurrent, every);
