// The page is whole without this script. The script replaces what has changed, as the server has rendered it.
"use strict";

const live = document.getElementById("live");
const list = document.getElementById("servers");
let order = null; // that the rows shall have, when nobody points at them

function element(html) {
  const box = document.createElement("template");
  box.innerHTML = html; // made by the server's templates, in which all names are text
  return box.content.firstElementChild;
}

// put replaces a part of the page, and keeps the focus on what stands where it was.
function put(part) {
  const old = document.getElementById(part.id), fresh = element(part.html);
  if (!old) {
    list.append(fresh);
    return;
  }
  const controls = [...old.querySelectorAll("a, button, summary")];
  const focused = controls.indexOf(document.activeElement);
  const open = old.querySelector("details")?.open;
  old.replaceWith(fresh);
  if (open && fresh.querySelector("details")) fresh.querySelector("details").open = true;
  if (focused >= 0) fresh.querySelectorAll("a, button, summary")[focused]?.focus();
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

const source = new EventSource(document.body.dataset.events);
source.addEventListener("page", (event) => {
  const page = JSON.parse(event.data);
  page.parts.forEach(put);
  order = page.order;
  arrange();
  live.textContent = "live ●";
});
source.addEventListener("error", () => { live.textContent = "⚠ no connection to the gateway: what you see is old; trying again"; });
