// Draws the charts of a page with uPlot, from the JSON in each `figure.chart` (chart.py), and follows a run where `watch` serves it.
"use strict";
(() => {
  const NEAR = 8; // pixels
  const charts = new Map(); // figure -> {spec, range, zoomed, plot, said, button, marks}; from `plot` on once it has a width
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const make = (tag, css, parent) => {
    const one = document.createElement(tag);
    one.className = css;
    parent.append(one);
    return one;
  };

  // ---- numbers ----

  const digits = (value, count) => String(Number(value.toPrecision(count)));
  const measured = (spec, value, count = 5) => (value == null ? "–" : digits(value * spec.factor, count) + spec.suffix);
  const instant = (value) => {
    if (Math.abs(value) >= 7200 && value % 3600 === 0) return value / 3600 + " h";
    return Math.abs(value) >= 120 && value % 60 === 0 ? value / 60 + " min" : digits(value, 6) + " s";
  };
  const moment = (value) => {
    const whole = Math.round(Math.abs(value));
    if (whole < 120) return digits(value, 4) + " s";
    const parts = [[Math.floor(whole / 3600), "h"], [Math.floor(whole / 60) % 60, "min"], [whole % 60, "s"]];
    return (value < 0 ? "-" : "") + parts.filter(([count]) => count).map((one) => one.join(" ")).join(" ");
  };
  // steps of an axis: uPlot's own list ends at 1e32
  const steps = (spec) => (plot, axis, low, high) => {
    const power = Math.floor(Math.log10(high - low || 1)) - 2;
    const round = [0, 1, 2, 3].flatMap((more) => [1, 2, 5].map((one) => one * 10 ** (power + more)));
    const times = [60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800];
    return spec ? [...round.filter((one) => one < 60 && one >= 1e-3), ...times, ...round.filter((one) => one > 604800)] : round;
  };

  // ---- a chart ----

  const spread = (values, low, high) => values.reduce(([a, b], one) => [Math.min(a, one), Math.max(b, one)], [low, high]);
  const range = (spec) => {
    const at = [...spec.marks.map((one) => one[0]), ...spec.bands.flatMap((one) => one.slice(0, 2))];
    return spread(spec.lines.flatMap((one) => spread(one.x, Infinity, -Infinity)).concat(at), 0, 0);
  };
  // All charts over seconds show the same seconds.
  const whole = (state) => {
    const shown = state.spec.seconds ? [...charts.values()].filter((one) => one.spec.seconds) : [state];
    const [min, max] = spread(shown.flatMap((one) => one.range), 0, 0);
    return { min, max: max > min ? max : min + 1 };
  };
  const table = (spec) => (spec.lines.length ? uPlot.join(spec.lines.map((one) => [one.x, one.y])) : [[0], [null]]);

  function heights(state, low, high) {
    const { spec, zoomed } = state;
    if (low == null) [low, high] = [0, 0];
    if (spec.level) [low, high] = spread([spec.level[0]], low, high);
    if (!zoomed) [low, high] = spread([0], low, high);
    const more = 0.06 * (high - low) || Math.abs(high) || 1;
    const top = high > 0 || zoomed || low === high ? high + more : 0;
    return [low < 0 || zoomed ? low - more : 0, spec.ceiling == null ? top : Math.min(top, Math.max(spec.ceiling, low + more))];
  }

  // The number of a line that is nearest to the cursor: agents log at different times.
  function nearest(plot, series, at, x) {
    const [xs, ys] = [plot.data[0], plot.data[series]];
    const found = [-1, 1].map((step) => {
      let one = at;
      while (one >= 0 && one < xs.length && ys[one] == null) one += step;
      return ys[one] == null ? null : one;
    });
    const best = found.filter((one) => one != null).sort((a, b) => Math.abs(xs[a] - x) - Math.abs(xs[b] - x))[0];
    return best != null && Math.abs(xs[best] - x) <= (plot.scales.x.max - plot.scales.x.min) / 10 ? best : null;
  }

  function series(spec, line) {
    const name = /s\d/.exec(line.css)[0];
    const thin = line.css.includes("thin");
    const last = line.y.findLast((one) => one != null);
    return {
      label: line.label,
      class: thin && spec.lines.length > 17 ? "many" : null,
      stroke: () => colour(name) + (thin ? "70" : ""),
      width: thin ? 1 : line.css.includes("thick") ? 2.6 : 2,
      dash: { solid: [], dashed: [7, 4], dotted: [2, 3] }[dash(line.css)],
      spanGaps: true,
      points: { show: (plot, at) => spec.lines[at - 1].dots || spec.lines[at - 1].x.length === 1, size: 6, fill: () => colour(name) },
      value: (plot, value, index, at) => measured(spec, at == null ? last : value),
    };
  }

  const dash = (css) => /dashed|dotted/.exec(css)?.[0] || "solid";
  const read = (figure) => JSON.parse(figure.querySelector("script").textContent);

  function draw(figure, state, width) {
    const { spec } = state;
    const axis = { stroke: () => colour("soft"), grid: { stroke: () => colour("rule"), width: 1 }, ticks: { show: false }, gap: 6 };
    const options = {
      width,
      height: width < 500 ? Math.min(spec.height, 220) : spec.height,
      padding: [12, 12, 0, 0],
      cursor: {
        dataIdx: nearest,
        y: false,
        drag: { x: true, y: false },
        sync: spec.seconds ? { key: "seconds" } : undefined,
        bind: { dblclick: () => () => (reset(state), null) },
      },
      legend: { markers: { dash: (plot, at) => dash(spec.lines[at - 1].css) } },
      scales: { x: { time: false }, y: { range: (plot, low, high) => heights(state, low, high) } },
      axes: [
        { ...axis, size: 28, space: 64, incrs: steps(spec.seconds), values: (plot, at) => at.map((one) => (spec.seconds ? instant(one) : digits(one, 6))) },
        { ...axis, size: (plot, texts) => 16 + 7 * Math.max(4, ...(texts || []).map((one) => one.length)), incrs: steps(false), values: (plot, at) => at.map((one) => measured(spec, one, 4)) },
      ],
      series: [
        { label: spec.seconds ? "time" : spec.x, value: (plot, value) => (value == null ? "last" : spec.seconds ? moment(value) : digits(value, 6)) },
        ...spec.lines.map((one) => series(spec, one)),
      ],
      hooks: {
        setScale: [(plot, key) => key === "x" && scaled(state, plot)],
        setSize: [(plot) => place(state, plot)],
        setCursor: [(plot) => tell(state, plot)],
        draw: [(plot) => level(state, plot)],
      },
    };
    const still = figure.querySelectorAll(":scope > :not(script)");
    state.plot = new uPlot(options, table(spec), figure);
    still.forEach((one) => one.remove());
    state.said = make("p", "said", figure);
    state.button = make("button", "whole", figure);
    state.button.textContent = "the whole run";
    state.button.onclick = () => reset(state);
    fingers(state.plot.over);
    renew(state);
    const zoomed = spec.seconds && plotted().find((one) => one !== state && one.spec.seconds && one.zoomed);
    if (zoomed) state.plot.setScale("x", { min: zoomed.plot.scales.x.min, max: zoomed.plot.scales.x.max });
  }

  // After new data, or a new width: what was zoomed stays.
  function renew(state) {
    const { plot, spec } = state;
    (state.marks || []).forEach((one) => one[0].remove());
    state.marks = [
      ...spec.bands.map(([from, to, text]) => [make("div", "band", plot.over), from, to, text]),
      ...spec.marks.map(([at, text]) => [make("div", "mark", plot.over), at, at, text]),
    ];
    plot.setScale("x", state.zoomed ? { min: plot.scales.x.min, max: plot.scales.x.max } : whole(state));
    place(state, plot);
  }

  function reset(state) {
    for (const one of charts.values()) {
      if (one.plot && (one === state || (one.spec.seconds && state.spec.seconds))) one.plot.setScale("x", whole(one));
    }
  }

  function scaled(state, plot) {
    if (!state.button) return; // uPlot's first scale is not yet ours
    const { min, max } = whole(state);
    const before = state.zoomed;
    state.zoomed = plot.scales.x.min !== min || plot.scales.x.max !== max;
    if (state.zoomed !== before) plot.setScale("x", { min: plot.scales.x.min, max: plot.scales.x.max }); // heights depend on it
    state.button.hidden = !state.zoomed;
    place(state, plot);
  }

  function place(state, plot) {
    for (const [one, from, to] of state.marks) {
      const [left, right] = [from, to].map((at) => plot.valToPos(at, "x"));
      const edge = plot.over.clientWidth;
      one.hidden = !(right >= 0 && left <= edge);
      one.style.left = Math.max(left, 0) + "px";
      if (one.className === "band") one.style.width = Math.max(Math.min(right, edge) - Math.max(left, 0), 1) + "px";
    }
  }

  // What the marks and bands at the cursor stand for.
  function tell(state, plot) {
    if (!state.said) return;
    const at = plot.cursor.left;
    const here = ([one, from, to]) => at >= plot.valToPos(from, "x") - NEAR && at <= plot.valToPos(to, "x") + NEAR;
    state.said.textContent = at < 0 ? "" : state.marks.filter(here).map((one) => one[3]).join("; ");
  }

  function level(state, plot) {
    if (!state.spec.level) return;
    const [value, text] = state.spec.level;
    const y = plot.valToPos(value, "y", true);
    const { left, top, width, height } = plot.bbox;
    if (!(y >= top && y <= top + height)) return;
    const pen = plot.ctx;
    pen.save();
    pen.strokeStyle = pen.fillStyle = colour("good");
    pen.lineWidth = 1.5 * devicePixelRatio;
    pen.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
    pen.beginPath();
    pen.moveTo(left, y);
    pen.lineTo(left + width, y);
    pen.stroke();
    pen.font = 12 * devicePixelRatio + "px system-ui, sans-serif";
    pen.textAlign = "left";
    pen.fillText(text, left + 6 * devicePixelRatio, y - 5 * devicePixelRatio);
    pen.restore();
  }

  // A finger that moves sideways zooms as a mouse that is held down does; one that moves up or down scrolls the page.
  function fingers(over) {
    let start = null;
    let held = false;
    const send = (kind, { clientX, clientY }) =>
      over.dispatchEvent(new MouseEvent(kind, { clientX, clientY, movementX: 1, bubbles: true, button: 0 })); // uPlot wants a movement
    over.addEventListener("pointerdown", (event) => ([start, held] = [event.pointerType === "touch" ? event : null, false]));
    over.addEventListener("pointermove", (event) => {
      if (!start) return;
      if (!held && Math.abs(event.clientX - start.clientX) > 10) {
        send("mousemove", start);
        send("mousedown", start);
        held = true;
      }
      if (held) send("mousemove", event);
    });
    const end = (event) => (held && send("mouseup", event), (start = null), (held = false));
    over.addEventListener("pointerup", end);
    over.addEventListener("pointercancel", end);
  }

  const sizes = new ResizeObserver((changes) => {
    for (const { target, contentRect } of changes) {
      const width = Math.floor(contentRect.width);
      const state = charts.get(target);
      if (!width || !state) continue; // folded, or gone
      if (!state.plot) draw(target, state, width);
      else if (state.plot.width !== width) {
        state.plot.setSize({ width, height: state.plot.height });
        renew(state);
      }
    }
  });
  const watch = (parent) => {
    for (const one of parent.querySelectorAll("figure.chart")) {
      if (charts.has(one)) continue;
      const spec = read(one);
      charts.set(one, { spec, range: range(spec), zoomed: false });
      sizes.observe(one);
    }
  };
  const plotted = () => [...charts.values()].filter((one) => one.plot);
  const repaint = () => plotted().forEach((one) => one.plot.redraw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  watch(document);

  // ---- a run that goes on ----

  // A chart of the same lines stays, zoomed as it is, and gets the new numbers; also where other parts have come before it.
  function adopt(fresh) {
    fresh.querySelectorAll("figure.chart").forEach((figure) => {
      const spec = read(figure);
      const lines = (one) => JSON.stringify([one.label, one.lines.map((line) => [line.label, line.css])]);
      const [before, state] = [...charts].find(([, one]) => one.plot && lines(one.spec) === lines(spec)) || [];
      if (!state) return;
      figure.replaceWith(before);
      Object.assign(state.spec, spec);
      state.range = range(spec);
      spec.lines.forEach((line, at) => Object.assign(state.plot.series[at + 1], { value: series(state.spec, line).value }));
      state.plot.setData(table(spec), false);
    });
  }

  function update(main, { count, parts }) {
    const place = document.createElement("template");
    for (const [index, html] of Object.entries(parts)) {
      place.innerHTML = html;
      const fresh = place.content.firstElementChild;
      const old = main.children[index];
      adopt(fresh);
      if (old) {
        const lefts = [...old.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
        old.replaceWith(fresh);
        fresh.querySelectorAll(".scroll").forEach((one, at) => (one.scrollLeft = lefts[at] || 0));
      } else main.append(fresh);
      watch(fresh);
    }
    while (main.children.length > count) main.lastElementChild.remove();
    for (const figure of charts.keys()) {
      if (figure.isConnected) continue;
      charts.get(figure).plot?.destroy();
      charts.delete(figure);
      sizes.unobserve(figure);
    }
    plotted().forEach(renew);
    // once they are drawn: what the cursor reads, or the last values
    queueMicrotask(() => plotted().forEach(({ plot }) => plot.setCursor({ left: plot.cursor.left, top: plot.cursor.top }, false)));
  }

  if (document.body.dataset.live) {
    const [main, status] = [document.querySelector("main"), document.querySelector("[role=status]")];
    const events = new EventSource(document.body.dataset.live);
    events.onmessage = ({ data }) => {
      const message = JSON.parse(data);
      update(main, message);
      status.textContent = message.said;
      if (message.over) events.close();
    };
    events.onerror = () => (status.textContent = "no answer: `mpca watch` has ended, or the way to it is cut; trying again");
  }
})();
