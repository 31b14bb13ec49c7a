"use strict";
// A line chart of the last two minutes, or of what there is of them, drawn as SVG. One or two series; the value of now
// stands beside it as text.

const SPAN = 120;   // seconds
const SHORTEST = 20;
const WIDTH = 300;
const HEIGHT = 96;
const SVG = "http://www.w3.org/2000/svg";

function shape(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** The smallest of 1, 2, 5 times a power of ten that is not below value. */
function ceiling(value) {
  if (value <= 0) return 1;
  const power = Math.pow(10, Math.floor(Math.log10(value)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

class Chart {
  /** series: up to two of {name, key}; text: how a value is written; least: the scale never ends below this. */
  constructor(parent, title, series, text, least) {
    this.title = title;
    this.series = series;
    this.text = text;
    this.least = least;
    this.points = [];
    this.begun = null;
    this.value = element("b", {}, "–");
    this.svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    this.top = element("span", {});
    this.since = element("span", {});
    const legend = element("p", { class: "legend" });
    if (series.length > 1) {
      series.forEach((one, i) => legend.append(element("span", {}, element("i", { class: i ? "second" : "" }), one.name)));
    }
    parent.append(element("article", { class: "card chart" },
      element("div", { class: "head" }, element("h2", { class: "soft small" }, title), series.length > 1 ? legend : null),
      this.value,
      this.svg,
      element("div", { class: "scale" }, this.since, this.top, element("span", {}, "now"))));
  }

  /** values: one per series, null where nothing was measured; at: seconds. */
  add(at, values) {
    if (this.begun === null) this.begun = at;
    this.points.push({ at, values });
    while (this.points.length && this.points[0].at < at - SPAN) this.points.shift();
    this.draw(at);
  }

  draw(now) {
    const all = this.points.flatMap((point) => point.values).filter((value) => value !== null);
    const top = ceiling(Math.max(this.least, ...all));
    const span = Math.min(SPAN, Math.max(SHORTEST, now - this.begun));
    const x = (at) => (WIDTH * (1 - (now - at) / span)).toFixed(1);
    const y = (value) => (HEIGHT - 2 - (HEIGHT - 6) * value / top).toFixed(1);
    const parts = [0.5, 1].map((share) => shape("line", { class: "grid", x1: 0, x2: WIDTH, y1: y(top * share), y2: y(top * share) }));
    parts.push(shape("line", { class: "grid", x1: 0, x2: WIDTH, y1: y(0), y2: y(0) }));
    this.series.forEach((_, index) => {
      for (const run of this.runs(index)) {
        const line = run.map((point) => `${x(point.at)},${y(point.values[index])}`).join(" L");
        if (!index) parts.push(shape("path", { class: "area", d: `M${x(run[0].at)},${y(0)} L${line} L${x(run[run.length - 1].at)},${y(0)} Z` }));
        parts.push(shape("path", { class: index ? "line second" : "line", d: "M" + line }));
      }
    });
    this.svg.replaceChildren(...parts);
    const last = this.points.length ? this.points[this.points.length - 1].values : [];
    const said = this.series.map((_, index) => last[index] === null || last[index] === undefined ? "–" : this.text(last[index]));
    this.value.textContent = said.join(" / ");
    this.since.textContent = span < SPAN ? `${Math.round(span)} s ago` : "2 min ago";
    this.top.textContent = "scale to " + this.text(top);
    this.svg.setAttribute("aria-label", this.title + ": now " + said.join(" and ") + ", at most " + (all.length ? this.text(Math.max(...all)) : "–") + " in that time");
  }

  /** Stretches of a series without a hole. */
  runs(index) {
    const runs = [];
    let before = null;
    for (const point of this.points) {
      if (point.values[index] === null || point.values[index] === undefined) { before = null; continue; }
      if (before === null || point.at - before > 5) runs.push([]);
      runs[runs.length - 1].push(point);
      before = point.at;
    }
    return runs;
  }
}
