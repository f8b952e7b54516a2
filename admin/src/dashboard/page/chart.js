// Lines over time, as SVG, with a scale at the left and times below. Under the pointer, or with the
// arrow keys, the legend has the values of that time.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 600;
const HEIGHT = 100;

// 1, 2 or 5 times a power of ten, not below `value`; of bytes, within a power of 1024.
function roundUp(value, isBytes) {
  let unit = 1;
  while (isBytes && value / unit >= 1024) unit *= 1024;
  const power = 10 ** Math.floor(Math.log10(value / unit));
  return unit * power * [1, 2, 5, 10].find((step) => step * power >= (value / unit) * (1 - 1e-9));
}

const clock = (time) => new Date(time).toLocaleTimeString([], { hour12: false });

function add(parent, name, className) {
  const element = parent.namespaceURI === SVG || name === "svg"
    ? document.createElementNS(SVG, name) : document.createElement(name);
  if (className) element.setAttribute("class", className);
  parent.append(element);
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}

export class Chart {
  // `format` writes values; the scale goes to `least` at least, and to `ceiling` where that is given.
  constructor(place, format, { isBytes = false, least = 1, ceiling } = {}) {
    Object.assign(this, { format, isBytes, least, ceiling, series: new Map(), points: [], at: null });
    place.classList.add("chart");
    const scale = add(place, "div", "scale");
    this.marks = [1, 0.5, 0].map((share) => [share, add(scale, "span")]);
    this.svg = add(place, "svg");
    set(this.svg, { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", tabindex: 0 });
    for (const y of [0.5, HEIGHT / 2, HEIGHT - 0.5]) {
      set(add(this.svg, "line", "grid"), { x1: 0, x2: WIDTH, y1: y, y2: y });
    }
    this.cursor = add(this.svg, "line", "cursor");
    set(this.cursor, { y1: 0, y2: HEIGHT });
    const times = add(place, "div", "times");
    this.times = [0, 0.5, 1].map((share) => [share, add(times, "span")]);
    const legend = add(place, "div", "legend");
    this.moment = add(legend, "span", "moment");
    this.legend = add(legend, "ul");
    this.said = add(place, "p", "said");
    this.said.setAttribute("aria-live", "polite");
    this.wire();
  }

  // Shows `points`, a list of { time, values }, from a time on to another. `values` are by the names
  // of the lines; null for none. Times are in milliseconds since 1970.
  show(points, from, to) {
    Object.assign(this, { points: points.filter(({ time }) => time >= from), from, to });
    if (this.at !== null && this.at < from) this.at = null;
    for (const { values } of this.points) {
      for (const name of Object.keys(values)) if (!this.series.has(name)) this.begin(name);
    }
    this.draw();
  }

  begin(name) {
    const colour = `s${this.series.size % 4}`;
    this.series.set(name, { shape: add(this.svg, "path", colour), label: add(this.legend, "li", colour) });
  }

  x(time) {
    return WIDTH * (time - this.from) / Math.max(1, this.to - this.from);
  }

  draw() {
    const all = this.points.flatMap(({ values }) => Object.values(values)).filter((value) => value !== null);
    this.top = this.ceiling ?? roundUp(Math.max(this.least, ...all), this.isBytes);
    for (const [share, mark] of this.marks) mark.textContent = this.format(this.top * share);
    for (const [share, mark] of this.times) mark.textContent = clock(this.from + share * (this.to - this.from));
    for (const [name, { shape }] of this.series) shape.setAttribute("d", this.path(name));
    this.tell();
  }

  // A line that breaks where there is no value, or none for a while.
  path(name) {
    const gap = 3 * Math.max(5000, (this.to - this.from) / WIDTH);
    let before = null;
    let path = "";
    for (const { time, values } of this.points) {
      const value = values[name] ?? null;
      if (value === null) {
        before = null;
        continue;
      }
      const place = `${this.x(time).toFixed(1)},${(HEIGHT * (1 - value / this.top)).toFixed(1)}`;
      // A value alone is a short line.
      path += before === null || time - before > gap ? `M${place}h1` : `L${place}`;
      before = time;
    }
    return path;
  }

  // The values of the time that is pointed at, or else the latest.
  tell() {
    const point = this.at === null ? this.points.at(-1)
      : this.points.findLast(({ time }) => time <= this.at) ?? this.points[0];
    const words = [...this.series].map(([name, { label }]) => {
      const value = point?.values[name] ?? null;
      label.textContent = `${name} ${value === null ? "–" : this.format(value)}`;
      return label.textContent;
    });
    this.moment.textContent = point === undefined ? "no figures yet" : this.at === null ? "now" : clock(point.time);
    const x = point ? this.x(point.time) : 0;
    const visibility = this.at === null ? "hidden" : "visible";
    set(this.cursor, { x1: x, x2: x, visibility });
    this.svg.setAttribute("aria-label", [this.moment.textContent, ...words].join(", "));
    return point;
  }

  point(time) {
    this.at = time;
    return this.tell();
  }

  wire() {
    this.svg.addEventListener("pointermove", (event) => {
      const { left, width } = this.svg.getBoundingClientRect();
      const time = this.from + (this.to - this.from) * (event.clientX - left) / Math.max(1, width);
      // The nearest one: half an interval counts for the next.
      const near = this.points.reduce((best, one) =>
        Math.abs(one.time - time) < Math.abs(best.time - time) ? one : best, this.points[0] ?? { time });
      this.point(near.time);
    });
    for (const end of ["pointerleave", "blur"]) this.svg.addEventListener(end, () => this.point(null));
    this.svg.addEventListener("keydown", (event) => {
      const latest = this.points.length - 1;
      const now = this.at === null ? latest : this.points.findLastIndex(({ time }) => time <= this.at);
      const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: latest }[event.key];
      if (event.key === "Escape") this.point(null);
      else if (next === undefined || latest < 0) return;
      else this.point(this.points[Math.min(latest, Math.max(0, next))].time);
      event.preventDefault();
      this.said.textContent = this.svg.getAttribute("aria-label");
    });
  }
}
