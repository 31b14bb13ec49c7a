"use strict";
// Chat, embeddings and rerank against this gateway, as any client would ask it.

const MOST_TEXTS = 24;
const conversation = [];
let stopping = null;

function lines(id) {
  return $(id).value.split("\n").map((line) => line.trim()).filter(Boolean);
}

function fault(id, error) {
  const note = $(id + "-note");
  note.className = "bad small grow";
  note.textContent = error.message;
}

function note(id, text) {
  const place = $(id + "-note");
  place.className = "soft small grow";
  place.textContent = text;
}

/* ---- tabs ---- */
function choose(tab) {
  for (const other of document.querySelectorAll("[role=tab]")) {
    const chosen = other === tab;
    other.setAttribute("aria-selected", chosen);
    other.tabIndex = chosen ? 0 : -1;
    $(other.getAttribute("aria-controls")).hidden = !chosen;
  }
  history.replaceState(null, "", "#" + tab.getAttribute("aria-controls"));
}

function tabs() {
  const all = [...document.querySelectorAll("[role=tab]")];
  all.forEach((tab, index) => {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = all[(index + step + all.length) % all.length];
      choose(next);
      next.focus();
    });
  });
  const wanted = all.find((tab) => "#" + tab.getAttribute("aria-controls") === location.hash);
  if (wanted) choose(wanted);
}

/* ---- models ---- */
const NEEDS = {
  chat: (model) => model.outputs.includes("tokens"),
  embed: (model) => model.outputs.includes("dense"),
  rerank: (model) => ["score", "dense", "multivector"].some((output) => model.outputs.includes(output)),
};

async function models() {
  if (tokenMissing()) { askForToken(false); return; }
  let all;
  try {
    all = (await (await request("/v1/models")).json()).models;
  } catch (error) {
    if (error.status !== 401) ["chat", "embed", "rerank"].forEach((id) => fault(id, error));
    return;
  }
  for (const [id, fits] of Object.entries(NEEDS)) {
    const fitting = all.filter(fits).sort((a, b) => (b.state === "loaded") - (a.state === "loaded") || b.outputs.includes("score") - a.outputs.includes("score"));
    $(id + "-model").replaceChildren(...fitting.map((model) => element("option", { value: model.name }, `${model.name} (${model.state})`)));
    const none = !fitting.length;
    $(id).querySelector("button[type=submit]").disabled = none;
    note(id, none ? "No model of the catalog does this." : "");
  }
}

/* ---- chat ---- */
function turn(role, text) {
  const made = element("div", { class: "turn " + role }, element("span", {}, role === "user" ? "You" : "Model"), text);
  $("talk").append(made);
  $("talk").scrollTop = $("talk").scrollHeight;
  return made;
}

async function chat() {
  const text = $("chat-text").value.trim();
  if (!text) return;
  conversation.push({ role: "user", content: text });
  turn("user", text);
  $("chat-text").value = "";
  $("chat-send").disabled = true;
  $("chat-stop").disabled = false;
  note("chat", "waiting for the first token");
  stopping = new AbortController();
  const answer = { text: "", tokens: 0, first: null, place: null };
  const began = performance.now();
  try {
    const response = await post("/v1/chat/completions", {
      model: $("chat-model").value, messages: conversation, stream: true, stream_options: { include_usage: true },
      max_completion_tokens: Number($("chat-tokens").value), temperature: Number($("chat-temperature").value),
    }, { signal: stopping.signal });
    answer.place = turn("assistant live", "");
    await follow(response, answer, began);
  } catch (error) {
    if (error.name !== "AbortError") fault("chat", error);
    else note("chat", "stopped");
  }
  if (answer.place) answer.place.classList.remove("live");
  if (answer.text) conversation.push({ role: "assistant", content: answer.text });
  else { conversation.pop(); $("chat-text").value = $("chat-text").value || text; }
  $("chat-send").disabled = false;
  $("chat-stop").disabled = true;
}

async function follow(response, answer, began) {
  for await (const data of events(response)) {
    if (data === "[DONE]") break;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    if (chunk.usage) answer.tokens = chunk.usage.completion_tokens;
    const delta = chunk.choices && chunk.choices[0] && chunk.choices[0].delta.content;
    if (!delta) continue;
    answer.first = answer.first || performance.now();
    answer.text += delta;
    answer.place.append(delta);
    $("talk").scrollTop = $("talk").scrollHeight;
  }
  const seconds = (performance.now() - (answer.first || began)) / 1000;
  const speed = answer.tokens > 1 && seconds > 0 ? `, ${number((answer.tokens - 1) / seconds, 1)} tokens per second` : "";
  note("chat", answer.first ? `first token after ${duration(answer.first - began)}, ${answer.tokens} tokens${speed}` : "the model said nothing");
}

/* ---- embeddings ---- */
function cosine(a, b) {
  let dot = 0, left = 0, right = 0;
  for (let i = 0; i < a.length; i += 1) { dot += a[i] * b[i]; left += a[i] * a[i]; right += b[i] * b[i]; }
  return dot / (Math.sqrt(left * right) || 1);
}

function paint(cell, value) {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark"
    || (getComputedStyle(document.documentElement).colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  const share = Math.max(0, Math.min(1, value));
  cell.style.background = dark ? `hsl(172 ${20 + 50 * share}% ${13 + 37 * share}%)` : `hsl(175 ${25 + 50 * share}% ${96 - 68 * share}%)`;
  cell.style.color = dark ? (share > 0.72 ? "#04110f" : "#f2f6f6") : (share > 0.55 ? "#fff" : "#16202b");
}

function heat(texts, vectors) {
  const head = element("tr", {}, element("td", {}), ...texts.map((text, i) => element("th", { scope: "col", title: text }, String(i + 1))));
  const body = texts.map((text, i) => element("tr", {}, element("th", { scope: "row", title: text }, `${i + 1}  ${text}`),
    ...texts.map((_, j) => {
      const value = cosine(vectors[i], vectors[j]);
      const cell = element("td", { "data-value": value.toFixed(4), title: `${text} / ${texts[j]}` }, Math.abs(value) < 0.005 ? "0.00" : value.toFixed(2));
      paint(cell, value);
      return cell;
    })));
  $("heat").hidden = false;
  $("heat").replaceChildren(element("table", { class: "heat" }, element("thead", {}, head), element("tbody", {}, ...body)));
}

async function embed() {
  const texts = lines("embed-text").slice(0, MOST_TEXTS);
  if (!texts.length) return;
  const began = performance.now();
  note("embed", "working");
  try {
    const reply = await (await post("/v1/embeddings", { model: $("embed-model").value, input: texts })).json();
    heat(texts, reply.data.map((entry) => entry.embedding));
    note("embed", `${texts.length} texts, ${reply.data[0].embedding.length} dimensions, ${reply.usage.total_tokens} tokens, ${duration(performance.now() - began)}`);
  } catch (error) {
    fault("embed", error);
  }
}

/* ---- rerank ---- */
async function rerank() {
  const documents = lines("rerank-text");
  const query = $("rerank-query").value.trim();
  if (!documents.length || !query) return;
  const began = performance.now();
  note("rerank", "working");
  try {
    const reply = await (await post("/v2/rerank", { model: $("rerank-model").value, query, documents })).json();
    $("ranked").replaceChildren(...reply.results.map((entry, place) => {
      const bar = element("span", {});
      bar.style.width = (100 * Math.max(0, Math.min(1, entry.relevance_score))).toFixed(1) + "%";
      return element("li", {}, element("b", {}, String(place + 1)),
        element("div", {}, documents[entry.index], element("span", { class: "meter", "aria-hidden": "true" }, bar)),
        element("span", { class: "score" }, entry.relevance_score.toFixed(3)));
    }));
    note("rerank", `${documents.length} documents, ${duration(performance.now() - began)}`);
  } catch (error) {
    fault("rerank", error);
  }
}

/* ---- start ---- */
document.addEventListener("signed-in", models);
document.addEventListener("themed", () => document.querySelectorAll(".heat td[data-value]").forEach((cell) => paint(cell, Number(cell.dataset.value))));
document.addEventListener("DOMContentLoaded", () => {
  tabs();
  models();
  for (const [id, run] of Object.entries({ chat, embed, rerank })) {
    $(id).addEventListener("submit", (event) => { event.preventDefault(); run(); });
  }
  $("chat-stop").addEventListener("click", () => stopping && stopping.abort());
  $("chat-clear").addEventListener("click", () => { conversation.length = 0; $("talk").replaceChildren(); note("chat", ""); $("chat-text").focus(); });
  $("chat-text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); $("chat").requestSubmit(); }
  });
});
