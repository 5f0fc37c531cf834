// The parts that need a script: copy buttons and live changes. Everything else works without it.
"use strict";

for (const button of document.querySelectorAll(".copy")) show(button);

function show(button) {
  if (navigator.clipboard) button.hidden = false;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest(".copy");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  button.classList.add("done");
  setTimeout(() => button.classList.remove("done"), 1200);
});

const MOST = 500; // changes on one page
const place = document.querySelector("[data-stream]");
const state = document.getElementById("state");
const pause = document.getElementById("pause");
let source = null;
let last = null; // the position up to which the page has everything
let paused = false;

function say(text) {
  if (state && state.textContent !== text) state.textContent = text;
}

function reloadLink(text) {
  const link = document.createElement("a");
  link.href = location.href;
  link.textContent = "reload";
  state.replaceChildren(`${text}, `, link);
}

function parsed(html) {
  const template = document.createElement("template");
  template.innerHTML = html; // the server escapes every text, and the page's policy runs no script in it
  return template.content;
}

function add(event) {
  last = event.lastEventId;
  if (document.getElementById(`c-${last}`)) return;
  const row = parsed(event.data).firstElementChild;
  row.classList.add("fresh");
  row.querySelectorAll(".copy").forEach(show);
  place.prepend(row);
  setTimeout(() => row.classList.remove("fresh"), 1500);
  while (place.children.length > MOST) place.lastElementChild.remove();
  say("live");
}

function open() {
  if (!place || source || paused || document.hidden) return;
  const address = new URL(place.dataset.stream, location.href);
  if (last) address.searchParams.set("after", last);
  source = new EventSource(address);
  source.addEventListener("hello", () => say("live"));
  source.addEventListener("change", add);
  source.addEventListener("gauges", (event) => place.replaceChildren(parsed(event.data)));
  source.addEventListener("skipped", (event) => reloadLink(`${event.data} changes skipped`));
  source.addEventListener("gone", () => { close(); reloadLink("changes were collected"); });
  source.addEventListener("over", () => { close(); location.reload(); });
  source.addEventListener("away", () => say("the database is away"));
  source.addEventListener("back", () => say("live"));
  source.addEventListener("error", () => {
    if (source && source.readyState === EventSource.CLOSED) {
      source = null;
      setTimeout(open, 5000);
    }
    say("connecting…");
  });
}

function close() {
  if (source) source.close();
  source = null;
}

// A browser opens six connections to a server: so a hidden tab gives its connection back
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
window.addEventListener("pagehide", close);
window.addEventListener("pageshow", open);

if (pause) {
  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause";
    if (paused) { close(); say("paused"); } else open();
  });
}
open();
