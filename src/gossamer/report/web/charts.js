/* gossamer.chart(element, spec): curves over steps (or any x), drawn into `element`.

   spec = {
     title: "Loss", label: "cross entropy of training vertices",    // the label stands beside the title
     series: [{name, colour, points: [[x, y], ...], dash: "6 4", steps: true, marks: true, value: 0.8}],
     scale: "linear" or "log",     // of y; on a log scale values of 0 and below are gaps; linear if there is nothing else
     toggle: true,                 // a button that changes the scale
     format: gossamer.number,      // of values of y in the read-out
     xName: "step", xUnit: "", xRange: [0, 500],    // the range widens to the points
     xFormat: gossamer.count,
     yRange: [0, 1],               // the least range; it widens to the points
     height: 220,                  // in pixels; the width is that of `element`
     empty: "no evaluation yet",   // shown while there is no point
   }
   `colour` is any CSS colour, such as "var(--distributed)" (also --centralised, --graphless). A series that is `steps`
   keeps its value until the next point; one of `marks` is points without a line. x ascends; where y is null there is a gap. The legend
   shows `value`, or the last y.

   Returns {update(spec)}: draws again in the next frame. `update` takes the fields that have changed; arrays of points
   may grow in place. A curve of any length is drawn with at most four points for each pixel column: its first, last,
   lowest and highest. Read-out: mouse, touch, or arrow keys, Home, End, Page Up, Page Down on the focused plot. */
"use strict";

gossamer.chart = function (element, spec) {
  const {node, shape, setText} = gossamer;
  const now = {
    title: "", label: "", series: [], scale: "linear", toggle: false, format: gossamer.number, xName: "step",
    xUnit: "", xRange: null, xFormat: gossamer.count, yRange: null, height: 220, empty: "no evaluation yet", ...spec,
  };
  const MARGIN = {left: 52, right: 14, top: 10, bottom: 26};
  const hidden = new Set();
  let chosen = null; // x of the read-out
  let frame = null; // scales of the last drawing

  const toggle = node("button", {type: "button", class: "scale"});
  const label = node("span", {class: "label"});
  const title = node("h3", {});
  const legend = node("div", {class: "legend"});
  const svg = shape("svg", {class: "curves", tabindex: 0, role: "slider", "aria-orientation": "horizontal"});
  const grid = shape("g", {class: "grid", "aria-hidden": "true"});
  const lines = shape("g", {class: "lines"});
  const cursor = shape("g", {class: "cursor", visibility: "hidden"});
  const readout = node("div", {class: "readout", hidden: true});
  const nothing = node("p", {class: "nothing"});
  svg.append(grid, lines, cursor);
  element.classList.add("chart");
  element.replaceChildren(
    node("div", {class: "head"}, title, label, toggle), legend, node("div", {class: "plot"}, svg, readout, nothing)
  );

  let scale = now.scale; // of the last drawing
  const usable = (y) => gossamer.known(y) && (scale !== "log" || y > 0);
  const shown = () => now.series.filter((one) => !hidden.has(one.name));
  const some = (test) => shown().some((one) => one.points.some(([, y]) => gossamer.known(y) && test(y)));

  function extent() {
    let [left, right] = now.xRange || [Infinity, -Infinity];
    let [low, high] = now.yRange && scale !== "log" ? now.yRange : [Infinity, -Infinity];
    let count = 0;
    for (const one of shown()) {
      for (const [x, y] of one.points) {
        if (!usable(y)) continue;
        count += 1;
        if (x < left) left = x;
        if (x > right) right = x;
        if (y < low) low = y;
        if (y > high) high = y;
      }
    }
    return count ? {left, right: right > left ? right : left + 1, low, high} : null;
  }

  function niceStep(span, count) {
    const rough = span / Math.max(count, 1);
    const power = 10 ** Math.floor(Math.log10(rough));
    const share = rough / power;
    return (share <= 1 ? 1 : share <= 2 ? 2 : share <= 2.5 ? 2.5 : share <= 5 ? 5 : 10) * power;
  }

  function linearTicks(low, high, count) {
    const step = niceStep(high - low, count);
    const exponent = Math.floor(Math.log10(step) + 1e-9);
    const digits = Math.max(0, -exponent + (Math.abs(step / 10 ** exponent - 2.5) < 1e-9 ? 1 : 0));
    const ticks = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1) ticks.push(k * step);
    const text = (value) => (Math.abs(value) >= 1e5 ? value.toExponential(0).replace("e+", "e") : value.toFixed(digits));
    return ticks.map((value) => [value, gossamer.group(text(value))]);
  }

  function logTicks(low, high, count) {
    const first = Math.ceil(Math.log10(low) - 1e-9);
    const last = Math.floor(Math.log10(high) + 1e-9);
    const text = (value) =>
      gossamer.group(value >= 1e-3 && value < 1e5 ? String(Number(value.toPrecision(3))) : value.toExponential(0).replace("e+", "e"));
    const factors = last - first + 1 >= 3 ? [1] : last - first + 1 === 2 ? [1, 3] : [1, 2, 5];
    const every = Math.max(1, Math.ceil((last - first + 1) / count));
    const ticks = [];
    for (let power = first - 1; power <= last; power += 1) {
      if (factors.length === 1 && (power - first) % every) continue;
      for (const factor of factors) {
        const value = factor * 10 ** power;
        if (value >= low * 0.999 && value <= high * 1.001) ticks.push([value, text(value)]);
      }
    }
    return ticks.length > 1 ? ticks : linearTicks(low, high, count).filter(([value]) => value > 0);
  }

  function scales(width, height, range) {
    const log = scale === "log";
    let {left, right, low, high} = range;
    if (log) {
      const margin = low === high ? 2 : (high / low) ** 0.06;
      [low, high] = [low / margin, high * margin];
    } else {
      if (low === 0 && high === 0) high = 1;
      const margin = 0.06 * (high - low) || Math.abs(high) * 0.1;
      const [least, most] = now.yRange || [NaN, NaN];
      [low, high] = [low === least ? low : low - margin, high === most ? high : high + margin];
    }
    const wide = width - MARGIN.left - MARGIN.right;
    const tall = height - MARGIN.top - MARGIN.bottom;
    const up = log ? Math.log : (value) => value;
    const [below, above] = [up(low), up(high)];
    return {
      left, right, low, high, wide, tall,
      x: (value) => MARGIN.left + (wide * (value - left)) / (right - left),
      y: (value) => MARGIN.top + tall * (1 - (up(value) - below) / (above - below)),
      xOf: (pixel) => left + ((right - left) * (pixel - MARGIN.left)) / wide,
    };
  }

  /* The d of a path, and the number of its points. */
  function trace(one) {
    const pieces = [];
    let kept = 0;
    let column = NaN;
    let bucket = []; // first, lowest, highest, last of a pixel column, as [index, x, y]
    let pen = false;
    let lastY = 0;
    if (one.marks) {
      const at = one.points.filter(([, y]) => usable(y)).map(([x, y]) => `M${frame.x(x).toFixed(1)} ${frame.y(y).toFixed(1)}h.01`);
      return [at.join(""), at.length, 0];
    }
    const emit = () => {
      const seen = new Set();
      for (const [index, x, y] of [...bucket].sort((a, b) => a[0] - b[0])) {
        if (seen.has(index)) continue;
        seen.add(index);
        if (pen && one.steps) pieces.push(`H${x.toFixed(1)}V${y.toFixed(1)}`);
        else pieces.push(`${pen ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}${pen ? "" : "h.01"}`);
        pen = true;
        lastY = y;
        kept += 1;
      }
      bucket = [];
    };
    one.points.forEach(([value, height], index) => {
      if (!usable(height)) {
        emit();
        pen = false;
        return;
      }
      const point = [index, frame.x(value), frame.y(height)];
      const at = Math.floor(point[1]);
      if (at !== column) {
        emit();
        column = at;
      }
      if (!bucket.length) bucket = [point, point, point, point];
      if (point[2] < bucket[1][2]) bucket[1] = point;
      if (point[2] > bucket[2][2]) bucket[2] = point;
      bucket[3] = point;
    });
    emit();
    if (one.steps && pen) pieces.push(`H${frame.x(frame.right).toFixed(1)}`);
    return [pieces.join(""), kept, lastY];
  }

  function drawGrid(width, height) {
    grid.replaceChildren();
    const across = linearTicks(frame.left, frame.right, Math.max(2, Math.floor(frame.wide / 70)));
    const down = Math.max(2, Math.floor(frame.tall / 36));
    const upward = scale === "log" ? logTicks(frame.low, frame.high, down) : linearTicks(frame.low, frame.high, down);
    if (now.format === gossamer.percent) {
      const digits = upward.length > 1 && upward[1][0] - upward[0][0] < 0.0099 ? 1 : 0;
      for (const tick of upward) tick[1] = `${(100 * tick[0]).toFixed(digits)} %`;
    }
    for (const [value, text] of upward) {
      const y = frame.y(value);
      grid.append(
        shape("line", {x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y}),
        shape("text", {x: MARGIN.left - 8, y: y + 4, "text-anchor": "end", text})
      );
    }
    if (across.length) across[0][1] = `${now.xName} ${across[0][1]}`;
    for (const [value, bare] of across) {
      const text = bare + now.xUnit;
      grid.append(shape("text", {x: frame.x(value), y: height - 6, "text-anchor": "middle", text}));
    }
  }

  function drawLegend() {
    const names = now.series.map((one) => one.name);
    const old = [...legend.children].map((child) => child.dataset.name);
    if (names.join("\n") !== old.join("\n")) {
      legend.replaceChildren(
        ...now.series.map((one) => {
          const line = shape("line", {x1: 1, x2: 17, y1: 5, y2: 5, "stroke-dasharray": one.dash, style: {stroke: one.colour}});
          const key = shape("svg", {width: 18, height: 10, "aria-hidden": "true"}, line);
          const button = node("button", {type: "button", "data-name": one.name, title: "show or hide this curve"}, key);
          button.append(node("span", {text: one.name}), node("b", {}));
          button.addEventListener("click", () => {
            if (!hidden.delete(one.name)) hidden.add(one.name);
            draw();
          });
          return button;
        })
      );
    }
    now.series.forEach((one, place) => {
      const button = legend.children[place];
      button.setAttribute("aria-pressed", String(!hidden.has(one.name)));
      let last = one.points.length - 1;
      while (last >= 0 && !gossamer.known(one.points[last][1])) last -= 1;
      const value = gossamer.known(one.value) ? one.value : last < 0 ? null : one.points[last][1];
      setText(button.lastChild, value === null ? "" : now.format(value));
    });
  }

  function draw() {
    const width = Math.max(200, Math.round(svg.parentNode.clientWidth));
    setText(title, now.title);
    setText(label, now.label);
    scale = now.scale === "log" && some(() => true) && !some((y) => y > 0) ? "linear" : now.scale;
    toggle.hidden = !now.toggle || scale !== now.scale;
    setText(toggle, now.scale === "log" ? "log scale" : "linear scale");
    toggle.setAttribute("aria-label", `scale of ${now.title}: ${now.scale}; change it`);
    svg.setAttribute("aria-label", `${now.title} ${now.label}`.trim());
    svg.setAttribute("viewBox", `0 0 ${width} ${now.height}`);
    svg.setAttribute("height", now.height);
    setText(nothing, now.empty);
    drawLegend();
    const range = extent();
    nothing.hidden = range !== null;
    svg.classList.toggle("bare", range === null);
    frame = range && scales(width, now.height, range);
    if (!frame) {
      grid.replaceChildren();
      lines.replaceChildren();
      svg.setAttribute("aria-valuetext", now.empty);
      read(null);
      return;
    }
    drawGrid(width, now.height);
    while (lines.children.length > now.series.length) lines.lastChild.remove();
    while (lines.children.length < now.series.length) lines.append(shape("path", {}));
    now.series.forEach((one, place) => {
      const path = lines.children[place];
      const [d, kept] = hidden.has(one.name) ? ["", 0] : trace(one);
      if (path.getAttribute("d") !== d) path.setAttribute("d", d);
      path.dataset.points = kept;
      path.dataset.name = one.name;
      path.classList.toggle("marks", Boolean(one.marks));
      path.style.stroke = one.colour;
      if (one.dash) path.setAttribute("stroke-dasharray", one.dash);
    });
    read(chosen);
  }

  /* Index of the point of a series that is nearest to x; of a series that is `steps`, the last one up to x. */
  function nearest(one, x) {
    let low = 0;
    let high = one.points.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (one.points[middle][0] <= x) low = middle;
      else high = middle - 1;
    }
    const next = one.points[low + 1];
    return !one.steps && next && next[0] - x < x - one.points[low][0] ? low + 1 : low;
  }

  /* The longest series sets the points that the read-out stops at. */
  const leader = () => shown().reduce((best, one) => (one.points.length > best.points.length ? one : best), {points: []});

  function read(x) {
    const main = leader();
    chosen = x;
    if (x === null || !frame || !main.points.length) {
      cursor.setAttribute("visibility", "hidden");
      readout.hidden = true;
      if (frame && main.points.length) describe(main.points[main.points.length - 1][0]);
      return;
    }
    const at = main.points[nearest(main, x)][0];
    const pixel = frame.x(at);
    cursor.setAttribute("visibility", "visible");
    cursor.replaceChildren(shape("line", {x1: pixel, x2: pixel, y1: MARGIN.top, y2: MARGIN.top + frame.tall}));
    const rows = [];
    for (const one of shown().filter((some) => some.points.length)) {
      const [, y] = one.points[nearest(one, at)];
      if (usable(y)) cursor.append(shape("circle", {cx: pixel, cy: frame.y(y), r: 4, style: {fill: one.colour}}));
      const swatch = node("i", {style: {background: one.colour}});
      rows.push(node("div", {}, swatch, node("span", {text: one.name}), node("b", {text: now.format(y)})));
    }
    readout.replaceChildren(node("strong", {text: `${now.xName} ${now.xFormat(at)}`}), ...rows);
    readout.hidden = false;
    const room = svg.parentNode.clientWidth;
    const wide = readout.offsetWidth;
    readout.style.left = `${Math.max(0, pixel + 12 + wide > room ? pixel - 12 - wide : pixel + 12)}px`;
    describe(at);
  }

  function describe(at) {
    const values = shown()
      .filter((one) => one.points.length)
      .map((one) => `${one.name} ${now.format(one.points[nearest(one, at)][1])}`);
    svg.setAttribute("aria-valuemin", frame.left);
    svg.setAttribute("aria-valuemax", frame.right);
    svg.setAttribute("aria-valuenow", at);
    svg.setAttribute("aria-valuetext", `${now.xName} ${now.xFormat(at)}: ${values.join(", ")}`);
  }

  function pointAt(event) {
    const box = svg.getBoundingClientRect();
    if (frame) read(frame.xOf(event.clientX - box.left));
  }

  svg.addEventListener("pointermove", pointAt);
  svg.addEventListener("pointerdown", pointAt);
  svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && read(null));
  svg.addEventListener("blur", () => read(null));
  svg.addEventListener("keydown", (event) => {
    const points = leader().points;
    if (!points.length) return;
    const here = chosen === null ? points.length : nearest(leader(), chosen);
    const leap = Math.max(1, Math.round(points.length / 10));
    const go = {ArrowLeft: here - 1, ArrowDown: here - 1, ArrowRight: here + 1, ArrowUp: here + 1, Home: 0,
      End: points.length - 1, PageUp: here + leap, PageDown: here - leap}[event.key];
    if (event.key === "Escape") read(null);
    if (go === undefined) return;
    event.preventDefault();
    read(points[Math.min(Math.max(go, 0), points.length - 1)][0]);
  });
  toggle.addEventListener("click", () => {
    now.scale = now.scale === "log" ? "linear" : "log";
    draw();
  });

  const soon = gossamer.later(draw);
  gossamer.whenResized(element, draw);
  draw();
  return {
    update(changed) {
      Object.assign(now, changed);
      soon();
    },
  };
};
