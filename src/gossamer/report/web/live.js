/* The live page: keeps the view that the server's events describe (report/live/changes.py), and shows what has changed. */
"use strict";

(function () {
  const {node, shape, setText, setStyle} = gossamer;
  const byId = (id) => document.getElementById(id);
  const STATES = {starting: "starting", training: "training", finished: "finished", stopped: "stopped"};
  const ENDED = ["finished", "stopped"];
  const REFERENCES = {centralised: "centralised", graphless: "graph-less"};
  const ASSUMPTIONS = {
    A1: "weights are symmetric and doubly stochastic",
    A2: "spectral radius below one: agents come to agree",
    A3: "no weight without a link",
  };
  const AGAIN = 3000; // milliseconds
  const ROUNDING = 1e-12; // below it a spectral radius is 0
  const MAX_ROWS = 10; // of bars
  const MAX_LINES = 500; // of the log
  let view = null;

  // --- the header ---------------------------------------------------------------------------------------------------
  const few = (ids, most = 12) => `${ids.slice(0, most).join(", ")}${ids.length > most ? " \u2026" : ""}`;

  function sum(values) {
    return values.reduce((total, value) => total + value, 0);
  }

  const scoreFormat = (name) => (name === "accuracy" ? gossamer.percent : gossamer.number);
  const scoreName = () => view.score.replaceAll("_", " ");

  function last(rows, name) {
    for (let k = rows.length - 1; k >= 0; k -= 1) if (gossamer.known(rows[k][name])) return rows[k][name];
    return null;
  }

  function showHeader() {
    setText(byId("title"), view.title);
    const progress = hasEnded() ? view.state : `${view.step}/${view.steps}`;
    document.title = `${progress} \u00b7 ${view.title}`;
    const state = byId("state");
    setText(state, view.activity || STATES[view.state] || view.state);
    state.dataset.state = view.state;
    const share = view.steps ? Math.min(1, view.step / view.steps) : 0;
    setStyle(byId("progress").firstElementChild, "width", `${(100 * share).toFixed(2)}%`);
    byId("progress").setAttribute("aria-valuemax", view.steps);
    byId("progress").setAttribute("aria-valuenow", view.step);
    setText(byId("step"), `${gossamer.count(view.step)} of ${gossamer.count(view.steps)}`);
    setText(byId("seconds"), gossamer.seconds(view.seconds));
    setText(byId("score-name"), `validation ${scoreName()}`);
    setText(byId("score"), scoreFormat(view.score)(last(view.evaluations, "validation")));
    setText(byId("loss"), gossamer.number(last(view.evaluations, "loss")));
    const sent = view.agents.map((one) => sum(one.neighbours.map((link) => sum(Object.values(link.sent)))));
    setText(byId("sent"), gossamer.bytes(sum(sent)));
  }

  // --- curves -------------------------------------------------------------------------------------------------------
  /* Points of one field of evaluations, kept between events: only new evaluations are added. */
  const curves = new Map();
  function pointsOf(key, rows, name) {
    let known = curves.get(`${key}/${name}`);
    if (!known || known.rows !== rows || known.points.length > rows.length) {
      known = {rows, points: []};
      curves.set(`${key}/${name}`, known);
    }
    for (let k = known.points.length; k < rows.length; k += 1) known.points.push([rows[k].step, rows[k][name]]);
    return known.points;
  }

  const some = (points) => points.some((point) => gossamer.known(point[1]));

  /* The steps that the curves show: of a run that has just begun a half, a quarter ... of all, so that it is not squeezed. */
  function horizon() {
    let right = Math.max(view.steps, 1);
    while (right / 2 >= Math.max(1.25 * view.step, 10)) right /= 2;
    return right;
  }

  function upTo(points, right) {
    if (!points.length || points[points.length - 1][0] <= right) return points;
    return points.slice(0, points.findIndex((point) => point[0] > right));
  }

  function seriesOf(name, right) {
    const lines = [{name: "distributed", colour: "var(--distributed)", points: pointsOf("distributed", view.evaluations, name)}];
    for (const [reference, label] of Object.entries(REFERENCES)) {
      const points = pointsOf(reference, view.references[reference] || [], name);
      const dash = reference === "graphless" ? "2 5" : "7 5";
      const value = last(view.references[reference] || [], name);
      if (some(points)) lines.push({name: label, colour: `var(--${reference})`, points: upTo(points, right), value, dash});
    }
    return lines;
  }

  const scoreChart = gossamer.chart(byId("score-chart"), {title: "Score", height: 200});
  const lossChart = gossamer.chart(byId("loss-chart"), {title: "Loss", label: "of training vertices", height: 200, toggle: true});
  const disagreement = gossamer.chart(byId("disagreement"), {
    title: "Disagreement", label: "of the agents' weights", scale: "log", toggle: true, height: 200,
  });

  function showCurves() {
    const right = horizon();
    const xRange = [0, right];
    scoreChart.update({title: "Score", label: `${scoreName()} of validation vertices`, series: seriesOf("validation", right), xRange, format: scoreFormat(view.score)});
    lossChart.update({series: seriesOf("loss", right), xRange});
    const points = pointsOf("distributed", view.evaluations, "disagreement");
    disagreement.update({series: some(points) ? [{name: "distributed", colour: "var(--distributed)", points}] : [], xRange});
  }

  // --- map and bytes ------------------------------------------------------------------------------------------------
  const map = gossamer.map(byId("map"), {title: "Agents", height: 500});
  const bars = gossamer.bars(byId("bytes"), {title: "Bytes by phase", label: "sent so far"});

  const add = (into, sent) => {
    for (const [phase, value] of Object.entries(sent)) into[phase] = (into[phase] || 0) + value;
    return into;
  };

  function showTraffic() {
    map.update({...gossamer.mapOf(view), longWait: 0.1 * view.seconds, height: view.agents.length > 60 ? 640 : 500, title: view.own === null ? "Agents" : "This agent and its neighbours"});
    const all = {};
    let rows = view.agents.map((one) => ({
      name: String(one.agent), colour: gossamer.agentColour(one.agent),
      values: one.neighbours.reduce((into, link) => add(into, link.sent), {}),
    }));
    rows.forEach((row) => add(all, row.values));
    const own = view.own === null ? null : view.agents.find((one) => one.agent === view.own);
    if (own) {
      rows = own.neighbours.map((link) => ({
        name: `to ${link.neighbour}`, colour: gossamer.agentColour(link.neighbour), values: link.sent,
      }));
    }
    const most = rows.map((row) => [sum(Object.values(row.values)), row]).filter(([size]) => size > 0);
    if (most.length > MAX_ROWS) most.sort((a, b) => b[0] - a[0]);
    const shown = most.length > 1 ? most.slice(0, MAX_ROWS).map(([, row]) => row) : [];
    bars.update({rows: [{name: "all", values: all}], scale: "own"});
    const rest = most.length > MAX_ROWS ? `, the ${MAX_ROWS} that sent most` : "";
    agentBars.update({title: own ? "By neighbour" : `By agent${rest}`, rows: shown});
    byId("agent-bars").hidden = !shown.length;
  }

  byId("bytes").after(node("div", {id: "agent-bars", hidden: true}));
  byId("bytes").append(byId("agent-bars"));
  const agentBars = gossamer.bars(byId("agent-bars"), {legend: false, title: " "});

  // --- the table of agents ------------------------------------------------------------------------------------------
  const COLUMNS = [
    {name: "agent", value: (one) => one.agent},
    {name: "state", value: (one) => one.state},
    {name: "step", n: true, value: (one) => one.step, text: gossamer.count},
    {name: "loss", n: true, optional: true, value: (one) => one.loss, text: gossamer.number},
    {name: "vertices", n: true, optional: true, value: (one) => one.vertices, text: gossamer.count},
    {name: "labels", n: true, optional: true, value: (one) => one.labels, text: gossamer.count},
    {name: "waits for", value: (one) => (one.waiting_for.length ? one.waited : 0), wide: true,
      text: (value, one) => (one.waiting_for.length ? `${few(one.waiting_for, 6)}, ${gossamer.seconds(value)}` : "")},
    {name: "refused", n: true, value: (one) => sum(Object.values(one.refused)), text: gossamer.count},
    {name: "saved", title: "age of the last checkpoint", n: true, optional: true, value: (one) => one.checkpoint_age, text: gossamer.seconds},
    {name: "seen", title: "time since its last report", n: true, optional: true, value: (one) => one.report_age, text: gossamer.seconds},
  ];
  const rows = new Map();
  let order = {column: 0, down: false};

  COLUMNS.forEach((column, place) => {
    const button = node("button", {type: "button", text: column.name, title: `${column.title || column.name}; sort by it`});
    button.addEventListener("click", () => {
      order = {column: place, down: order.column === place ? !order.down : false};
      showAgents();
    });
    byId("agents").tHead.rows[0].append(node("th", {scope: "col", class: column.n ? "n" : null}, button));
  });

  const alarm = () => shape("svg", {class: "icon", viewBox: "-7 -7 14 14", "aria-hidden": "true"},
    shape("path", {class: "diamond", d: "M0 -7L7 0L0 7L-7 0Z"}));

  function makeRow(agent) {
    const cells = COLUMNS.map((column) => node("td", {class: column.n ? "n" : column.wide ? "wide" : null}));
    const dot = node("i", {class: "dot", style: {background: gossamer.agentColour(agent)}});
    cells[0].append(node("span", {class: "who"}, dot, node("span", {text: agent}),
      agent === view.own ? node("span", {class: "badge", text: "this"}) : null));
    cells[1].append(node("span", {class: "state"}, node("span", {})));
    return node("tr", {"data-agent": agent}, ...cells);
  }

  function compareBy({column, down}) {
    const {value} = COLUMNS[column];
    const of = (one) => value(one) ?? -Infinity;
    return (a, b) => {
      const [x, y] = [of(a), of(b)];
      return (x < y ? -1 : x > y ? 1 : a.agent - b.agent) * (down ? -1 : 1);
    };
  }

  function showAgents() {
    const body = byId("agents").tBodies[0];
    COLUMNS.forEach((column, place) => {
      if (column.optional) byId("agents").classList.toggle(`without-${place}`, view.agents.every((one) => column.value(one) === null));
    });
    [...byId("agents").tHead.rows[0].cells].forEach((cell, place) => {
      cell.setAttribute("aria-sort", place !== order.column ? "none" : order.down ? "descending" : "ascending");
    });
    const present = new Set(view.agents.map((one) => one.agent));
    for (const [agent, row] of rows) {
      if (!present.has(agent)) {
        row.remove();
        rows.delete(agent);
      }
    }
    [...view.agents].sort(compareBy(order)).forEach((one, place) => {
      let row = rows.get(one.agent);
      if (!row) {
        row = makeRow(one.agent);
        rows.set(one.agent, row);
      }
      if (body.children[place] !== row) body.insertBefore(row, body.children[place] || null);
      const missing = gossamer.MISSING.includes(one.state);
      if (row.classList.contains("missing") !== missing) {
        row.classList.toggle("missing", missing);
        const state = row.cells[1].firstChild;
        if (missing) state.prepend(alarm());
        else state.firstChild.remove();
      }
      setText(row.cells[1].firstChild.lastChild, one.state);
      for (let k = 2; k < COLUMNS.length; k += 1) setText(row.cells[k], COLUMNS[k].text(COLUMNS[k].value(one), one));
    });
    const missing = view.agents.filter((one) => gossamer.MISSING.includes(one.state)).length;
    setText(byId("agents-label"), `${view.agents.length}${missing ? `, ${missing} missing` : ""}`);
  }

  // --- refusals, memberships, certificate, log ----------------------------------------------------------------------
  /* Replace the rows of a table by rows of texts, where they differ. */
  function fillTable(table, texts, numeric) {
    const body = table.tBodies[0];
    while (body.rows.length > texts.length) body.lastElementChild.remove();
    texts.forEach((row, place) => {
      if (!body.rows[place]) body.append(node("tr", {}, ...row.map((_, k) => node("td", {class: numeric.includes(k) ? "n" : null}))));
      row.forEach((text, k) => setText(body.rows[place].cells[k], text));
    });
  }

  function showRefusals() {
    const reasons = new Map();
    for (const one of view.agents) {
      for (const [reason, count] of Object.entries(one.refused)) {
        if (!count) continue;
        const known = reasons.get(reason) || {count: 0, by: []};
        reasons.set(reason, {count: known.count + count, by: [...known.by, one.agent]});
      }
    }
    const card = byId("refusals");
    card.querySelector(".nothing").hidden = reasons.size > 0;
    card.querySelector(".scroll").hidden = !reasons.size;
    const sorted = [...reasons].sort((a, b) => b[1].count - a[1].count);
    fillTable(card.querySelector("table"), sorted.map(([reason, {count, by}]) => [reason, gossamer.count(count), few(by)]), [1]);
  }

  const members = gossamer.chart(byId("members-chart"), {
    title: "Memberships", label: "agents that take part", xName: "after", xUnit: " s", xFormat: gossamer.seconds, format: gossamer.count, height: 130,
  });

  function showMemberships() {
    const card = byId("memberships");
    card.hidden = !view.memberships.length;
    if (card.hidden) return;
    const all = view.memberships;
    const points = all.filter((one) => one.seconds !== null).map((one) => [one.seconds, one.members.length]);
    const most = Math.max(...all.map((one) => one.members.length));
    members.update({
      series: [{name: "agents", colour: "var(--distributed)", points, steps: true}], xRange: [0, view.seconds || 1], yRange: [0, most],
      empty: "not known when",
    });
    const texts = all.map((one, k) => {
      const before = k ? all[k - 1].members : one.members;
      const joined = one.members.filter((agent) => !before.includes(agent));
      const left = before.filter((agent) => !one.members.includes(agent));
      const change = [joined.length ? `+ ${few(joined)}` : "", left.length ? `\u2212 ${few(left)}` : ""].filter(Boolean).join("  ");
      return [one.number, one.members.length, change || (k ? "same agents" : "first"), gossamer.count(one.from_step),
        gossamer.seconds(one.seconds), one.stopped === null ? "\u2013" : gossamer.seconds(one.stopped)];
    });
    fillTable(card.querySelector("table"), texts.reverse(), [0, 1, 3, 4, 5]);
  }

  function showCertificate() {
    const given = view.certificate;
    const card = byId("certificate");
    card.hidden = given === null;
    if (given === null) return;
    const items = Object.entries(given.holds).map(([name, holds]) =>
      node("li", {}, node("span", {class: `mark-of ${holds ? "good" : "bad"}`, text: holds ? "\u2713" : "\u2717"}),
        node("b", {text: `(${name})`}), node("span", {text: `${ASSUMPTIONS[name] || ""}${holds ? "" : ": does not hold"}`})));
    const facts = [["spectral radius", gossamer.number(given.spectral_radius < ROUNDING ? 0 : given.spectral_radius)], ["needed links", gossamer.count(given.needed_links)],
      ["added links", gossamer.count(given.added_links)], ["data edges kept", gossamer.percent(given.edges_kept)]];
    if (given.edges_relayed) facts.push(["data edges relayed", gossamer.percent(given.edges_relayed)]);
    card.replaceChildren(
      node("div", {class: "head"}, node("h3", {text: "Certificate"}), node("span", {class: "label", text: "of the topology"})),
      node("ul", {class: "certificate"}, ...items),
      node("dl", {}, ...facts.map(([name, value]) => node("div", {}, node("dt", {text: name}), node("dd", {text: value}))))
    );
  }

  function showLog(kept, added) {
    const list = byId("log");
    const atEnd = list.scrollTop + list.clientHeight >= list.scrollHeight - 8;
    while (list.children.length > kept) list.firstElementChild.remove();
    for (const line of added.slice(-MAX_LINES)) {
      const time = new Date(1000 * line.time);
      list.append(node("li", {"data-level": line.level}, node("time", {datetime: time.toISOString(), text: time.toTimeString().slice(0, 8)}),
        node("b", {text: line.level}), node("span", {text: line.text})));
    }
    while (list.children.length > MAX_LINES) list.firstElementChild.remove();
    if (atEnd) list.scrollTop = list.scrollHeight;
    setText(byId("log-label"), list.children.length ? "" : "no line yet");
  }

  // --- events -------------------------------------------------------------------------------------------------------
  /* Apply a change of a list that grows; true if it remains the same array. */
  function grow(holder, name, {keep, add: added}) {
    if (holder[name] && keep === holder[name].length) holder[name].push(...added);
    else holder[name] = [...(holder[name] || []).slice(keep ? -keep : Infinity), ...added];
  }

  function apply(change) {
    const {agents, references, evaluations, memberships, log, ...plain} = change;
    Object.assign(view, plain);
    if (evaluations) grow(view, "evaluations", evaluations);
    if (memberships) grow(view, "memberships", memberships);
    if (log) grow(view, "log", log);
    for (const [name, one] of Object.entries(references || {})) grow(view.references, name, one);
    if (agents) {
      const known = new Map([...view.agents, ...agents.add].map((one) => [one.agent, one]));
      view.agents = agents.order.map((agent) => known.get(agent));
    }
  }

  function showChange(change) {
    showHeader();
    if (change.evaluations || change.references || change.steps || change.score) showCurves();
    if (change.agents || change.positions) {
      showTraffic();
      showAgents();
      showRefusals();
    }
    if (change.memberships || (view.memberships.length && change.seconds)) showMemberships();
    if (change.certificate) showCertificate();
    if (change.log) showLog(change.log.keep, change.log.add);
    showEnd();
  }

  const banner = byId("banner");
  function say(text, lost) {
    banner.hidden = !text;
    banner.classList.toggle("lost", Boolean(lost));
    setText(banner, text);
  }

  const hasEnded = () => view !== null && ENDED.includes(view.state);
  const showEnd = () => say(hasEnded() ? (view.state === "finished" ? "The run has ended." : "The run has been stopped.") : "", false);

  /* Why the server has closed the stream for good: a token that is no longer known, or too many browsers. */
  async function retry() {
    try {
      const answer = await fetch("view.json", {cache: "no-store"});
      if (answer.status === 401) return location.reload();
      if (answer.ok) say("This page is watched by too many browsers, retrying.", true);
    } catch {
      // not there: try again
    }
    setTimeout(connect, AGAIN);
  }

  function connect() {
    const events = new EventSource("events");
    events.addEventListener("snapshot", (event) => {
      view = JSON.parse(event.data);
      curves.clear();
      showChange({...view, evaluations: true, log: null, memberships: view.memberships, certificate: true});
      byId("log").replaceChildren();
      showLog(0, view.log);
      showMemberships();
    });
    events.addEventListener("update", (event) => {
      const change = JSON.parse(event.data);
      apply(change);
      showChange(change);
    });
    events.addEventListener("end", () => {
      if (hasEnded()) events.close(); // this page stays as it is, whatever is served here next
    });
    events.addEventListener("error", () => {
      if (hasEnded()) showEnd();
      else say("Connection lost, retrying.", true);
      if (events.readyState === EventSource.CLOSED) {
        events.close();
        retry();
      }
    });
  }

  connect();
})();
