"use strict";
// Shared by all pages: theme, the token (in this page's memory and nowhere else), requests, small helpers.

const page = { token: null };

/** Whether requests need a token that nobody has given yet. "exempt": the cluster's state can be seen without. */
function tokenMissing() { return document.documentElement.dataset.auth === "token" && !page.token; }

function $(id) { return document.getElementById(id); }

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/* ---- theme: the system's, until somebody chooses ---- */
(function theme() {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const current = () => root.dataset.theme || (system.matches ? "dark" : "light");
  const show = () => {
    const button = $("theme");
    if (!button) return;
    const other = current() === "dark" ? "light" : "dark";
    button.textContent = other === "dark" ? "Dark" : "Light";
    button.setAttribute("aria-label", `Switch to the ${other} theme`);
  };
  document.addEventListener("DOMContentLoaded", () => {
    $("theme").addEventListener("click", () => {
      root.dataset.theme = current() === "dark" ? "light" : "dark";
      show();
      document.dispatchEvent(new Event("themed"));
    });
    show();
  });
  system.addEventListener("change", show);
})();

/* ---- the token ---- */
function headers(more) {
  return Object.assign(page.token ? { Authorization: "Bearer " + page.token } : {}, more);
}

/** Send a request; ask for the token when the server wants one. Throws an Error with the server's own message. */
async function request(path, options) {
  const given = options || {};
  const response = await fetch(path, Object.assign({}, given, { headers: headers(given.headers), cache: "no-store" }));
  if (response.ok) return response;
  if (response.status === 401) askForToken(page.token !== null);
  let message = "HTTP " + response.status;
  try {
    const body = await response.json();
    const said = body.error || body.detail || body;
    message = said.message || message;
  } catch (_) { /* not JSON: the status has to do */ }
  const error = new Error(message);
  error.status = response.status;
  throw error;
}

function post(path, body, options) {
  return request(path, Object.assign({ method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }, options));
}

function askForToken(refused) {
  const card = $("sign-in");
  if (card.hidden) {
    card.hidden = false;
    $("token").focus();
  }
  $("sign-in-fault").textContent = refused ? "The server does not know this token." : "";
}

document.addEventListener("DOMContentLoaded", () => {
  $("sign-in").addEventListener("submit", (event) => {
    event.preventDefault();
    const value = $("token").value.trim();
    if (!value) return;
    page.token = value;
    $("token").value = "";
    $("sign-in").hidden = true;
    document.dispatchEvent(new Event("signed-in"));
  });
});

/* ---- numbers ---- */
function number(value, digits) {
  return value.toLocaleString("en", { maximumFractionDigits: digits === undefined ? 0 : digits });
}

function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms >= 10000) return number(ms / 1000, 1) + " s";
  if (ms >= 1000) return number(ms / 1000, 2) + " s";
  return number(ms, ms < 10 ? 1 : 0) + " ms";
}

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return number(value, value < 10 && unit ? 1 : 0) + " " + units[unit];
}
