"use strict";
// Sorts and filters tables, opens the targets of links, draws the charts, compares two trials, and saves what is shown
// as files. Without it everything but the charts is readable.
(() => {
  const value = (body, column) => {
    const cell = body.rows[0].cells[column];
    if (!column) return cell.textContent.trim().toLowerCase();
    return cell.dataset.sort === "" || cell.dataset.sort === undefined ? null : Number(cell.dataset.sort);
  };

  const sort = (table, column, direction) => {
    const bodies = [...table.tBodies];
    bodies.forEach((body, index) => (body.dataset.index ??= index));
    const factor = direction === "descending" ? -1 : 1;
    bodies.sort((first, second) => {
      const original = first.dataset.index - second.dataset.index;
      if (direction === "none") return original;
      const a = value(first, column), b = value(second, column);
      if (a === null || b === null) return (a === null) - (b === null) || original;
      return a < b ? -factor : a > b ? factor : original;
    });
    table.append(...bodies);
    [...table.tHead.rows[0].cells].forEach((head, index) =>
      head.setAttribute("aria-sort", index === column ? direction : "none"));
  };

  const next = (head, column) => {
    const order = column ? ["descending", "ascending", "none"] : ["ascending", "descending", "none"];
    return order[(order.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
  };

  const open = (hash, focus) => {
    const target = hash.length > 1 && document.getElementById(decodeURIComponent(hash.slice(1)));
    if (!target) return;
    for (let element = target; element; element = element.parentElement) if (element.tagName === "DETAILS") element.open = true;
    const summary = target.tagName === "DETAILS" && target.querySelector("summary");
    if (focus && summary) summary.focus({ preventScroll: true });
    target.scrollIntoView({ block: "start" });
  };

  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };

  const config = () => {
    const quiet = "var(--quiet)", line = "var(--line)", font = getComputedStyle(document.body).fontFamily;
    const text = { labelColor: quiet, titleColor: quiet, labelFont: font, titleFont: font, titleFontWeight: "normal" };
    return {
      background: null,
      font,
      view: { stroke: null },
      axis: { ...text, gridColor: line, domain: false, tickColor: line, labelFontSize: 11, titleFontSize: 12,
        gridOpacity: 0.8, tickSize: 3, labelPadding: 4 },
      axisX: { grid: false, domain: true, domainColor: line, tickCount: 5, labelOverlap: "greedy", labelSeparation: 4 },
      axisY: { tickCount: 5 },
    };
  };

  // The area around a point holds the point as its datum, which Vega-Lite 6 forgets in tooltips of fields without a format.
  const nested = (spec) => {
    for (const { encode } of spec.marks) {
      const tooltip = encode?.update?.isVoronoi && encode.update.tooltip;
      if (tooltip) tooltip.signal = tooltip.signal.replace(/""\+datum\["\w+"\]/g, '"–"').replace(/(?<!\.)datum\[/g, "datum.datum[");
    }
    return spec;
  };

  const MAX_BLOCKING_MS = 1500;
  const drawn = new Map();
  const specOf = (figure) => JSON.parse(figure.querySelector("script").textContent);
  const hidden = (figure) =>
    [...(figure.closest("section")?.querySelectorAll(".legend [aria-pressed=false]") ?? [])].map((button) => Number(button.dataset.row));

  const draw = async (figure) => {
    const plot = figure.querySelector(".plot"), spec = specOf(figure);
    drawn.set(figure, null);
    spec.autosize = { type: "fit", contains: "padding" };
    const chart = await vegaEmbed(plot, spec, {
      mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false, config: config(),
      tooltip: { disableDefaultStyle: true }, patch: nested,
    });
    plot.classList.add("drawn");
    drawn.set(figure, chart);
    const rows = hidden(figure);
    if (rows.length) chart.view.signal("hidden", rows).runAsync();
  };

  // All charts are drawn before the page has loaded, so that none is missing in print; very many in the background.
  const drawAll = async (root) => {
    if (typeof vegaEmbed !== "function") return;
    [...drawn.keys()].filter((figure) => !figure.isConnected).forEach((figure) => {
      drawn.get(figure)?.finalize();
      drawn.delete(figure);
    });
    const end = performance.now() + MAX_BLOCKING_MS;
    for (const figure of root.querySelectorAll("figure.chart")) {
      if (!drawn.has(figure) && figure.isConnected) await draw(figure);
      if (performance.now() > end) await new Promise((resolve) => setTimeout(resolve));
    }
  };

  const write = (name, content) => {
    const href = content.startsWith("data:image/") ? content : URL.createObjectURL(new Blob([content]));
    make("a", { href, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(href), 10000);
  };

  const textOf = (cell) => cell.textContent.trim().replace(/\s+/g, " ");
  const linesOf = (table) => [...table.rows].map((row) => [...row.cells].map(textOf));

  // A spreadsheet must not take a text for a formula.
  const csv = (lines) => lines.map((line) => line.map((value) => {
    const text = /^[=+@\t\r-]/.test(value) && isNaN(value) ? `'${value}` : String(value ?? "");
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }).join(",") + "\n").join("");

  const TEX = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$", "−": "$-$",
    "Δ": "$\\Delta$", "↑": "$\\uparrow$", "↓": "$\\downarrow$", "·": "$\\cdot$", "×": "$\\times$" };
  const tex = ([head, ...lines]) => {
    const escaped = (text) => text.replace(/[\\~^±−Δ↑↓·×&%$#_{}]/g, (letter) => TEX[letter] ?? `\\${letter}`);
    const line = (texts) => `${texts.map(escaped).join(" & ")} \\\\`;
    return [`\\begin{tabular}{${"l".repeat(head.length)}}`, "\\toprule", line(head), "\\midrule", ...lines.map(line),
      "\\bottomrule", "\\end{tabular}", ""].join("\n");
  };

  const POINT = { x: "x", y: "value", l: "low", h: "high", p: "reference", s: "seeds" };
  const pointsOf = (figure) => {
    const { data, params } = specOf(figure), rows = params.find(({ name }) => name === "rows").value;
    const keys = Object.keys(POINT).filter((key) => data.values.some((point) => key in point));
    return [["row", ...keys.map((key) => POINT[key])],
      ...data.values.map((point) => [rows[point.r], ...keys.map((key) => [point[key]].flat().join(" "))])];
  };

  const svg = (figure) => {
    const copy = figure.querySelector("svg").cloneNode(true), root = getComputedStyle(document.documentElement);
    const paper = document.createElementNS(copy.namespaceURI, "rect");
    Object.entries({ width: "100%", height: "100%", fill: "var(--paper)" }).forEach(([name, value]) => paper.setAttribute(name, value));
    copy.prepend(paper);
    return new XMLSerializer().serializeToString(copy).replace(/var\((--\w+)\)/g, (_, name) => root.getPropertyValue(name).trim());
  };

  const filesOf = (part) => JSON.parse(part.parentElement.querySelector(".files")?.textContent ?? "{}");
  const WRITERS = {
    "figure.chart": { SVG: svg, CSV: (figure) => csv(pointsOf(figure)) },
    "figure.picture": { PNG: (figure) => figure.querySelector("img").src },
    ".scroll > table": {
      CSV: (table) => filesOf(table).csv ?? csv(linesOf(table)),
      TeX: (table) => filesOf(table).tex ?? tex(linesOf(table)),
    },
  };

  const addButtons = (root) => Object.entries(WRITERS).forEach(([selector, writers]) => root.querySelectorAll(selector).forEach((part) => {
    const figure = part.tagName === "FIGURE", holder = figure ? part.querySelector("figcaption") : part.parentElement;
    if (holder.querySelector(".save") || holder.previousElementSibling?.matches(".save")) return;
    const label = figure ? textOf(holder) : holder.getAttribute("aria-label");
    const words = [document.title.split(":")[0], part.closest("section")?.querySelector("h2")?.id, label];
    const name = words.join(" ").replace(/[^\w.]+/g, "-").slice(0, 80).replace(/-$/, "");
    const buttons = Object.entries(writers).map(([format, content]) => make("button", {
      type: "button", textContent: format, ariaLabel: `Save as ${format}: ${label}`, title: `Save as ${format}`,
      onclick: () => write(`${name}.${format.toLowerCase()}`, content(part)),
    }));
    const save = make("span", { className: "save" }, ...buttons);
    figure ? holder.append(save) : holder.before(save);
  }));

  const compare = (box) => {
    if (!box.hidden) return;
    box.hidden = false;
    const { keys, cells, chart } = JSON.parse(box.querySelector("script").textContent);
    const trials = cells.flatMap((cell) => cell.trials.map((trial) => ({ ...trial, cell })));
    const selects = [...box.querySelectorAll("select")], [first] = trials;
    selects.forEach((select) => select.append(...trials.map(({ cell, seed, value, state, id }) =>
      new Option(`${cell.row} · ${cell.column}, seed ${seed}: ${value || state}`, id))));
    const others = trials.filter((trial) => trial !== first && trial.seed === first.seed);
    selects[1].value = (others.find(({ cell }) => cell.column === first.cell.column) ?? others[0] ?? trials[1]).id;

    const overlay = (name, pair) => {
      const values = pair.flatMap(({ curves }, index) => {
        const [steps, values] = curves[name] ?? [[], []];
        return steps.map((x, number) => ({ r: index + 1, x, y: values[number], t: 1 }));
      });
      const labels = ["", ...pair.map(({ cell, seed, id }) => `${cell.row}, seed ${seed} (${id})`)];
      const params = chart.params.map((param) => (param.name === "rows" ? { ...param, value: labels } : param));
      const spec = { ...chart, params, data: { values }, description: `${name} of two trials by step` };
      return make("figure", { className: "chart" }, make("figcaption", { textContent: name.replace("/", " ") }),
        make("div", { className: "plot", role: "img", ariaLabel: spec.description }),
        make("script", { type: "application/json", textContent: JSON.stringify(spec) }));
    };

    const update = () => {
      const pair = selects.map((select) => trials.find(({ id }) => id === select.value));
      const [a, b] = pair, [one, two] = [a.cell, b.cell];
      const lines = [["row", one.row, two.row], ["column", one.column, two.column], ["seed", a.seed, b.seed], ["trial", a.id, b.id],
        ...keys.map((key, index) => [key, one.config[index], two.config[index]])].filter(([, left, right]) => left !== right);
      lines.push(["result", ...pair.map(({ value, state, cell }) => (value ? `${value} (${cell.metric})` : state))]);
      box.querySelector("tbody").replaceChildren(...lines.map(([key, ...values]) => make("tr", {},
        make("th", { scope: "row", textContent: key }), ...values.map((value) => make("td", { className: "text", textContent: value })))));
      const names = [...new Set(pair.flatMap(({ curves }) => Object.keys(curves)))];
      box.querySelector(".grid").replaceChildren(...names.map((name) => overlay(name, pair)));
      addButtons(box);
      drawAll(box);
    };
    selects.forEach((select) => select.addEventListener("change", update));
    update();
  };

  const filter = () => {
    const escaped = (word) => word.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
    // A number stands for itself: 0.5 is not a part of 0.50 or 10.5.
    const pattern = (word) => new RegExp(isNaN(word) ? escaped(word) : `(?<![\\d.])${escaped(word)}(?!\\.?\\d)`, "i");
    const words = input.value.split(/\s+/).filter(Boolean).map(pattern);
    const matches = (...parts) => { const text = parts.join(" "); return words.every((word) => word.test(text)); };
    const rows = [...document.querySelectorAll(".results > tbody, .full > tbody > tr, .numbers tbody > tr")];
    rows.forEach((row) => (row.hidden = !matches(row.textContent, row.tagName === "TBODY" ? row.parentElement.tHead.textContent : "")));
    const trials = [...document.querySelectorAll(".trials > li")];
    document.querySelectorAll(".cell").forEach((cell) => {
      const head = cell.querySelector("summary").textContent + cell.querySelector(".pairs").textContent;
      const own = [...cell.querySelectorAll(".trials > li")];
      own.forEach((trial) => (trial.hidden = !matches(head, trial.textContent)));
      cell.hidden = !matches(head) && own.every((trial) => trial.hidden);
    });
    const [counted, noun] = trials.length ? [trials, "trials"] : [rows, "rows"];
    const shown = counted.filter((part) => !part.hidden && !part.parentElement.closest("[hidden]")).length;
    input.closest(".find").querySelector("output").textContent = words.length ? `${shown} of ${counted.length} ${noun}` : "";
  };

  const input = document.querySelector(".find input");
  input.closest(".find").hidden = false;
  input.addEventListener("input", filter);

  const start = (root) => {
    addButtons(root);
    root.querySelectorAll(".compare").forEach(compare);
    drawAll(root);
    if (input.value) filter();
  };

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link) { setTimeout(() => open(link.hash, true)); return; }
    const head = event.target.closest(".sortable thead th");
    if (head && event.target.closest("button")) {
      sort(head.closest("table"), head.cellIndex, next(head, head.cellIndex));
      return;
    }
    const row = event.target.closest(".legend button");
    if (row) {
      row.setAttribute("aria-pressed", row.getAttribute("aria-pressed") === "true" ? "false" : "true");
      row.closest("section").querySelectorAll("figure.chart").forEach((figure) =>
        drawn.get(figure)?.view.signal("hidden", hidden(figure)).runAsync());
    }
  });
  addEventListener("hashchange", () => open(location.hash, true));
  start(document);
  open(location.hash, false);
  window.dropbench = { start, sort };
})();
