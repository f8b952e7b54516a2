// Lines over the last minutes, as SVG.

const SVG = "http://www.w3.org/2000/svg";
const POINTS = 150;
const HEIGHT = 100;

export class Chart {
  // `format` writes values; `ceiling` is the top of the scale where it is fixed.
  constructor(place, format, ceiling) {
    this.format = format;
    this.ceiling = ceiling;
    this.series = new Map();
    place.classList.add("chart");
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("viewBox", `0 0 ${POINTS - 1} ${HEIGHT}`);
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("role", "img");
    for (const y of [0.5, HEIGHT / 2, HEIGHT - 0.5]) {
      const line = document.createElementNS(SVG, "line");
      for (const [name, value] of Object.entries({ x1: 0, x2: POINTS, y1: y, y2: y, class: "grid" })) {
        line.setAttribute(name, value);
      }
      this.svg.append(line);
    }
    this.legend = document.createElement("ul");
    this.legend.className = "legend";
    place.append(this.svg, this.legend);
  }

  // Adds the values of the moment, by the names of their lines; null for none.
  push(values) {
    for (const [name, value] of Object.entries(values)) {
      const line = this.series.get(name) ?? this.begin(name);
      line.values.push(value);
      if (line.values.length > POINTS) line.values.shift();
    }
    this.draw();
  }

  begin(name) {
    const index = this.series.size % 4;
    const shape = document.createElementNS(SVG, "polyline");
    shape.setAttribute("class", `s${index}`);
    const label = document.createElement("li");
    label.className = `s${index}`;
    this.svg.append(shape);
    this.legend.append(label);
    const line = { shape, label, values: [] };
    this.series.set(name, line);
    return line;
  }

  draw() {
    const lines = [...this.series.values()];
    const top = this.ceiling ?? Math.max(1e-9, ...lines.flatMap((line) => line.values.filter((v) => v !== null)));
    const words = [];
    for (const [name, { shape, label, values }] of this.series) {
      const points = values
        .map((value, index) => value === null ? null
          : `${POINTS - values.length + index},${(HEIGHT * (1 - 0.97 * value / top)).toFixed(2)}`)
        .filter((point) => point !== null);
      shape.setAttribute("points", points.join(" "));
      const last = values.at(-1);
      const text = `${name} ${last === null ? "–" : this.format(last)}`;
      label.textContent = text;
      words.push(text);
    }
    this.svg.setAttribute("aria-label", words.join(", "));
  }
}
