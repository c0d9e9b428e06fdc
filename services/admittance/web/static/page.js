// The script of the page. As a SharedWorker it holds the one stream of all tabs of a browser; as the
// script of a tab it asks for the page again when the stream says so, and morphs what changed.
"use strict";

const REPAINT_MS = 250;
const REST = 4, REST_MAX_MS = 30000; // a page rests so many times as long as its last answer took
const GRACE_MS = 1500;
const AGAIN_MS = 5000;

if (typeof SharedWorkerGlobalScope !== "undefined" && self instanceof SharedWorkerGlobalScope) {
  shareStream();
} else {
  document.body.classList.add("js");
  signInByLink();
  if ("live" in document.body.dataset) followLive();
  askBeforeForms();
  fillAndTry();
  listenToKeys();
}

// ---- the stream ----

function openStream(send) {
  const source = new EventSource("/live");
  source.addEventListener("changed", (event) => send({ kind: "changed", data: event.data }));
  source.addEventListener("ended", () => { source.close(); send({ kind: "ended" }); });
  source.onopen = () => send({ kind: "open" });
  source.onerror = () => send({ kind: source.readyState === 2 ? "refused" : "lost" });
  return source;
}

function shareStream() {
  const ports = new Map(); // a port, and whether its tab is visible
  let source = null;
  const send = (said) => { for (const [port, seen] of ports) if (seen) port.postMessage(said); };
  const settle = () => {
    const wanted = [...ports.values()].some(Boolean);
    if (wanted && (!source || source.readyState === 2)) source = openStream(send);
    if (!wanted && source) { source.close(); source = null; }
  };
  self.onconnect = (event) => {
    const port = event.ports[0];
    port.onmessage = ({ data }) => {
      if (data === "gone") ports.delete(port);
      else {
        if (data === "visible" && source) port.postMessage({ kind: "changed" });
        ports.set(port, data === "visible");
      }
      settle();
    };
  };
}

// A browser without SharedWorker: the visible tab that holds the lock has the stream, and sends to the others.
function streamOfLeader(receive) {
  const channel = new BroadcastChannel("admit-live");
  channel.onmessage = ({ data }) => receive(data);
  const lead = () => document.hidden ? null : new Promise((leave) => {
    let source = null, again = null;
    const open = () => {
      source = openStream((said) => {
        receive(said);
        channel.postMessage(said);
        if (said.kind === "refused") again = setTimeout(open, AGAIN_MS);
      });
    };
    open();
    document.addEventListener("visibilitychange", () => { clearTimeout(again); source.close(); leave(); }, { once: true });
  });
  const join = () => {
    if (document.hidden) return;
    if (navigator.locks) navigator.locks.request("admit-live", lead);
    else lead();
  };
  document.addEventListener("visibilitychange", join);
  join();
}

function followLive() {
  let asked = 0, took = 0, due = null, busy = false, more = false, lostAt = null, lostTimer = null, again = () => ask();
  const ask = () => {
    if (busy) { more = true; return; }
    if (due) return;
    due = setTimeout(repaint, Math.max(0, asked + Math.max(REPAINT_MS, took + Math.min(REST * took, REST_MAX_MS)) - performance.now()));
  };
  const repaint = async () => {
    due = null; busy = true; more = false; asked = performance.now();
    try {
      const answer = await fetch(location.href, { headers: { "admit-part": "1" }, redirect: "error" });
      const text = await answer.text();
      took = performance.now() - asked;
      if (!(answer.headers.get("content-type") || "").startsWith("text/html")) throw new Error(text);
      paint(new DOMParser().parseFromString(text, "text/html"));
      mark(answer.status >= 500 ? "no answer" : null);
    } catch { mark("no answer"); }
    busy = false;
    if (more) ask();
  };
  const mark = (why) => {
    clearTimeout(lostTimer); lostTimer = null;
    document.body.classList.toggle("stale", Boolean(why));
    const place = document.querySelector("#live span");
    if (why && !lostAt) lostAt = document.querySelector("#as-of time")?.textContent;
    if (!why) lostAt = null;
    if (place) place.textContent = why ? `Not live, as of ${lostAt}` : "Live";
  };
  const toSignIn = () => location.assign("/signin?next=" + encodeURIComponent(location.pathname + location.search));
  // The session is over, or there are too many streams, or a server before the page has no page.
  const refused = async () => {
    const signedIn = await fetch("/session").then((answer) => answer.json()).then((is) => is.signedIn, () => true);
    if (!signedIn) return toSignIn();
    mark("no stream");
    setTimeout(again, AGAIN_MS);
  };
  const receive = (said) => {
    if (said.kind === "changed" && !document.hidden) ask();
    if (said.kind === "open" && lostAt) ask();
    if (said.kind === "ended") toSignIn();
    if (said.kind === "refused") refused();
    if (said.kind === "lost" && !lostTimer && !lostAt) lostTimer = setTimeout(() => mark("connection lost"), GRACE_MS);
    if (said.kind === "open") { clearTimeout(lostTimer); lostTimer = null; }
  };
  const every = Number(document.body.dataset.every);
  if (every) setInterval(() => { if (!document.hidden) ask(); }, every * 1000);
  if (typeof SharedWorker === "undefined") {
    streamOfLeader(receive);
    document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
    return;
  }
  const worker = new SharedWorker("/static/page.js");
  worker.port.onmessage = ({ data }) => receive(data);
  const say = () => worker.port.postMessage(document.hidden ? "hidden" : "visible");
  document.addEventListener("visibilitychange", say);
  addEventListener("pagehide", () => worker.port.postMessage("gone"));
  addEventListener("pageshow", say);
  again = say;
  say();
}

// ---- morphing ----

function paint(fresh) {
  document.title = fresh.title;
  for (const id of ["main", "as-of", "icon"]) {
    const before = document.getElementById(id), after = fresh.getElementById(id);
    if (before && after) morph(before, after);
  }
}

// Makes `before` like `after`. Elements are matched by id, else by place; the row with the focus is
// not moved, but the others around it; a field with the focus and opened details stay as they are.
function morph(before, after) {
  if (before.isEqualNode(after)) return;
  if (before === document.activeElement && before.matches("input, textarea, select")) return;
  for (const { name } of [...before.attributes]) {
    if (!after.hasAttribute(name) && !(name === "open" && before.matches("details, dialog"))) before.removeAttribute(name);
  }
  for (const { name, value } of after.attributes) {
    if (before.getAttribute(name) !== value) before.setAttribute(name, value);
  }
  if (before.matches("textarea") || holds(before, after)) return;
  morphChildren(before, after);
}

// A list under the pointer or with the focus takes no new rows; a button says how many there are.
function holds(before, after) {
  if (!before.dataset.hold || !before.matches(":hover, :focus-within")) return false;
  const button = document.getElementById(before.dataset.hold);
  const known = new Set([...before.children].map((child) => child.id));
  const fresh = [...after.children].filter((child) => !known.has(child.id)).length;
  button.hidden = !fresh;
  button.textContent = `${fresh} new, show`;
  button.onclick = () => { button.hidden = true; morphChildren(before, after); };
  return true;
}

function morphChildren(before, after) {
  const named = new Map();
  for (const child of before.children) if (child.id) named.set(child.id, child);
  const held = [...before.childNodes].find((child) => child.contains(document.activeElement));
  const wanted = new Set([...after.children].map((child) => child.id).filter(Boolean));
  let place = before.firstChild;
  for (const next of [...after.childNodes]) {
    while (place && place.id && !wanted.has(place.id)) {
      const gone = place; place = place.nextSibling; gone.remove();
    }
    const twin = next.id ? named.get(next.id) : alike(place, next) ? place : null;
    if (!twin) {
      before.insertBefore(document.importNode(next, true), place);
      continue;
    }
    if (twin !== place) {
      // The row with the focus stays: what stands before it moves behind it instead.
      if (twin === held) while (place && place !== held) { const moved = place; place = place.nextSibling; before.append(moved); }
      else before.insertBefore(twin, place);
    }
    if (twin === place) place = place.nextSibling;
    if (twin.nodeType === Node.ELEMENT_NODE) morph(twin, next);
    else if (twin.data !== next.data) twin.data = next.data;
  }
  while (place) { const gone = place; place = place.nextSibling; gone.remove(); }
}

function alike(node, other) {
  return node && node.nodeType === other.nodeType && node.nodeName === other.nodeName && !node.id;
}

// ---- signing in ----

async function signInByLink() {
  const code = location.hash.slice(1), next = document.getElementById("next");
  if (/^[0-9a-f]{32}$/.test(code)) {
    history.replaceState(null, "", location.pathname + location.search);
    const form = Object.assign(document.createElement("form"), { method: "post", action: "/signin" });
    for (const [name, value] of [["code", code], ["next", next?.value || "/"]]) {
      form.append(Object.assign(document.createElement("input"), { type: "hidden", name, value }));
    }
    document.body.append(form);
    form.submit();
    return;
  }
  if (!next) return;
  // After a link from another web site the cookie comes with this request only.
  const answer = await fetch("/session");
  if ((await answer.json()).signedIn) location.replace(next.value);
}

// ---- forms and keys ----

function askBeforeForms() {
  const dialog = document.getElementById("confirm");
  document.addEventListener("submit", (event) => {
    const question = event.target.dataset?.confirm;
    if (!question || !dialog) return;
    event.preventDefault();
    document.getElementById("confirm-q").textContent = question;
    dialog.returnValue = "no";
    dialog.onclose = () => { if (dialog.returnValue === "yes") event.target.submit(); };
    dialog.showModal();
  });
}

function fillAndTry() {
  document.addEventListener("change", async (event) => {
    const into = document.getElementById(event.target.dataset?.fills), [file] = event.target.files || [];
    if (!into || !file) return;
    into.value = await file.text();
    event.target.value = "";
  });
  document.addEventListener("submit", (event) => {
    const says = event.target.dataset?.tries;
    if (says) setTimeout(() => { document.getElementById("asking").textContent = says; }, 400);
  });
}

function listenToKeys() {
  let go = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey && event.key === "Enter" && event.target.matches("[data-tries] *")) event.target.form?.requestSubmit();
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, textarea, select") || document.querySelector("dialog[open]")) return;
    if (localStorage.getItem("keys") === "off") return;
    const key = event.key, wentTo = go;
    go = false;
    if (wentTo) {
      const link = document.querySelector(`nav a[data-key="${CSS.escape(key)}"]`);
      if (link) location.assign(link.href);
    } else if (key === "/") { event.preventDefault(); document.getElementById("find")?.focus(); }
    else if (key === "g") go = true;
    else if (key === "?") document.getElementById("keys")?.showModal();
    else if (key === "e") location.assign(withFormat());
    else if (key === "j" || key === "k") step(key === "j" ? 1 : -1);
  });
}

function withFormat() {
  const url = new URL(location.href);
  url.searchParams.set("format", "json");
  return url;
}

function step(by) {
  const links = [...document.querySelectorAll("[data-row] a.name")];
  const at = links.indexOf(document.activeElement);
  links[Math.min(Math.max(at + by, 0), links.length - 1)]?.focus();
}
