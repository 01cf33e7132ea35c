/* gossamer.map(element, spec): the agents and their links.

   spec = {
     agents: [{agent: 3, state: "training", facts: [["loss", "0.52"], ...]}],    // facts stand in the read-out
     links: [{ends: [0, 3], bytes: 12345, waited: 1.5, added: false}],    // waited in seconds, null: not known
     positions: {"3": [x, y]},     // from -1 to 1, y upwards; agents without one stand on a circle
     own: null,                    // the agent whose page this is
     longWait: 0,                  // seconds of waiting that have the last colour, at least; or the longest that there is
     title: "Agents",
     height: 420,                  // in pixels, but for phones; the width is that of `element`
   }
   A link is as wide as its bytes, thinner where there are many, and coloured by waiting time; an added one is dashed and
   lies above the others. An agent's mark has its colour and
   its number. Those whose state is in gossamer.MISSING are red diamonds with a cross; those in gossamer.AWAY are hollow.

   gossamer.mapOf(view)    the agents, links, positions and own of a RunView, its bytes sent by the
                           ends that are known, its waiting time the longer of theirs

   Returns {update(spec)} as gossamer.chart does. Read-out: mouse, touch, or arrow keys, Home and End on a focused agent. */
"use strict";

gossamer.MISSING = ["missing", "silent"];
gossamer.AWAY = ["left", "outside", "not started", "joining", "starting", "unknown"];
gossamer.WAIT_SHADES = 5;
gossamer.DENSE_LINKS = 60; // beyond which links are see-through

gossamer.mapOf = function (view) {
  const links = new Map();
  for (const one of view.agents) {
    for (const link of one.neighbours) {
      const ends = one.agent < link.neighbour ? [one.agent, link.neighbour] : [link.neighbour, one.agent];
      const key = ends.join("-");
      const sent = Object.values(link.sent).reduce((sum, part) => sum + part, 0);
      const known = links.get(key);
      if (known) {
        known.bytes += sent;
        if (link.waited !== null) known.waited = Math.max(known.waited || 0, link.waited);
      } else links.set(key, {ends, bytes: sent, waited: link.waited});
    }
  }
  const agents = view.agents.map((one) => {
    const facts = [["state", one.state]];
    if (one.step !== null) facts.push(["step", gossamer.count(one.step)]);
    if (one.loss !== null) facts.push(["loss", gossamer.number(one.loss)]);
    if (one.vertices !== null) facts.push(["vertices", gossamer.count(one.vertices)]);
    if (one.labels !== null) facts.push(["labels", gossamer.count(one.labels)]);
    if (one.waiting_for.length) facts.push(["waits for", one.waiting_for.join(", ")]);
    return {agent: one.agent, state: one.state, facts};
  });
  return {agents, links: [...links.values()], positions: view.positions, own: view.own};
};

gossamer.map = function (element, spec) {
  const {node, shape, setText, setStyle} = gossamer;
  const now = {title: "Agents", agents: [], links: [], positions: {}, own: null, longWait: 0, height: 420, ...spec};
  const marks = new Map(); // agent -> its <g>
  const lines = new Map(); // "0-3" -> its <line>
  let current = null; // agent that Tab reaches

  const title = node("h3", {text: now.title});
  const tally = node("span", {class: "label"});
  const svg = shape("svg", {class: "agents", role: "group"});
  const under = shape("g", {class: "links", "aria-hidden": "true"});
  const over = shape("g", {class: "marks"});
  const readout = node("div", {class: "readout", hidden: true});
  const widest = node("span", {});
  const longest = node("span", {});
  const swatches = [...Array(gossamer.WAIT_SHADES).keys()].map((k) => node("i", {style: {background: `var(--wait-${k})`}}));
  const alarm = shape("svg", {width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true"},
    shape("path", {class: "diamond", d: "M0 -7L7 0L0 7L-7 0Z"}));
  const dashes = shape("svg", {width: 26, height: 10, "aria-hidden": "true"},
    shape("line", {class: "added", x1: 0, x2: 26, y1: 5, y2: 5}));
  const waitKey = node("span", {class: "key"}, "waited 0", node("span", {class: "shades", "aria-hidden": "true"}, ...swatches), longest);
  const addedKey = node("span", {class: "key"}, dashes, "link added to the data's");
  const missingKey = node("span", {class: "key"}, alarm, "missing");
  const wedge = shape("svg", {width: 26, height: 10, "aria-hidden": "true"}, shape("path", {class: "wedge", d: "M0 5L26 1V9Z"}));
  svg.append(under, over);
  element.classList.add("map");
  element.replaceChildren(
    node("div", {class: "head"}, title, tally),
    node("div", {class: "plot"}, svg, readout),
    node("div", {class: "keys"},
      node("span", {class: "key"}, wedge, widest),
      waitKey,
      missingKey, addedKey)
  );

  function place(width, height, radius) {
    const points = new Map();
    now.agents.forEach((one, k) => {
      const turn = (2 * Math.PI * k) / now.agents.length - Math.PI / 2;
      points.set(one.agent, now.positions[one.agent] || [Math.cos(turn), -Math.sin(turn)]);
    });
    const all = [...points.values()];
    const span = (axis) => {
      const values = all.map((point) => point[axis]);
      return [Math.min(...values), Math.max(...values)];
    };
    const [[left, right], [low, high]] = [span(0), span(1)];
    const margin = radius + 8;
    let across = (width - 2 * margin) / Math.max(right - left, 1e-9);
    let upward = (height - 2 * margin) / Math.max(high - low, 1e-9);
    [across, upward] = [Math.min(across, 2.2 * upward), Math.min(upward, 2.2 * across)];
    for (const [agent, [x, y]] of points) {
      points.set(agent, [width / 2 + across * (x - (left + right) / 2), height / 2 - upward * (y - (low + high) / 2)]);
    }
    return points;
  }

  function makeMark(agent) {
    const mark = shape("g", {class: "mark", "data-agent": agent, tabindex: -1, role: "img"},
      shape("circle", {class: "ring"}), shape("circle", {class: "disc"}), shape("path", {class: "diamond"}),
      shape("text", {"text-anchor": "middle", dy: "0.36em", text: agent, "aria-hidden": "true"}), shape("path", {class: "cross"}));
    const pick = () => show(agent);
    mark.addEventListener("pointerenter", pick);
    mark.addEventListener("pointerdown", pick);
    mark.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && show(null));
    mark.addEventListener("focus", () => {
      setCurrent(agent);
      pick();
    });
    mark.addEventListener("blur", () => show(null));
    return mark;
  }

  function setCurrent(agent) {
    if (marks.has(current)) marks.get(current).setAttribute("tabindex", -1);
    current = agent;
    if (marks.has(agent)) marks.get(agent).setAttribute("tabindex", 0);
  }

  function drawMark(one, [x, y], radius) {
    let mark = marks.get(one.agent);
    if (!mark) {
      mark = makeMark(one.agent);
      marks.set(one.agent, mark);
      over.append(mark);
    }
    const missing = gossamer.MISSING.includes(one.state);
    mark.setAttribute("class", `mark${missing ? " missing" : ""}${gossamer.AWAY.includes(one.state) ? " away" : ""}`);
    mark.classList.toggle("own", one.agent === now.own);
    mark.dataset.state = one.state;
    mark.setAttribute("aria-label", `agent ${one.agent}: ${one.facts.map((fact) => fact.join(" ")).join(", ")}`);
    mark.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
    const [ring, disc, diamond, text, sign] = mark.children;
    ring.setAttribute("r", radius + 4);
    disc.setAttribute("r", radius);
    const tip = 1.45 * radius;
    diamond.setAttribute("d", `M0 ${-tip}L${tip} 0L0 ${tip}L${-tip} 0Z`);
    sign.setAttribute("d", crossAt(0.95 * radius, -0.95 * radius, Math.max(2.5, 0.28 * radius)));
    setStyle(mark, "--own", gossamer.agentColour(one.agent));
    setStyle(mark, "--on-own", gossamer.onAgentColour(one.agent));
    setStyle(text, "font-size", `${(radius * (String(one.agent).length > 2 ? 0.82 : 1.02)).toFixed(1)}px`);
  }

  const crossAt = (x, y, size) =>
    `M${x - size} ${y - size}L${x + size} ${y + size}M${x - size} ${y + size}L${x + size} ${y - size}`;

  function draw() {
    const width = Math.max(200, Math.round(svg.parentNode.clientWidth));
    const crowded = now.agents.length > 50;
    const height = width < 500 ? Math.max(280, width * (crowded ? 1.6 : 1)) : now.height;
    const radius = Math.min(17, Math.max(6, 0.26 * Math.sqrt((width * height) / Math.max(now.agents.length, 1))));
    const missing = now.agents.filter((one) => gossamer.MISSING.includes(one.state));
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    svg.setAttribute("aria-label", `${now.title}: ${now.agents.length} agents, ${now.links.length} links`);
    setText(title, now.title);
    const names = missing.map((one) => one.agent);
    const lacking = names.length ? ` \u00b7 missing: ${names.slice(0, 8).join(", ")}${names.length > 8 ? " \u2026" : ""}` : "";
    setText(tally, `${now.agents.length} agents, ${now.links.length} links${lacking}`);
    const points = place(width, height, radius);
    const most = now.links.reduce((largest, one) => Math.max(largest, one.bytes), 1);
    const longestWait = now.links.reduce((longest, one) => Math.max(longest, one.waited || 0), now.longWait);
    const thickest = Math.min(9, 0.6 * radius, 60 / Math.sqrt(Math.max(1, now.links.length)));
    svg.classList.toggle("dense", now.links.length > gossamer.DENSE_LINKS);
    const kept = new Set();
    for (const one of now.links) {
      const [from, to] = one.ends.map((end) => points.get(end));
      if (!from || !to) continue;
      const key = one.ends.join("-");
      kept.add(key);
      let line = lines.get(key);
      if (!line) {
        line = shape("line", {"data-link": key});
        lines.set(key, line);
      }
      if (one.added || !line.parentNode) under.append(line); // added ones above all others
      const share = longestWait ? (one.waited || 0) / longestWait : 0;
      const shade = Math.min(gossamer.WAIT_SHADES - 1, Math.floor(share * gossamer.WAIT_SHADES));
      [["x1", from[0]], ["y1", from[1]], ["x2", to[0]], ["y2", to[1]]].forEach(([name, value]) => line.setAttribute(name, value.toFixed(1)));
      setStyle(line, "stroke", `var(--wait-${shade})`);
      setStyle(line, "stroke-width", Math.max(0.8, (thickest * one.bytes) / most).toFixed(2));
      line.classList.toggle("added", Boolean(one.added));
    }
    for (const [key, line] of lines) {
      if (!kept.has(key)) {
        line.remove();
        lines.delete(key);
      }
    }
    for (const one of now.agents) drawMark(one, points.get(one.agent), radius);
    for (const [agent, mark] of marks) {
      if (!points.has(agent)) {
        mark.remove();
        marks.delete(agent);
      }
    }
    if (!marks.has(current) && now.agents.length) setCurrent(now.agents[0].agent);
    setText(widest, `up to ${gossamer.bytes(now.links.reduce((largest, one) => Math.max(largest, one.bytes), 0))}`);
    setText(longest, gossamer.seconds(longestWait));
    waitKey.hidden = now.links.length > 0 && now.links.every((one) => !gossamer.known(one.waited));
    addedKey.hidden = !now.links.some((one) => one.added);
    missingKey.hidden = !missing.length;
    if (!readout.hidden) show(Number(readout.dataset.agent));
  }

  function show(agent) {
    const one = now.agents.find((some) => some.agent === agent);
    svg.classList.toggle("picked", Boolean(one));
    readout.hidden = !one;
    for (const [key, line] of lines) line.classList.toggle("near", Boolean(one) && key.split("-").includes(String(agent)));
    if (!one) return;
    const near = now.links.filter((link) => link.ends.includes(agent)).sort((a, b) => b.bytes - a.bytes);
    const rows = one.facts.map(([name, value]) => node("div", {}, node("span", {text: name}), node("b", {text: value})));
    if (near.length) {
      const waits = near.some((link) => link.waited) ? " \u00b7 waited" : "";
      rows.push(node("div", {class: "subhead"}, node("span", {text: "links"}), node("span", {text: `bytes${waits}`})));
    }
    for (const link of near.slice(0, 6)) {
      const other = link.ends[0] === agent ? link.ends[1] : link.ends[0];
      const waited = link.waited ? ` \u00b7 ${gossamer.seconds(link.waited)}` : "";
      rows.push(node("div", {}, node("span", {text: `to ${other}`}), node("b", {text: gossamer.bytes(link.bytes) + waited})));
    }
    if (near.length > 6) rows.push(node("div", {}, node("span", {text: `and ${near.length - 6} more links`})));
    readout.dataset.agent = agent;
    readout.replaceChildren(node("strong", {text: `agent ${agent}${agent === now.own ? ", this one" : ""}`}), ...rows);
    const [, x, y] = marks.get(agent).getAttribute("transform").match(/translate\(([-\d.]+) ([-\d.]+)\)/).map(Number);
    const room = svg.parentNode.clientWidth;
    const left = x + 24 + readout.offsetWidth > room ? x - 24 - readout.offsetWidth : x + 24;
    readout.style.left = `${Math.min(Math.max(0, left), Math.max(0, room - readout.offsetWidth))}px`;
    readout.style.top = `${Math.max(0, y - readout.offsetHeight / 2)}px`;
  }

  svg.addEventListener("keydown", (event) => {
    const order = now.agents.map((one) => one.agent);
    const here = order.indexOf(current);
    const go = {ArrowRight: here + 1, ArrowDown: here + 1, ArrowLeft: here - 1, ArrowUp: here - 1, Home: 0, End: order.length - 1}[event.key];
    if (event.key === "Escape") show(null);
    if (go === undefined || !order.length) return;
    event.preventDefault();
    marks.get(order[(go + order.length) % order.length]).focus();
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
