// Numbers for people.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const STEPS = { "": 1, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };

export function bytes(count) {
  let index = 0;
  let scaled = count;
  while (scaled >= 1024 && index < UNITS.length - 1) {
    scaled /= 1024;
    index += 1;
  }
  return `${scaled.toFixed(index > 0 && scaled < 100 ? 1 : 0)} ${UNITS[index]}`;
}

// Exactly, in the largest unit that leaves no rest.
export function wholeBytes(number) {
  const [unit, step] = Object.entries(STEPS).findLast(([, size]) => number % size === 0);
  return `${number / step}${unit}`;
}

export function count(number) {
  if (number >= 1e6) return `${(number / 1e6).toFixed(2)} M`;
  if (number >= 1e4) return `${(number / 1e3).toFixed(1)} k`;
  return number >= 100 || Number.isInteger(number) ? number.toFixed(0) : number.toFixed(1);
}

export function seconds(time) {
  if (time < 1e-3) return `${(time * 1e6).toFixed(0)} µs`;
  if (time < 1) return `${(time * 1e3).toFixed(1)} ms`;
  if (time < 120) return `${time.toFixed(1)} s`;
  return time < 7200 ? `${(time / 60).toFixed(0)} min` : `${(time / 3600).toFixed(1)} h`;
}

export const percent = (share) => `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
export const perSecond = (text) => `${text}/s`;

export function limits({ iops, bandwidth_bytes: bandwidth }) {
  const parts = [];
  if (iops !== null) parts.push(perSecond(count(iops)));
  if (bandwidth !== null) parts.push(perSecond(bytes(bandwidth)));
  return parts.join(", ") || "none";
}

// Bytes of a text such as `500MiB` or `2 GiB/s`; null for an empty one, NaN for what is none.
export function parseBytes(text) {
  if (text.trim() === "") return null;
  const match = /^\s*([0-9]+)\s*([KMGT]iB|B|)(\/s)?\s*$/.exec(text);
  return match ? Number(match[1]) * STEPS[match[2]] : NaN;
}
