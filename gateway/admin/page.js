// The page is whole without this script. The script replaces what has changed, as the server has rendered it.
"use strict";

const live = document.getElementById("live");
const list = document.querySelector("#servers, #records");
let order = null; // that the rows shall have, when nobody points at them

function element(html) {
  const box = document.createElement("template");
  box.innerHTML = html; // made by the server (parts.go), in which all that others have written is text
  return box.content.firstElementChild;
}

// put replaces a part of the page, and keeps the focus on what stands where it was.
function put(part) {
  const old = document.getElementById(part.id), fresh = element(part.html);
  if (!old) {
    list.append(fresh);
    return;
  }
  const controls = [...old.querySelectorAll("a, button, pre")];
  const focused = controls.indexOf(document.activeElement);
  old.replaceWith(fresh);
  if (focused >= 0) fresh.querySelectorAll("a, button, pre")[focused]?.focus();
}

function arrange() {
  if (!order || list.matches(":hover, :focus-within")) return;
  const wanted = order;
  order = null;
  for (const row of [...list.children]) if (!wanted.includes(row.id)) row.remove();
  wanted.forEach((id, i) => {
    const row = document.getElementById(id);
    if (row && list.children[i] !== row) list.insertBefore(row, list.children[i] ?? null);
  });
}

list.addEventListener("pointerleave", () => setTimeout(arrange));
list.addEventListener("focusout", () => setTimeout(arrange));

// tick shows how long ago a time is, or how long it takes until then. The clock of this machine may be another than the gateway's.
let ahead = 0;
function tick() {
  for (const time of document.querySelectorAll("time[data-count]")) {
    const s = Math.round((Date.now() - ahead - Date.parse(time.dateTime)) / 1000) * (time.dataset.count === "up" ? 1 : -1);
    const text = s < 60 ? `${Math.max(s, 0)} s` : s < 3600 ? `${Math.floor(s / 60)} min` : `${Math.floor(s / 3600)} h`;
    time.textContent = `${time.dataset.clock} (${time.dataset.count === "up" ? "for" : "in"} ${text})`;
  }
}
setInterval(tick, 1000);

// connect shows what holds now, as long as somebody sees the page: a browser has six connections to a site, and the next page would wait for ever.
// It tries again by itself when the connection is lost, but not when it is refused.
let version = null; // of the gateway that has made the page
let source = null;
function connect() {
  source?.close();
  if (document.hidden) return;
  source = new EventSource(document.body.dataset.events);
  source.addEventListener("page", (event) => {
    const page = JSON.parse(event.data);
    if (version !== null && version !== page.version) location.reload();
    version = page.version;
    ahead = Date.now() - Date.parse(page.at);
    page.parts.forEach(put);
    order = page.order;
    arrange();
    tick();
    live.textContent = "● live";
  });
  source.addEventListener("error", () => {
    live.textContent = "⚠ no connection to the gateway: what you see is old; trying again";
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
  });
}
document.addEventListener("visibilitychange", connect);
connect();
