/* Elements and texts that all drawings share. Everything is inserted as text or as an attribute, never as HTML.

   gossamer.node(name, {class, text, title, ...attributes}, ...children)    an HTML element; null and false are left out
   gossamer.shape(name, {class, text, style: {...}, ...attributes}, ...children)    an SVG element
   gossamer.setText(node, text)    writes only what has changed
   gossamer.setStyle(node, property, value)    the same for a CSS property
   gossamer.bytes(n), .number(x), .percent(x), .seconds(s), .count(n)    numbers as text; a dash where there is none
   gossamer.group(text)    a number's text with a minus and with digits in groups, as .count writes them
   gossamer.agentColour(agent), .onAgentColour(agent)    CSS colours of an agent's mark and of text on it
   gossamer.later(draw)    a function that has `draw` called once, in the next frame, however often it is called
   gossamer.whenResized(element, draw)    calls `draw` whenever the element's width changes */
"use strict";

window.gossamer = (function () {
  const SVG = "http://www.w3.org/2000/svg";
  const DASH = "\u2013";

  function fill(made, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "text") made.textContent = value;
      else if (name === "style") for (const [property, one] of Object.entries(value)) made.style.setProperty(property, one);
      else made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }

  const node = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
  const shape = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

  function setText(target, text) {
    const value = String(text);
    if (target.textContent !== value) target.textContent = value;
  }

  function setStyle(target, property, value) {
    if (target.style.getPropertyValue(property) !== value) target.style.setProperty(property, value);
  }

  const known = (value) => typeof value === "number" && Number.isFinite(value);

  function scaled(value, base, units) {
    let place = 0;
    while (Math.abs(value) >= base && place < units.length - 1) {
      value /= base;
      place += 1;
    }
    const digits = place === 0 || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
    return `${value.toFixed(digits)} ${units[place]}`;
  }

  const bytes = (value) => (known(value) ? scaled(value, 1000, ["B", "kB", "MB", "GB", "TB", "PB"]) : DASH);
  const percent = (value) => (known(value) ? `${(100 * value).toFixed(1)} %` : DASH);
  const count = (value) => (known(value) ? Math.round(value).toLocaleString("en").replaceAll(",", "\u202f") : DASH);

  const minus = (text) => text.replaceAll("-", "\u2212");
  const group = (text) => minus(text.replace(/^-?\d{4,}/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, "\u202f")));

  function number(value) {
    if (!known(value)) return DASH;
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e6 || size < 1e-3) return minus(value.toExponential(2).replace("e+", "e"));
    return minus(value.toFixed(size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 0.1 ? 3 : 4));
  }

  function seconds(value) {
    if (!known(value)) return DASH;
    if (value < 0.0995) return `${(1000 * value).toFixed(0)} ms`;
    if (value < 59.95) return `${value.toFixed(1)} s`;
    const whole = Math.round(value);
    if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
    if (whole < 172800) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
    return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
  }

  let colours = 0;
  function place(agent) {
    if (!colours) colours = Number(getComputedStyle(document.documentElement).getPropertyValue("--agent-colours")) || 1;
    return ((agent % colours) + colours) % colours;
  }

  function later(draw) {
    let asked = false;
    return function () {
      if (asked) return;
      asked = true;
      requestAnimationFrame(() => {
        asked = false;
        draw();
      });
    };
  }

  function whenResized(element, draw) {
    let width = -1;
    const soon = later(draw);
    new ResizeObserver((entries) => {
      const now = Math.round(entries[0].contentRect.width);
      if (now !== width) {
        width = now;
        soon();
      }
    }).observe(element);
  }

  return {
    node, shape, setText, setStyle, known, bytes, percent, count, group, number, seconds, later, whenResized,
    agentColour: (agent) => `var(--agent-${place(agent)})`,
    onAgentColour: (agent) => `var(--on-agent-${place(agent)})`,
  };
})();
