"use strict";
// The cluster, live: frames of /ws/cluster-status, or /health once a second where no WebSocket gets through.

const STATES = {
  loaded: ["good", "loaded"], loading: ["busy", "loading"], failed: ["bad", "failed"], available: ["idle", "available"],
  healthy: ["good", "healthy"], unhealthy: ["bad", "silent"], active: ["good", "active"], pending: ["busy", "pending"], expired: ["bad", "expired"],
};
const REFRESH = 5000;
const charts = {};
const DEFAULT_TTL = 1200;
const known = { models: [], pools: null, frame: null };
let socket = null;
let failures = 0;
let polling = null;

function state(name) {
  return mark(...(STATES[name] || ["idle", name]));
}

function mark(kind, word) {
  return element("span", { class: "state " + kind }, word);
}

function cell(label, content, kind) {
  return element("td", { "data-label": label, class: kind || null }, content);
}

function rows(id, made, empty, columns) {
  $(id).previousElementSibling.hidden = !made.length;
  $(id).replaceChildren(...(made.length ? made : [element("tr", {}, element("td", { colspan: columns, class: "soft full" }, empty))]));
}

function live(kind, text) {
  if ($("live").textContent === text) return;
  $("live").className = "state " + kind;
  $("live").textContent = text;
}

/* ---- what is shown ---- */
function tile(value, text, note) {
  return element("div", { class: "tile" }, element("b", {}, value), element("span", { class: "soft small" }, text), note ? element("div", { class: "small" }, note) : null);
}

function workersNote(workers, healthy) {
  if (!workers.length) return mark("idle", "none yet");
  return healthy === workers.length ? state("healthy") : mark("bad", `${workers.length - healthy} silent`);
}

/** The worst that there is to say of the models. */
function modelsNote(models) {
  for (const name of ["failed", "loading"]) {
    const count = models.filter((model) => model.state === name).length;
    if (count) return mark(STATES[name][0], `${count} ${name}`);
  }
  return state(models.some((model) => model.state === "loaded") ? "loaded" : "available");
}

/** What is at a worker: its queue depth leaves out one request for each batch that runs. */
function requests(worker) {
  return worker.queue_depth + worker.inflight_batches;
}

function total(workers) {
  return workers.reduce((sum, worker) => sum + requests(worker), 0);
}

function showTiles(frame) {
  const workers = frame.workers;
  const healthy = workers.filter((worker) => worker.healthy).length;
  const rates = frame.throughput;
  const perSecond = rates ? rates.requests_per_s : frame.cluster.total_qps;
  const all = Math.max(known.models.length, frame.models.length);
  $("tiles").replaceChildren(
    tile(`${healthy} of ${workers.length}`, "workers", workersNote(workers, healthy)),
    tile(`${frame.cluster.models_loaded} of ${all}`, "models", modelsNote(frame.models)),
    tile(number(frame.cluster.gpu_count), "GPUs"),
    tile(number(total(workers)), "requests at workers"),
    tile(number(perSecond, 1), "requests per second"),
    tile(rates ? number(rates.errors_per_s, 1) : "–", "errors per second"));
}

function showCharts(frame) {
  const rates = frame.throughput || {};
  const value = (number) => number === undefined ? null : number;
  charts.requests.add(frame.timestamp, [value(frame.throughput ? rates.requests_per_s : frame.cluster.total_qps)]);
  charts.tokens.add(frame.timestamp, [value(rates.tokens_per_s)]);
  charts.latency.add(frame.timestamp, [value(rates.latency_p50_ms), value(rates.latency_p95_ms)]);
  charts.first.add(frame.timestamp, [value(rates.ttft_p50_ms), value(rates.ttft_p95_ms)]);
  charts.queue.add(frame.timestamp, [total(frame.workers)]);
  const used = frame.workers.filter((worker) => worker.memory_total_bytes).map((worker) => 100 * worker.memory_used_bytes / worker.memory_total_bytes);
  charts.memory.add(frame.timestamp, [used.length ? Math.max(...used) : null]);
}

function does(model) {
  if (!model.inputs) return "–";
  return `${model.inputs.join(", ")} → ${model.outputs.join(", ") || "text"}`;
}

function showModels(frame) {
  const seen = new Map(frame.models.map((model) => [model.name, model]));
  const listed = new Map(known.models.map((model) => [model.name, model]));
  const order = ["failed", "loading", "loaded", "available"];
  const all = [...new Set([...listed.keys(), ...seen.keys()])].map((name) => {
    const running = seen.get(name) || {};
    const about = listed.get(name) || {};
    return { name, about, running, state: running.state || about.state || "available" };
  });
  all.sort((a, b) => order.indexOf(a.state) - order.indexOf(b.state) || a.name.localeCompare(b.name));
  rows("models", all.map((model) => element("tr", {},
    cell("Model", model.name, "name full"),
    cell("", element("span", {}, state(model.state), model.state === "failed" && model.about.last_error ? element("div", { class: "small bad" }, model.about.last_error) : null)),
    cell("", does(model.about)),
    cell("Workers", model.running.worker_count ? `${model.running.worker_count} (${model.running.gpu_types.join(", ")})` : "–"))), "No model is known yet.", 4);
  const loaded = all.filter((model) => model.state === "loaded").length;
  $("models-count").textContent = `${loaded} of ${all.length} loaded`;
}

function memory(worker) {
  if (!worker.memory_total_bytes) return "–";
  const share = worker.memory_used_bytes / worker.memory_total_bytes;
  const bar = element("span", {});
  bar.style.width = (100 * share).toFixed(1) + "%";
  return element("div", {}, `${bytes(worker.memory_used_bytes)} of ${bytes(worker.memory_total_bytes)} (${number(100 * share)} %)`, element("span", { class: "meter", "aria-hidden": "true" }, bar));
}

function showWorkers(frame) {
  rows("workers", frame.workers.map((worker) => element("tr", {},
    cell("Worker", worker.name, "name full"),
    cell("", state(worker.healthy ? "healthy" : "unhealthy")),
    cell("Machine", worker.gpu_count ? `${worker.gpu} × ${worker.gpu_count}` : worker.gpu),
    cell("Bundle", worker.bundle || "–"),
    cell("Requests", number(requests(worker)), "number"),
    cell("Batches", number(worker.inflight_batches), "number"),
    cell("Memory", memory(worker), "full"))), "No worker has been heard from. Requests are answered with 503 until one is.", 7);
  $("workers-count").textContent = frame.workers.length === 1 ? "1 known" : `${frame.workers.length} known`;
}

function showPools(frame) {
  const pools = frame.pools || known.pools;
  $("pools-card").hidden = !pools || !pools.length;
  if (!pools) return;
  rows("pools", pools.map((pool) => {
    const wanted = Object.entries(pool.spec.gpus || {}).map(([name, count]) => count >= 999 || !count ? name : `${name} × ${count}`);
    // the operator's own pools are queues themselves, and stay
    const ttl = pool.spec.queue_pool === pool.spec.name ? null : pool.spec.ttl_seconds ?? DEFAULT_TTL;
    const ends = ttl === null ? null : pool.status.last_renewed + ttl - Date.now() / 1000;
    return element("tr", {},
      cell("Pool", pool.spec.name, "name full"),
      cell("", state(pool.status.state)),
      cell("Machines", wanted.join(", ") || "any"),
      cell("Workers", number((pool.status.assigned_workers || []).length), "number"),
      cell("Expires", ends === null ? "never" : ends > 90 ? `in ${number(ends / 60)} min` : `in ${number(Math.max(0, ends))} s`));
  }), "No pools.", 5);
}

function show(frame) {
  if (frame.timestamp === undefined) frame.timestamp = Date.now() / 1000;
  known.frame = frame;
  showTiles(frame);
  showCharts(frame);
  showModels(frame);
  showWorkers(frame);
  showPools(frame);
}

/* ---- where it comes from ---- */
function base64url(text) {
  const binary = String.fromCharCode(...new TextEncoder().encode(text));
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** A browser cannot set a header on a WebSocket; the token goes where a subprotocol is offered. */
function connect() {
  const url = new URL("/ws/cluster-status", location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  const protocols = page.token ? ["sie.status", "sie.bearer." + base64url(page.token)] : ["sie.status"];
  const opened = new WebSocket(url, protocols);
  socket = opened;
  opened.onmessage = (message) => {
    failures = 0;
    live("good", "live");
    show(JSON.parse(message.data));
  };
  opened.onclose = () => {
    if (socket !== opened) return;
    failures += 1;
    live("busy", "reconnecting");
    if (failures >= 3) poll();
    else setTimeout(connect, 500 * failures);
  };
}

async function poll() {
  live("busy", "asking every second");
  try {
    show(await (await request("/health")).json());
  } catch (error) {
    live("bad", error.status === 401 ? "token needed" : "no answer: " + error.message);
    if (error.status === 401) return;
  }
  polling = setTimeout(poll, 1000);
}

/** What a frame does not carry: models that nobody has loaded yet, and pools where frames have none. */
async function refresh() {
  if (!page.token && document.documentElement.dataset.auth !== "none") return;
  try {
    known.models = (await (await request("/v1/models")).json()).models;
    if (!known.frame || !known.frame.pools) known.pools = await pools();
    if (known.frame) { showTiles(known.frame); showModels(known.frame); showPools(known.frame); }
  } catch (_) { /* the next one tells the same, and frames go on */ }
}

async function pools() {
  const response = await fetch("/v1/pools", { headers: headers(), cache: "no-store" });
  return response.ok ? (await response.json()).pools : null;
}

/** Ask once with a plain request, which can say that a token is missing; then go live. */
async function begin() {
  clearTimeout(polling);
  failures = 0;
  if (tokenMissing()) { live("busy", "token needed"); askForToken(false); return; }
  try {
    show(await (await request("/health")).json());
  } catch (error) {
    if (error.status === 401) { live("busy", "token needed"); return; }
  }
  refresh();
  connect();
}

document.addEventListener("signed-in", begin);
document.addEventListener("DOMContentLoaded", () => {
  const place = $("charts");
  charts.requests = new Chart(place, "Requests per second", [{ name: "requests" }], (value) => number(value, 1), 1);
  charts.tokens = new Chart(place, "Tokens per second", [{ name: "tokens" }], (value) => number(value), 10);
  charts.latency = new Chart(place, "Latency", [{ name: "median" }, { name: "95 %" }], duration, 10);
  charts.first = new Chart(place, "Time to first token", [{ name: "median" }, { name: "95 %" }], duration, 10);
  charts.queue = new Chart(place, "Requests at workers", [{ name: "requests" }], (value) => number(value), 5);
  charts.memory = new Chart(place, "Memory, fullest worker", [{ name: "memory" }], (value) => number(value, 1) + " %", 100);
  setInterval(refresh, REFRESH);
  begin();
});
